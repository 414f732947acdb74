//! The self-play process: plays with the newest weights and uploads trajectories.
//!
//! `workers` holds the OS threads that play, decides when their weights may be too old, pins them to cpus, and is the
//! only file where threads and tokio communicate; `stopwatch` measures how their time is spent, `adaptive_budget` sets
//! the simulations of their searches, and `traces` traces single games. `uploader` sends finished games to the replay
//! server that `replay_router` chooses; `state_dir` keeps the epoch and the unacknowledged trajectories (`spool`) over
//! restarts. `backend` chooses the evaluators. Start with [`run`].
//!
//! Back-pressure is a chain of bounded queues: if the server blocks inserts, the writer fills, then the channel from
//! the workers, and then the workers wait.

mod adaptive_budget;
mod backend;
mod config;
mod metrics;
mod replay_router;
mod spool;
mod state_dir;
mod stopwatch;
mod traces;
mod uploader;
mod workers;

pub use config::{ActorSection, Config, Identity, Kernel, Settings};
use evaluators::Chosen;
use proto::servers::Servers;
use proto::weights::{Subscriber, SubscriberSettings};

use crate::state_dir::ActorStateDir;
use crate::uploader::Uploader;
use crate::workers::{Freshness, Workers};

/// Runs the process: plays until it drains.
///
/// # Errors
/// An invalid configuration, a run directory that cannot be written, an evaluator that keeps failing.
pub async fn run(config: Config, context: service::Context) -> anyhow::Result<()> {
    let settings = config.settings()?;
    metrics::begin();
    proto::security::use_credentials(&config.security)?;
    let (state_dir, settings) = settle(settings)?;
    let evaluators = backend::choose(&settings, &context.drain)?;
    play(settings, state_dir, evaluators, context).await
}

/// Opens the state directory of this actor. The returned settings have its id as `actor.id`.
fn settle(settings: Settings) -> anyhow::Result<(ActorStateDir, Settings)> {
    match settings.actor.identity {
        Identity::Fixed => Ok((ActorStateDir::open(&settings.directory, settings.actor.id)?, settings)),
        Identity::Claimed => {
            let (id, state_dir) = ActorStateDir::claim(&settings.directory)?;
            Ok((state_dir, Settings { actor: ActorSection { id, ..settings.actor }, ..settings }))
        }
    }
}

async fn play(
    mut settings: Settings,
    state_dir: ActorStateDir,
    evaluators: Chosen,
    context: service::Context,
) -> anyhow::Result<()> {
    let epoch = state_dir.next_epoch(0)?;
    let Chosen { backend, threads } = &evaluators;
    if backend.is_accelerated() {
        settings.selfplay.games = settings.accelerator_games(*threads, service::machine::memory_bytes().unwrap_or(0));
    }
    let (actor, games) = (&settings.actor, settings.selfplay.games);
    tracing::info!(actor = actor.id, epoch, threads, games, backend = %backend.describe(), "self-play");
    context.readiness.not_ready("waiting for the first weights");

    let subscriber = Subscriber::start(SubscriberSettings {
        endpoint: actor.learner.clone(),
        name: format!("actor-{}", actor.id),
        size_limit_bytes: actor.weights_bytes_max,
    });
    let servers = Servers::resolved(&settings.replay);
    let uploader = Uploader::start(&settings, servers, epoch, state_dir, &context.drain)?;
    let (weights, readiness) = (subscriber.handle(), context.readiness.clone());
    let freshness = Freshness { away: subscriber.away(), most: settings.weights_away_max };
    let workers = Workers::start(&settings, epoch, evaluators, weights, freshness, readiness, &context.drain)?;
    let uploaded = uploader.run(workers.finished, &context.drain).await;
    // Whatever ended the upload, the threads must not outlive it.
    context.drain.start();
    let played = workers.threads.join().await;
    played.and(uploaded)
}
