//! Runs the arena process, and connects the measuring thread to tokio through a watch of the latest weights.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use evaluators::{BatchMax, Calibration, Chosen, Host, Invalid, Store, Threads};
use games::{GameKind, Recorded};
use proto::weights::{Published, Publisher, Subscriber, SubscriberSettings, WeightsService};
use run_file::WeightsSource;
use run_file::arena::{ArenaSection, Config, Settings};
use service::{ConfigError, Context, Drain, DrainPipe, RememberedFile, SecuritySection};
use strength::outside::{Outside, StartEnvironments};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use transport::security::Security;
use version_store::{Model, ModelFolder};

use crate::pacer::Environment;
use crate::worker::Worker;

/// Maximum size of weights, in bytes; larger weights are rejected before any allocation.
const WEIGHTS_BYTES_MAX: u64 = 1 << 30;

/// Number of accepted versions to serve: the latest, and the one before it so that fetches in progress can finish.
const VERSIONS_SERVED: usize = 2;

/// Time without a move in a match or episode after which the measuring thread counts as stalled, in addition to the
/// time limits of environments: all games of a match search together, on one core.
const STALLED_AFTER: Duration = Duration::from_secs(1800);

/// Maximum time for fetches in progress to finish after the measurements have ended.
const SERVE_LAST: Duration = Duration::from_secs(2);

/// Runs the arena until it is drained, or has measured the only version.
///
/// # Errors
/// The configuration is invalid, or the run directory is unusable or contains files of another run.
pub fn run(config: Config, context: Context) -> service::Body {
    Box::pin(measure(config, context))
}

async fn measure(config: Config, context: Context) -> anyhow::Result<()> {
    let settings = config.settings()?;
    transport::security::use_credentials(&config.security)?;
    service::directory::writable(&settings.run.directory)?;
    let Chosen { backend, .. } = choose(&settings)?;
    tracing::info!(evaluator = backend.describe(), "evaluators");
    let (publisher, server) = serve(&settings, &config.security, &context).await?.unzip();
    // Without a subscriber, the version in the file is the only version.
    let (weights, _subscriber) = match &settings.source {
        WeightsSource::Server(endpoint) => {
            let (endpoint, name) = (endpoint.clone(), context.name.to_owned());
            let size_limit_bytes = WEIGHTS_BYTES_MAX;
            let subscriber = Subscriber::start(SubscriberSettings { endpoint, name, size_limit_bytes });
            (subscriber.handle(), Some(subscriber))
        }
        WeightsSource::File(path) => {
            let Model { manifest, bytes, .. } = ModelFolder::read_at_most(path, WEIGHTS_BYTES_MAX)?;
            (watch::channel(Some(Arc::new(Published { manifest, bytes: bytes.into() }))).1, None)
        }
    };
    let connections = Connections { runtime: Handle::current(), weights, publisher, drain: context.drain.clone() };
    let (done, ended) = oneshot::channel();
    let builder = thread::Builder::new().name("measure".to_owned());
    let environment = settings.environment.as_ref().map_or(Duration::ZERO, bridge::Settings::call_time_max);
    let stalled_after = STALLED_AFTER + environment;
    let outside = match (&settings.game, &settings.environment) {
        (GameKind::Recorded(described), Some(environment)) => {
            let drain = context.drain.pipe().context("open a pipe for the drain")?;
            Some(outside(environment.clone(), described.clone(), drain))
        }
        _ => None,
    };
    let mut worker = Worker::open(settings.game.rules(), settings, backend, connections)?;
    if let Some(start) = outside {
        worker = worker.outside(Outside::new(start));
    }
    let beats = context.health.heartbeat("measure", stalled_after);
    let work = move || {
        let _beats = beats.of_thread();
        // The receiver is dropped only when the process exits.
        drop(done.send(worker.run()));
    };
    let thread = builder.spawn(work).context("start the measuring thread")?;
    context.readiness.ready();
    // The worker returns without further signals once the process drains.
    let outcome = ended.await.map(forgive_drained);
    context.drain.start();
    // A client that keeps watching the health of this process must not prevent the exit.
    if let Some(server) = server
        && let Ok(server) = tokio::time::timeout(SERVE_LAST, server).await
    {
        server.context("join the server")??;
    }
    match thread.join() {
        Ok(()) => outcome.context("wait for the measuring thread")?,
        Err(_) => Err(anyhow!("the measuring thread panicked")),
    }
}

