//! Gives ids to finished episodes, sends them to a replay server, and keeps each episode until the server acknowledges
//! it.
//!
//! Trajectories that are unacknowledged when the process stops are spooled. The next start sends them under the same
//! ids to the same server, so that each trajectory counts once even after a lost acknowledgement. Spooled trajectories
//! use separate streams while self-play continues. Threads may stop late, or never: the spool is first written without
//! the last episodes of threads, and again after all threads have stopped.

use std::collections::BTreeMap;
use std::time::Duration;

use experience::{Trajectory, TrajectoryId};
use proto::replay::{Writer, WriterSettings};
use run_file::actor::Settings;
use selfplay::FinishedEpisode;
use service::Drain;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout_at};
use transport::servers::{Server, Servers, preferred};

use crate::metrics;
use crate::replay_router::{ReplayRouter, identify};
use crate::spool::{Destination, PendingUpload};
use crate::state_dir::ActorStateDir;
use crate::traces::Finished;

#[cfg(test)]
mod tests;

/// Interval at which writer counters are exported as metrics, and at which the server is chosen again.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Uploads the trajectories of this process to the replay servers.
pub(crate) struct Uploader {
    router: ReplayRouter,
    state_dir: ActorStateDir,
    /// Settings of all writers, except for the endpoint.
    writer: WriterSettings,
    drain_timeout: Duration,
    /// The task that uploads the spool of earlier epochs and returns the trajectories that are still unacknowledged.
    spooled: JoinHandle<Vec<PendingUpload>>,
}

impl Uploader {
    /// Starts the upload of the spool, and prepares the upload of new episodes. Must be called on a tokio runtime.
    pub(crate) fn start(
        settings: &Settings,
        servers: Servers,
        epoch: u64,
        state_dir: ActorStateDir,
        drain: &Drain,
    ) -> anyhow::Result<Self> {
        let writer = WriterSettings {
            // Each writer sets the endpoint of the server.
            endpoint: String::new(),
            actor: settings.actor.id,
            epoch,
            game: settings.game.to_string(),
            in_flight_max: settings.actor.unacknowledged_max,
        };
        let (left, drain_timeout) = (state_dir.read_spool()?, settings.drain);
        let spool = Spool { servers: servers.clone(), writer: writer.clone(), drain: drain.clone(), drain_timeout };
        Ok(Self {
            spooled: tokio::spawn(spool.upload(left, state_dir.clone())),
            router: ReplayRouter::new(servers, writer.clone(), state_dir.clone(), settings.replay_away_max),
            state_dir,
            writer,
            drain_timeout,
        })
    }

    /// Uploads episodes until the drain fires or the channel closes; then waits a little for the threads and for
    /// acknowledgements, and spools the rest.
    pub(crate) async fn run(mut self, mut finished: mpsc::Receiver<Finished>, drain: &Drain) -> anyhow::Result<()> {
        let given_up = upload(&mut self.router, &mut finished, drain).await;
        let Self { router, state_dir, writer, drain_timeout, spooled } = self;
        let (begin, mut left) = (Instant::now(), Vec::from_iter(given_up.map(|finished| finished.episode)));
        let deadline = begin + drain_timeout;
        // This also unblocks threads that wait for capacity in the channel.
        receive(&mut finished, begin + drain_timeout / 2, &mut left).await;
        metrics::uploads(&router.stats());
        let (late, trajectories) = router.close(left, deadline).await;
        let mut unacknowledged = spooled.await.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot upload the spool");
            state_dir.read_spool().unwrap_or_default()
        });
        unacknowledged.extend(late);
        // Written before the last threads have stopped, since the process may be killed while a thread hangs.
        state_dir.write_spool(&unacknowledged)?;
        let mut last = Vec::new();
        while let Some(Finished { episode, .. }) = finished.recv().await {
            last.push(episode);
        }
        let trajectories = trajectories + last.len() as u64;
        if !last.is_empty() {
            unacknowledged.extend(identify_all(&last, &writer, &state_dir)?);
            state_dir.write_spool(&unacknowledged)?;
        }
        metrics::unacknowledged(unacknowledged.len());
        tracing::info!(
            trajectories,
            spooled = unacknowledged.len(),
            "upload finished; unacknowledged trajectories are spooled and sent again at the next start"
        );
        Ok(())
    }
}

/// Receives episodes until the last thread has stopped, or the deadline has passed.
async fn receive(finished: &mut mpsc::Receiver<Finished>, deadline: Instant, episodes: &mut Vec<FinishedEpisode>) {
    while let Ok(Some(Finished { episode, .. })) = timeout_at(deadline, finished.recv()).await {
        episodes.push(episode);
    }
}

/// Gives ids under a separate epoch to episodes that were never sent to a server.
fn identify_all(
    episodes: &[FinishedEpisode],
    writer: &WriterSettings,
    state_dir: &ActorStateDir,
) -> anyhow::Result<Vec<PendingUpload>> {
    let epoch = state_dir.next_epoch(writer.epoch)?;
    let id = |sequence| TrajectoryId { actor: writer.actor, epoch, sequence };
    let trajectories =
        (0..).zip(episodes).filter_map(|(sequence, episode)| identify(episode, id(sequence), &writer.game));
    Ok(trajectories.map(|trajectory| PendingUpload { trajectory, to: None }).collect())
}

/// Uploads episodes until the drain fires or the channel closes; returns the episode that waits at that moment.
async fn upload(router: &mut ReplayRouter, finished: &mut mpsc::Receiver<Finished>, drain: &Drain) -> Option<Finished> {
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    let mut waiting = None;
    loop {
        tokio::select! {
            biased;
            () = drain.wait() => return waiting,
            _ = looks.tick() => {
                router.renew_taken_epochs().await;
                router.steer();
                metrics::uploads(&router.stats());
            }
            () = insert_waiting(router, waiting.as_ref()), if waiting.is_some() => waiting = None,
            episode = finished.recv(), if waiting.is_none() => waiting = Some(episode?),
        }
    }
}

