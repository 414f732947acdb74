//! The self-play process: newest weights in, trajectories out.
//!
//! `workers` holds the OS threads that play, and is the one file where threads meet tokio; `stopwatch` tells where their
//! time goes, `freshness` when their weights may be too old, `pinning` which cpu they stay on, and `traces` shows single games. `hand_in` gives what they finish to a replay server, which `lanes` chooses where there are several; `home`
//! is what an actor remembers over restarts: its epoch, and what was never acknowledged (`spool`). `backend` chooses the evaluators. Start with [`run`].
//!
//! Back-pressure is a chain of bounds: a server that takes no more leaves the writer full, then the channel from the
//! workers, then the workers wait.

mod backend;
mod config;
mod depth;
mod freshness;
mod hand_in;
mod home;
mod lanes;
mod metrics;
mod pinning;
mod spool;
mod stopwatch;
mod traces;
mod workers;

pub use config::{ActorSection, Config, EvaluatorKind, Identity, Kernel, Settings};
use evaluators::Chosen;
use proto::servers::Servers;
use proto::weights::{Subscriber, SubscriberSettings};

use crate::freshness::Freshness;
use crate::hand_in::HandIn;
use crate::home::Home;
use crate::workers::Workers;

/// The body of the process: plays until it is told to drain.
///
/// # Errors
/// A configuration that makes no sense, a run directory that cannot be written, an evaluator that keeps failing.
pub async fn run(config: Config, context: service::Context) -> anyhow::Result<()> {
    let settings = config.settings()?;
    metrics::begin();
    proto::security::use_credentials(&config.security)?;
    let (home, settings) = settle(settings)?;
    let evaluators = backend::choose(&settings, &context.drain)?;
    play(settings, home, evaluators, context).await
}

/// Opens the home of this actor. The settings that come back have its id as `actor.id`.
fn settle(settings: Settings) -> anyhow::Result<(Home, Settings)> {
    match settings.actor.identity {
        Identity::Fixed => Ok((Home::open(&settings.directory, settings.actor.id)?, settings)),
        Identity::Claimed => {
            let (id, home) = Home::claim(&settings.directory)?;
            Ok((home, Settings { actor: ActorSection { id, ..settings.actor }, ..settings }))
        }
    }
}

async fn play(settings: Settings, home: Home, evaluators: Chosen, context: service::Context) -> anyhow::Result<()> {
    let actor = &settings.actor;
    let epoch = home.next_epoch(0)?;
    let Chosen { backend, threads } = &evaluators;
    tracing::info!(actor = actor.id, epoch, threads, backend = %backend.describe(), "self-play");
    context.readiness.not_ready("waiting for the first weights");

    let subscriber = Subscriber::start(SubscriberSettings {
        endpoint: actor.learner.clone(),
        name: format!("actor-{}", actor.id),
        size_limit_bytes: actor.weights_bytes_max,
    });
    let servers = Servers::resolved(&settings.replay);
    let hand_in = HandIn::start(&settings, servers, epoch, home, &context.drain)?;
    let (weights, readiness) = (subscriber.handle(), context.readiness.clone());
    let freshness = Freshness::new(subscriber.away(), settings.weights_away_max);
    let workers = Workers::start(&settings, epoch, evaluators, weights, freshness, readiness, &context.drain)?;
    let handed_in = hand_in.run(workers.finished, &context.drain).await;
    // Whatever ended the hand-in, the threads must not outlive it.
    context.drain.start();
    let played = workers.threads.join().await;
    played.and(handed_in)
}