/// Ignores the error of environments that the drain stopped.
fn forgive_drained(outcome: anyhow::Result<()>) -> anyhow::Result<()> {
    let is_drained =
        |cause: &(dyn std::error::Error + 'static)| matches!(cause.downcast_ref(), Some(bridge::Error::Drained { .. }));
    outcome.or_else(|error| if error.chain().any(is_drained) { Ok(()) } else { Err(error) })
}

/// The task that serves accepted weights.
type Server = JoinHandle<anyhow::Result<()>>;

/// Starts to serve accepted weights, if the arena decides on the weights of the actors.
async fn serve(
    settings: &Settings,
    security: &SecuritySection,
    context: &Context,
) -> anyhow::Result<Option<(Publisher, Server)>> {
    if settings.gate.is_none() {
        return Ok(None);
    }
    let security = Security::open(security, context.listen)?;
    let listener = service::net::bind(context.listen).await?;
    let (service, publisher) = WeightsService::new(VERSIONS_SERVED);
    let serving = proto::weights::serve(service, None, security, listener, context.drain.token());
    Ok(Some((publisher, tokio::spawn(async move { serving.await.context("serve weights") }))))
}

/// Returns a function that starts the evaluation environments. Once `drain` fires, no call waits for environments.
fn outside(environment: bridge::Settings, described: Recorded, drain: DrainPipe) -> StartEnvironments {
    Box::new(move || Ok(Box::new(bridge::config::start(environment.clone(), &described, Some(drain.clone()))?)))
}

/// Chooses the configured engine, or the fastest on the device.
///
/// # Errors
/// This build or machine cannot satisfy a key; [`ConfigError`] names it.
fn choose(settings: &Settings) -> Result<Chosen, ConfigError> {
    let ArenaSection { device, precision, kernel, openings_per_match, .. } = settings.arena;
    let wanted = evaluators::Settings {
        device,
        precision,
        kernel,
        // With calibration, the games of a match would depend on earlier evaluations.
        calibration: Calibration::Off,
        threads: Threads::exactly(1),
        // The games of a match are searched together, from both sides; solved positions also come in such batches.
        batch_max: BatchMax::exactly(2 * openings_per_match),
        torch_build: "build the arena with --features torch",
    };
    let file = RememberedFile::new(settings.run.directory.join("arena-evaluators.json"));
    let reader = file.clone();
    let speeds = Store::new(move || reader.read(), move |text| file.write(text));
    let host = Host { clock: Instant::now, machine: service::machine::describe(), speeds };
    let invalid = |Invalid { setting, reason }| ConfigError::invalid(format!("arena.{setting}"), reason);
    evaluators::choose(&wanted, host).map_err(invalid)
}

/// The environment of the measuring thread in a running process.
struct Connections {
    runtime: Handle,
    weights: watch::Receiver<Option<Arc<Published>>>,
    /// Serves accepted weights, if the arena decides on the weights of the actors.
    publisher: Option<Publisher>,
    drain: Drain,
}

impl Environment for Connections {
    fn newest(&mut self) -> Option<Arc<Published>> {
        service::beat();
        self.weights.borrow_and_update().clone()
    }

    fn now(&mut self) -> Instant {
        Instant::now()
    }

    fn sleep(&mut self, duration: Duration) -> ControlFlow<()> {
        service::beat();
        if self.drain.started() {
            return ControlFlow::Break(());
        }
        if duration.is_zero() {
            return ControlFlow::Continue(());
        }
        // The timer is created inside, because it needs the runtime.
        let event = async { self.drain.unless_started(tokio::time::sleep(duration)).await };
        service::waiting(|| self.runtime.block_on(event)).map_or(ControlFlow::Break(()), ControlFlow::Continue)
    }

    fn accept(&mut self, Published { manifest, bytes }: &Published) {
        let Some(publisher) = &self.publisher else { return };
        if let Err(error) = publisher.publish(manifest.clone(), bytes.clone()) {
            tracing::error!(version = %manifest.version, "cannot serve accepted weights: {error}");
        }
    }

    fn wait_for_weights(&mut self, at_most: Duration) -> ControlFlow<()> {
        let event = async {
            tokio::select! {
                () = self.drain.wait() => ControlFlow::Break(()),
                // Without a subscriber there are no later weights.
                changed = self.weights.changed() => changed.map_or(ControlFlow::Break(()), ControlFlow::Continue),
                () = tokio::time::sleep(at_most) => ControlFlow::Continue(()),
            }
        };
        service::waiting(|| self.runtime.block_on(event))
    }
}

#[cfg(test)]
mod tests {
    use service::Health;

    use super::*;

    #[test]
    fn a_thread_that_measures_stalls_and_one_that_waits_for_weights_does_not() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let waits: [fn(&mut Connections, Duration) -> ControlFlow<()>; 2] =
            [Connections::wait_for_weights, Connections::sleep];
        for wait in waits {
            let (drain, health) = (Drain::new(), Health::default());
            let (_weights, newest) = watch::channel(None);
            let (handle, drained) = (runtime.handle().clone(), drain.clone());
            let mut connections = Connections { runtime: handle, weights: newest, publisher: None, drain: drained };
            let beats = health.heartbeat("measure", STALLED_AFTER);
            let problem = || health.problem(Instant::now() + 2 * STALLED_AFTER);
            assert!(problem().is_some_and(|it| it.starts_with("the thread measure has stalled")));
            thread::scope(|scope| {
                let _ends = drain.token().drop_guard();
                let waiting = scope.spawn(move || {
                    let _beats = beats.of_thread();
                    wait(&mut connections, Duration::MAX)
                });
                let deadline = Instant::now() + Duration::from_secs(60);
                while problem().is_some() {
                    assert!(Instant::now() < deadline);
                    thread::yield_now();
                }
                assert!(!waiting.is_finished());
            });
        }
    }
}
