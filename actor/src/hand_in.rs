//! Finished episodes become trajectories with ids and go to the replay server until it has acknowledged them.
//!
//! What is not acknowledged when the process ends is spooled, and handed in by the next start under its old id, so that it
//! counts once whatever happened to the acknowledgement.

use std::collections::BTreeMap;
use std::time::Duration;

use experience::{Trajectory, TrajectoryId};
use proto::replay::{Writer, WriterSettings};
use selfplay::FinishedEpisode;
use service::Drain;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::config::Settings;
use crate::home::Home;
use crate::metrics;

/// How often the writer's counts are copied to the metrics, and a spool's acknowledgements are looked for.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// The way of this epoch's trajectories to the replay server.
pub(crate) struct HandIn {
    target: Target,
    epoch: u64,
    sequence: u64,
    drain_timeout: Duration,
    writer: Writer,
    home: Home,
    /// Hands in what earlier epochs left, and returns what it could not.
    spooled: JoinHandle<Vec<Trajectory>>,
}

/// Where trajectories go.
#[derive(Debug, Clone)]
struct Target {
    endpoint: String,
    actor: u64,
    game: String,
    in_flight_max: usize,
}

impl Target {
    fn writer(&self, epoch: u64) -> Writer {
        Writer::start(WriterSettings {
            endpoint: self.endpoint.clone(),
            actor: self.actor,
            epoch,
            game: self.game.clone(),
            in_flight_max: self.in_flight_max,
        })
    }
}

impl HandIn {
    pub(crate) fn start(settings: &Settings, epoch: u64, home: Home, drain: &Drain) -> anyhow::Result<Self> {
        let target = Target {
            endpoint: settings.actor.replay.clone(),
            actor: settings.actor.id,
            game: settings.game.to_string(),
            in_flight_max: settings.actor.unacknowledged_max,
        };
        let left = home.read_spool()?;
        let spooled = hand_in_spooled(target.clone(), left, home.clone(), drain.clone(), settings.drain);
        Ok(Self {
            epoch,
            sequence: 0,
            drain_timeout: settings.drain,
            writer: target.writer(epoch),
            home,
            spooled: tokio::spawn(spooled),
            target,
        })
    }

    /// Hands in what comes until the drain fires, then finishes: waits a little for acknowledgements and spools the rest.
    pub(crate) async fn run(
        mut self,
        mut finished: mpsc::Receiver<FinishedEpisode>,
        drain: &Drain,
    ) -> anyhow::Result<()> {
        let mut left = Vec::new();
        let mut reports = tokio::time::interval(REPORT_INTERVAL);
        loop {
            tokio::select! {
                biased;
                () = drain.wait() => break,
                _ = reports.tick() => self.report(),
                episode = finished.recv() => {
                    let Some(episode) = episode else { break };
                    let trajectory = self.identify(episode);
                    // Whether an insert that is given up has reached the writer is unknown; its id makes both right.
                    left.push(trajectory.clone());
                    if !self.insert(trajectory, drain, &mut reports).await {
                        break;
                    }
                    left.clear();
                }
            }
        }
        self.finish(left, finished).await
    }

    /// False if the drain fired first.
    async fn insert(&self, trajectory: Trajectory, drain: &Drain, reports: &mut tokio::time::Interval) -> bool {
        let insert = self.writer.insert(trajectory);
        tokio::pin!(insert);
        loop {
            tokio::select! {
                biased;
                result = &mut insert => {
                    if let Err(error) = result {
                        tracing::error!(%error, "a trajectory cannot be sent and is dropped");
                    }
                    return true;
                }
                () = drain.wait() => return false,
                _ = reports.tick() => self.report(),
            }
        }
    }

    fn identify(&mut self, episode: FinishedEpisode) -> Trajectory {
        let id = TrajectoryId { actor: self.target.actor, epoch: self.epoch, sequence: self.sequence };
        self.sequence += 1;
        Trajectory { id, game: self.target.game.clone(), steps: episode.steps, outcome: episode.outcome }
    }

    fn report(&self) {
        let stats = self.writer.stats();
        metrics::unacknowledged(self.writer.unacknowledged());
        metrics::inserted(stats.inserted + stats.duplicates);
        metrics::refused(stats.refused);
    }

    async fn finish(
        mut self,
        mut left: Vec<Trajectory>,
        mut finished: mpsc::Receiver<FinishedEpisode>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + self.drain_timeout;
        // The threads end with their round; whoever waits in a full channel is freed by this.
        while let Ok(Some(episode)) = timeout_at(deadline, finished.recv()).await {
            left.push(self.identify(episode));
        }
        let mut unacknowledged = BTreeMap::new();
        for trajectory in left {
            if timeout_at(deadline, self.writer.insert(trajectory.clone())).await.is_err() {
                unacknowledged.insert(trajectory.id, trajectory);
            }
        }
        self.report();
        let remaining = deadline.saturating_duration_since(Instant::now());
        let in_flight = self.writer.close(remaining).await;
        let spooled = self.spooled.await.unwrap_or_else(|error| {
            tracing::error!(%error, "handing in the spool failed");
            self.home.read_spool().unwrap_or_default()
        });
        unacknowledged.extend(in_flight.into_iter().chain(spooled).map(|trajectory| (trajectory.id, trajectory)));
        let unacknowledged: Vec<_> = unacknowledged.into_values().collect();
        metrics::unacknowledged(unacknowledged.len());
        tracing::info!(
            trajectories = self.sequence,
            spooled = unacknowledged.len(),
            "handed in; what is spooled was not acknowledged and is sent again at the next start"
        );
        self.home.write_spool(&unacknowledged)
    }
}

/// Hands in what earlier epochs left, under their ids; returns what is not acknowledged when the drain fires.
async fn hand_in_spooled(
    target: Target,
    left: Vec<Trajectory>,
    home: Home,
    drain: Drain,
    drain_timeout: Duration,
) -> Vec<Trajectory> {
    if left.is_empty() {
        return left;
    }
    tracing::info!(trajectories = left.len(), "handing in what earlier starts left");
    let mut epochs = BTreeMap::<u64, Vec<Trajectory>>::new();
    for trajectory in left {
        if trajectory.game == target.game && trajectory.id.actor == target.actor {
            epochs.entry(trajectory.id.epoch).or_default().push(trajectory);
        } else {
            tracing::warn!(id = %trajectory.id, game = trajectory.game, "a spooled trajectory is not of this actor's game");
        }
    }
    let mut kept = Vec::new();
    for (epoch, trajectories) in epochs {
        kept.extend(hand_in_epoch(target.writer(epoch), trajectories, &drain, drain_timeout).await);
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
    let mut kept = BTreeMap::new();
    for trajectory in trajectories {
        tokio::select! {
            biased;
            () = drain.wait() => drop(kept.insert(trajectory.id, trajectory)),
            result = writer.insert(trajectory.clone()) => if let Err(error) = result {
                tracing::error!(%error, id = %trajectory.id, "a spooled trajectory cannot be sent and is dropped");
            },
        }
    }
    let mut looks = tokio::time::interval(REPORT_INTERVAL);
    while writer.unacknowledged() > 0 && !drain.started() {
        tokio::select! {
            () = drain.wait() => {}
            _ = looks.tick() => {}
        }
    }
    kept.extend(writer.close(drain_timeout).await.into_iter().map(|trajectory| (trajectory.id, trajectory)));
    kept.into_values().collect()
}