async fn insert_waiting(router: &mut ReplayRouter, waiting: Option<&Finished>) {
    if let Some(Finished { episode, insert }) = waiting {
        router.insert(episode, insert.clone()).await;
    }
}

/// Uploads the spool of earlier epochs.
#[derive(Clone)]
struct Spool {
    servers: Servers,
    /// Settings of all writers, except for endpoint and epoch, which come from the trajectories.
    writer: WriterSettings,
    drain: Drain,
    drain_timeout: Duration,
}

impl Spool {
    /// Uploads each trajectory under the same id to the destination; returns trajectories that are unacknowledged
    /// `drain_timeout` after the drain fires.
    async fn upload(self, left: Vec<PendingUpload>, state_dir: ActorStateDir) -> Vec<PendingUpload> {
        if left.is_empty() {
            return left;
        }
        tracing::info!(trajectories = left.len(), "uploading the spool of earlier starts");
        let mut kept = Vec::new();
        let mut destinations = BTreeMap::<Option<Destination>, BTreeMap<u64, Vec<Trajectory>>>::new();
        for PendingUpload { trajectory, to } in left {
            let (id, game) = (trajectory.id(), trajectory.game());
            if game == self.writer.game && id.actor == self.writer.actor {
                destinations.entry(to).or_default().entry(id.epoch).or_default().push(trajectory);
            } else {
                tracing::warn!(%id, game, "spooled trajectory of another actor or game; keeping it in the spool");
                kept.push(PendingUpload { trajectory, to });
            }
        }
        let mut tasks = JoinSet::new();
        for (destination, epochs) in destinations {
            tasks.spawn(self.clone().upload_epochs(destination, epochs));
        }
        for left in tasks.join_all().await {
            kept.extend(left);
        }
        if kept.is_empty()
            && let Err(error) = state_dir.write_spool(&[])
        {
            let error = service::chain(&error);
            tracing::warn!(error, "cannot remove the uploaded spool; the next start sends it again, counted once");
        }
        kept
    }

    /// Uploads all trajectories destined for one server.
    async fn upload_epochs(
        mut self,
        mut destination: Option<Destination>,
        epochs: BTreeMap<u64, Vec<Trajectory>>,
    ) -> Vec<PendingUpload> {
        let mut kept = Vec::new();
        for (epoch, mut trajectories) in epochs {
            while !trajectories.is_empty() && !self.drain.started() {
                let Some(server) = self.find(destination.as_ref()).await else { break };
                let alone =
                    self.servers.current().len() == 1 && destination.is_none_or(|destination| destination.alone);
                destination = Some(Destination::new(&server, alone));
                trajectories = self.upload_epoch(&server, epoch, trajectories).await;
            }
            kept.extend(
                trajectories.into_iter().map(|trajectory| PendingUpload { trajectory, to: destination.clone() }),
            );
        }
        kept
    }

    /// Waits for the destination server; without a destination, for the server preferred by this actor. `None` if the
    /// drain fires first.
    async fn find(&mut self, destination: Option<&Destination>) -> Option<Server> {
        let mut warned = false;
        loop {
            let set = self.servers.current();
            let found = match destination {
                Some(destination) => destination.among(&set),
                None => preferred(&set, self.writer.actor).into_iter().next(),
            };
            if found.is_some() {
                return found;
            }
            if !std::mem::replace(&mut warned, true) {
                tracing::warn!(?destination, "waiting until the replay server for spooled trajectories is known");
            }
            self.drain.unless_started(self.servers.changed()).await?;
        }
    }

    /// Uploads until everything is acknowledged, the server address changes, or `drain_timeout` has passed since the
    /// drain fired. Returns the unacknowledged trajectories.
    async fn upload_epoch(&mut self, server: &Server, epoch: u64, trajectories: Vec<Trajectory>) -> Vec<Trajectory> {
        let endpoint = server.endpoint.to_string();
        let writer = Writer::start(WriterSettings { endpoint, epoch, ..self.writer.clone() });
        let (drain, drain_timeout, mut servers) = (self.drain.clone(), self.drain_timeout, self.servers.clone());
        let mut late = Vec::new();
        for trajectory in trajectories {
            let until = async {
                tokio::select! {
                    () = drain.wait() => {}
                    () = moved(&mut servers, server) => {}
                }
            };
            late.extend(insert(&writer, trajectory, until).await);
        }
        let deadline = async {
            let drained = async {
                drain.wait().await;
                sleep(drain_timeout).await;
            };
            tokio::select! {
                () = drained => {}
                () = moved(&mut servers, server) => {}
            }
        };
        let in_flight = writer.close_by(deadline).await;
        in_flight.into_iter().chain(late).collect()
    }
}

/// Waits until the address of a server changes.
async fn moved(servers: &mut Servers, server: &Server) {
    let is_elsewhere = |other: &Server| other.id == server.id && other.endpoint != server.endpoint;
    while !servers.current().iter().any(is_elsewhere) {
        servers.changed().await;
    }
}

/// Waits until the writer accepts a trajectory, at most until `deadline` resolves; returns the trajectory if it was not
/// accepted.
async fn insert(writer: &Writer, trajectory: Trajectory, deadline: impl Future<Output = ()>) -> Option<Trajectory> {
    tokio::select! {
        biased;
        taken = writer.insert(trajectory.clone()) => {
            if let Err(error) = taken {
                tracing::error!(%error, "cannot send a trajectory; dropping it");
            }
            None
        }
        () = deadline => Some(trajectory),
    }
}
