//! Finished episodes become trajectories with ids and go to the replay server until it has acknowledged them.
//!
//! What is not acknowledged when the process ends is spooled, and handed in by the next start under its old id, so that it
//! counts once whatever happened to the acknowledgement. It has a stream of its own, and the server holds it up as long as
//! it holds up anything: self-play goes on beside it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use experience::{Trajectory, TrajectoryId};
use proto::replay::{Writer, WriterSettings};
use selfplay::FinishedEpisode;
use service::Drain;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::config::Settings;
use crate::home::Home;
use crate::metrics;

#[cfg(test)]
mod tests;

/// How often the writer's counts are copied to the metrics.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// The way of this epoch's trajectories to the replay server.
pub(crate) struct HandIn {
    numbering: Numbering,
    writer: Writer,
    home: Home,
    drain_timeout: Duration,
    /// Hands in what earlier epochs left, and returns what it could not.
    spooled: JoinHandle<Vec<Trajectory>>,
}

/// Gives the trajectories of this epoch their ids.
struct Numbering {
    /// The id of the next one.
    next: TrajectoryId,
    game: String,
}

impl Numbering {
    fn identify(&mut self, FinishedEpisode { steps, outcome, .. }: FinishedEpisode) -> Trajectory {
        let id = self.next;
        self.next.sequence += 1;
        Trajectory { id, game: self.game.clone(), steps, outcome }
    }
}

impl HandIn {
    /// Must be called on a runtime.
    pub(crate) fn start(settings: &Settings, epoch: u64, home: Home, drain: &Drain) -> anyhow::Result<Self> {
        let writer = WriterSettings {
            endpoint: settings.actor.replay.clone(),
            actor: settings.actor.id,
            epoch,
            game: settings.game.to_string(),
            in_flight_max: settings.actor.unacknowledged_max,
        };
        let (left, drain_timeout) = (home.read_spool()?, settings.drain);
        Ok(Self {
            numbering: Numbering {
                next: TrajectoryId { actor: writer.actor, epoch, sequence: 0 },
                game: writer.game.clone(),
            },
            spooled: tokio::spawn(hand_in_spooled(left, writer.clone(), home.clone(), drain.clone(), drain_timeout)),
            writer: Writer::start(writer),
            home,
            drain_timeout,
        })
    }

    /// Hands in what comes until the drain fires, or nothing more can come; then finishes: waits a little for
    /// acknowledgements and spools the rest.
    pub(crate) async fn run(
        mut self,
        mut finished: mpsc::Receiver<FinishedEpisode>,
        drain: &Drain,
    ) -> anyhow::Result<()> {
        let Self { writer, numbering, .. } = &mut self;
        let given_up = tokio::select! {
            given_up = hand_in(writer, numbering, &mut finished, drain) => given_up,
            never = report_regularly(writer) => match never {},
        };
        self.finish(given_up, finished).await
    }

    async fn finish(
        mut self,
        given_up: Option<Trajectory>,
        mut finished: mpsc::Receiver<FinishedEpisode>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + self.drain_timeout;
        let mut left: Vec<_> = given_up.into_iter().collect();
        // Until the last thread has ended, however long its round takes: what it finished is not to be lost. Whoever
        // waits in a full channel is freed by this.
        while let Some(episode) = finished.recv().await {
            left.push(self.numbering.identify(episode));
        }
        let mut late = Vec::new();
        for trajectory in left {
            late.extend(insert(&self.writer, trajectory, sleep_until(deadline)).await);
        }
        report(&self.writer);
        let in_flight = self.writer.close_by(sleep_until(deadline)).await;
        let mut unacknowledged = self.spooled.await.unwrap_or_else(|error| {
            tracing::error!(%error, "handing in the spool failed");
            self.home.read_spool().unwrap_or_default()
        });
        unacknowledged.extend(in_flight.into_iter().chain(late));
        metrics::unacknowledged(unacknowledged.len());
        tracing::info!(
            trajectories = self.numbering.next.sequence,
            spooled = unacknowledged.len(),
            "handed in; what is spooled was not acknowledged and is sent again at the next start"
        );
        self.home.write_spool(&unacknowledged)
    }
}

/// Hands in what comes until the drain fires, or nothing more can come; the trajectory that waited at that moment.
async fn hand_in(
    writer: &Writer,
    numbering: &mut Numbering,
    finished: &mut mpsc::Receiver<FinishedEpisode>,
    drain: &Drain,
) -> Option<Trajectory> {
    loop {
        let episode = tokio::select! {
            biased;
            () = drain.wait() => return None,
            episode = finished.recv() => episode?,
        };
        let given_up = insert(writer, numbering.identify(episode), drain.wait()).await;
        if given_up.is_some() {
            return given_up;
        }
    }
}

/// Waits until the writer takes a trajectory, at most until `deadline` resolves; the trajectory if it was not taken.
async fn insert(writer: &Writer, trajectory: Trajectory, deadline: impl Future<Output = ()>) -> Option<Trajectory> {
    tokio::select! {
        biased;
        taken = writer.insert(trajectory.clone()) => {
            if let Err(error) = taken {
                tracing::error!(%error, "a trajectory cannot be sent and is dropped");
            }
            None
        }
        () = deadline => Some(trajectory),
    }
}

async fn report_regularly(writer: &Writer) -> Infallible {
    let mut ticks = tokio::time::interval(REPORT_INTERVAL);
    loop {
        ticks.tick().await;
        report(writer);
    }
}

fn report(writer: &Writer) {
    let stats = writer.stats();
    metrics::unacknowledged(writer.unacknowledged());
    metrics::inserted(stats.inserted + stats.duplicates);
    metrics::refused(stats.refused);
}

/// Hands in what earlier epochs left, under their ids; returns what is not acknowledged a while after the drain fires.
async fn hand_in_spooled(
    left: Vec<Trajectory>,
    writer: WriterSettings,
    home: Home,
    drain: Drain,
    drain_timeout: Duration,
) -> Vec<Trajectory> {
    if left.is_empty() {
        return left;
    }
    tracing::info!(trajectories = left.len(), "handing in what earlier starts left");
    let mut kept = Vec::new();
    let mut epochs = BTreeMap::<u64, Vec<Trajectory>>::new();
    for trajectory in left {
        if trajectory.game == writer.game && trajectory.id.actor == writer.actor {
            epochs.entry(trajectory.id.epoch).or_default().push(trajectory);
        } else {
            let (id, game) = (trajectory.id, &trajectory.game);
            tracing::warn!(%id, game, "a spooled trajectory is of another actor or game and stays in the spool");
            kept.push(trajectory);
        }
    }
    for (epoch, trajectories) in epochs {
        let writer = Writer::start(WriterSettings { epoch, ..writer.clone() });
        kept.extend(hand_in_epoch(writer, trajectories, &drain, drain_timeout).await);
    }
    if kept.is_empty()
        && let Err(error) = home.write_spool(&[])
    {
        let error = service::chain(&error);
        tracing::warn!(error, "the spool is handed in but cannot be removed; it will be sent again and count once");
    }
    kept
}

async fn hand_in_epoch(
    writer: Writer,
    trajectories: Vec<Trajectory>,
    drain: &Drain,
    drain_timeout: Duration,
) -> Vec<Trajectory> {
    let mut late = Vec::new();
    for trajectory in trajectories {
        late.extend(insert(&writer, trajectory, drain.wait()).await);
    }
    let deadline = async {
        drain.wait().await;
        sleep(drain_timeout).await;
    };
    let in_flight = writer.close_by(deadline).await;
    in_flight.into_iter().chain(late).collect()
}
