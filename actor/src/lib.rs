//! The self-play process: plays with the latest weights and uploads trajectories.
//!
//! `workers` holds the OS threads for playing, decides when weights may be too old, pins threads to CPUs, and is the
//! only file where threads and tokio communicate. `play` holds the episodes of a thread, for either kind of network;
//! `stopwatch` measures the time of each phase, `adaptive_budget` sets the simulations of searches, `traces` traces
//! single games, and `spectators` shows some games in progress. `reanalysis` holds the threads that search stored
//! trajectories again. `uploader` sends finished games to the replay server chosen by `replay_router`; `state_dir`
//! keeps the epoch and the unacknowledged trajectories (`spool`) across restarts. `backend` chooses the evaluators.
//! Start with [`run`].
//!
//! Back-pressure is a chain of bounded queues: if the server blocks inserts, the writer fills, then the channel from
//! the workers, and then the workers wait.

mod adaptive_budget;
mod backend;
mod metrics;
mod play;
mod reanalysis;
mod replay_router;
mod spectators;
pub mod spool;
mod state_dir;
mod stopwatch;
mod traces;
mod uploader;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use evaluators::Chosen;
use proto::weights::{Subscriber, SubscriberSettings};
use run_file::actor::{ActorSection, Config, Identity, Settings};
use transport::servers::Servers;

use crate::state_dir::ActorStateDir;
use crate::uploader::Uploader;
use crate::workers::{Freshness, Workers};

/// Runs the process: plays until drained.
///
/// # Errors
/// The configuration is invalid, the run directory cannot be written, or an evaluator keeps failing.
pub fn run(config: Config, context: service::Context) -> service::Body {
    Box::pin(async move {
        let settings = config.settings()?;
        metrics::begin();
        transport::security::use_credentials(&config.security)?;
        let (state_dir, settings) = settle(settings)?;
        let evaluators = backend::choose(&settings, &context.drain)?;
        play(settings, state_dir, evaluators, context).await
    })
}

/// Opens the state directory of this actor. The returned settings contain the actor's id as `actor.id`.
fn settle(settings: Settings) -> anyhow::Result<(ActorStateDir, Settings)> {
    match settings.actor.identity {
        Identity::Fixed => Ok((ActorStateDir::open(&settings.directory, settings.actor.id)?, settings)),
        Identity::Claimed => {
            let (id, state_dir) = ActorStateDir::claim(&settings.directory)?;
            Ok((state_dir, Settings { actor: ActorSection { id, ..settings.actor }, ..settings }))
        }
    }
}

/// Returns the settings with the number of concurrent games for an accelerator, if the evaluators use one.
fn with_games(mut settings: Settings, evaluators: &Chosen, memory_bytes: u64) -> Settings {
    if evaluators.backend.is_accelerated() {
        settings.selfplay.games = settings.accelerator_games(evaluators.threads, memory_bytes);
    }
    settings
}

async fn play(
    settings: Settings,
    state_dir: ActorStateDir,
    evaluators: Chosen,
    context: service::Context,
) -> anyhow::Result<()> {
    let epoch = state_dir.next_epoch(0)?;
    let settings = with_games(settings, &evaluators, service::machine::memory_bytes().unwrap_or(0));
    let Chosen { backend, threads } = &evaluators;
    let (actor, games) = (&settings.actor, settings.selfplay.games);
    tracing::info!(actor = actor.id, epoch, threads, games, backend = %backend.describe(), "self-play");
    context.readiness.not_ready("waiting for the first weights");
    let engine = Arc::clone(backend);
    let export = move || {
        service::devices::graphs("evaluation", engine.graphs());
        engine.engine_counts().inspect(metrics::engine).is_some()
    };
    let sampling = context.drain.repeat(Duration::from_secs(1), export);

    let subscriber = Subscriber::start(SubscriberSettings {
        endpoint: actor.learner.clone(),
        name: format!("actor-{}", actor.id),
        size_limit_bytes: actor.weights_bytes_max,
    });
    let servers = Servers::resolved(&settings.replay);
    let uploader = Uploader::start(&settings, servers.clone(), epoch, state_dir, &context.drain)?;
    let (weights, readiness) = (subscriber.handle(), context.readiness.clone());
    let freshness = Freshness { away: subscriber.away(), most: settings.weights_away_max };
    let (drain, health) = (&context.drain, &context.health);
    context.live.serve();
    let workers = Workers::start(
        &settings,
        epoch,
        evaluators,
        weights,
        freshness,
        readiness,
        drain,
        health,
        &context.live,
        &servers,
    )?;
    let uploaded = uploader.run(workers.finished, &context.drain).await;
    // The threads must not outlive the upload, even after a failure.
    context.drain.start();
    let played = workers.threads.join().await;
    sampling.await.context("join the engine sampling task")?;
    played.and(uploaded)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use evaluators::{Backend, Error};
    use inference::Evaluator;
    use weights::Manifest;

    use super::*;

    /// An accelerator that is never used.
    struct Accelerator;

    impl Backend for Accelerator {
        fn is_accelerated(&self) -> bool {
            true
        }

        fn describe(&self) -> String {
            "an accelerator".to_owned()
        }

        fn build(&self, _: &Manifest, _: &Bytes) -> Result<Box<dyn Evaluator>, Error> {
            Err(Error::Other("an accelerator that is never used".to_owned()))
        }
    }

    #[test]
    fn an_actor_plays_more_games_on_an_accelerator_only() {
        let games = |backend: Arc<dyn Backend>| {
            let settings = Config::default().settings().unwrap();
            with_games(settings, &Chosen { backend, threads: 12 }, 1 << 36).selfplay.games
        };
        let cpu = |_: &Manifest, _: &Bytes| Err(Error::Other(String::new()));
        assert_eq!(games(Arc::new(cpu)), Config::default().selfplay.games);
        assert_eq!(games(Arc::new(Accelerator)), 512);
    }
}
