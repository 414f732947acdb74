//! Runs the arena as a process: connects the measuring thread to tokio through a watch of the newest weights.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use evaluators::Backend;
use game::Game;
use games::with_game;
use proto::weights::{Published, Subscriber, SubscriberSettings};
use service::{Context, Drain};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use crate::accuracy::subset;
use crate::backend;
use crate::config::{Config, Settings};
use crate::environment::Environment;
use crate::ledger::Ledger;
use crate::metrics;
use crate::past_versions::PastVersions;
use crate::solved;
use crate::worker::{Worker, WorkerConfig};

/// Largest accepted weights in bytes; larger ones are rejected before any allocation.
const WEIGHTS_BYTES_MAX: u64 = 1 << 30;

/// Runs the arena until it is drained.
///
/// # Errors
/// An invalid configuration, an unusable run directory, or files of another run in it.
pub async fn run(config: Config, context: Context) -> anyhow::Result<()> {
    let settings = config.settings()?;
    proto::security::use_credentials(&config.security)?;
    metrics::describe();
    service::directory::writable(&settings.directory)?;
    let evaluators = backend::choose(&settings)?;
    tracing::info!(evaluator = evaluators.backend.describe(), "evaluators");
    let subscriber = Subscriber::start(SubscriberSettings {
        endpoint: settings.weights.clone(),
        name: context.name.to_owned(),
        size_limit_bytes: WEIGHTS_BYTES_MAX,
    });
    let bridge = Bridge { runtime: Handle::current(), weights: subscriber.handle(), drain: context.drain.clone() };
    let (done, ended) = oneshot::channel();
    let thread = with_game!(settings.game, |game| {
        let parts = parts(game, bridge, Arc::clone(&evaluators.backend), &settings)?;
        thread::Builder::new().name("measure".to_owned()).spawn(move || {
            // The receiver is dropped only when the process ends.
            let _ = done.send(Worker::new(parts).run());
        })
    });
    let thread = thread.context("start the measuring thread")?;
    context.readiness.ready();
    // The worker returns by itself once the process drains.
    let outcome = ended.await;
    match thread.join() {
        Ok(()) => outcome.context("wait for the measuring thread")?,
        Err(_) => Err(anyhow!("the measuring thread panicked")),
    }
}

/// Builds the worker from the run directory and the settings.
fn parts<G: Game>(
    game: G,
    bridge: Bridge,
    backend: Arc<dyn Backend>,
    settings: &Settings,
) -> anyhow::Result<WorkerConfig<G, Bridge>> {
    let ratings_path = settings.directory.join("ratings.json");
    let ledger = Ledger::load(&ratings_path, &game.spec().name)?;
    let folder = settings.directory.join("arena");
    let (past, unreadable) = PastVersions::open(&folder, settings.measurement.past_versions)?;
    for path in unreadable {
        tracing::warn!(path = %path.display(), "not the manifest of an earlier version: passed over");
    }
    let positions = subset(solved::bundled(&game).unwrap_or_default(), settings.measurement.positions_max);
    tracing::info!(games = ledger.games(), positions = positions.len(), "measuring");
    Ok(WorkerConfig {
        game,
        environment: bridge,
        measurement: settings.measurement.clone(),
        seed: settings.seed,
        cpu_share: settings.cpu_share,
        backend,
        ledger,
        ratings_path,
        past,
        positions,
        exhaustive: settings.game.entry().exhaustive,
    })
}

/// The environment of the measuring thread in the runtime.
struct Bridge {
    runtime: Handle,
    weights: watch::Receiver<Option<Arc<Published>>>,
    drain: Drain,
}

impl Environment for Bridge {
    fn newest(&mut self) -> Option<Arc<Published>> {
        self.weights.borrow_and_update().clone()
    }

    fn now(&mut self) -> Instant {
        Instant::now()
    }

    fn sleep(&mut self, duration: Duration) -> ControlFlow<()> {
        if self.drain.started() {
            return ControlFlow::Break(());
        }
        if duration.is_zero() {
            return ControlFlow::Continue(());
        }
        self.runtime.block_on(async {
            tokio::select! {
                () = self.drain.wait() => ControlFlow::Break(()),
                () = tokio::time::sleep(duration) => ControlFlow::Continue(()),
            }
        })
    }

    fn wait_for_weights(&mut self, at_most: Duration) -> ControlFlow<()> {
        self.runtime.block_on(async {
            let changed = async {
                if self.weights.changed().await.is_err() {
                    // The subscriber has ended, so only the drain remains to be waited for.
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = self.drain.wait() => ControlFlow::Break(()),
                () = changed => ControlFlow::Continue(()),
                () = tokio::time::sleep(at_most) => ControlFlow::Continue(()),
            }
        })
    }
}
