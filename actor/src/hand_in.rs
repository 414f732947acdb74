//! Finished episodes become trajectories with ids and go to a replay server until it has acknowledged them.
//!
//! What is not acknowledged when the process ends is spooled, and handed in by the next start under its old id to the
//! server that it is owed to, so that it counts once whatever happened to the acknowledgement. It has streams of its own,
//! and a server holds it up as long as it holds up anything: self-play goes on beside it.

use std::collections::BTreeMap;
use std::time::Duration;

use experience::Trajectory;
use proto::replay::{Writer, WriterSettings};
use proto::servers::{Server, Servers, preferred};
use service::Drain;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::config::Settings;
use crate::home::Home;
use crate::lanes::Lanes;
use crate::metrics;
use crate::spool::{Owed, Owner};
use crate::traces::Finished;

#[cfg(test)]
mod tests;

/// How often the counts of writers are copied to the metrics, and the choice of the server is looked at again.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The way of this start's trajectories to the replay servers.
pub(crate) struct HandIn {
    lanes: Lanes,
    home: Home,
    drain_timeout: Duration,
    /// Hands in what earlier epochs left, and returns what it could not.
    spooled: JoinHandle<Vec<Owed>>,
}

impl HandIn {
    /// Must be called on a runtime.
    pub(crate) fn start(
        settings: &Settings,
        servers: Servers,
        epoch: u64,
        home: Home,
        drain: &Drain,
    ) -> anyhow::Result<Self> {
        let writer = WriterSettings {
            // Each writer has that of its server.
            endpoint: String::new(),
            actor: settings.actor.id,
            epoch,
            game: settings.game.to_string(),
            in_flight_max: settings.actor.unacknowledged_max,
        };
        let (left, drain_timeout) = (home.read_spool()?, settings.drain);
        let spool = Spool { servers: servers.clone(), writer: writer.clone(), drain: drain.clone(), drain_timeout };
        Ok(Self {
            spooled: tokio::spawn(spool.hand_in(left, home.clone())),
            lanes: Lanes::new(servers, writer, home.clone(), settings.replay_away_max),
            home,
            drain_timeout,
        })
    }

    /// Hands in what comes until the drain fires, or nothing more can come; then finishes: waits a little for
    /// acknowledgements and spools the rest.
    pub(crate) async fn run(mut self, mut finished: mpsc::Receiver<Finished>, drain: &Drain) -> anyhow::Result<()> {
        let given_up = hand_in(&mut self.lanes, &mut finished, drain).await;
        self.finish(given_up, finished).await
    }

    async fn finish(self, given_up: Option<Finished>, mut finished: mpsc::Receiver<Finished>) -> anyhow::Result<()> {
        let Self { lanes, home, drain_timeout, spooled } = self;
        let deadline = Instant::now() + drain_timeout;
        let mut left: Vec<_> = given_up.into_iter().map(|finished| finished.episode).collect();
        // Until the last thread has ended, however long its round takes: what it finished is not to be lost. Whoever
        // waits in a full channel is freed by this.
        while let Some(Finished { episode, .. }) = finished.recv().await {
            left.push(episode);
        }
        report(&lanes);
        let (late, trajectories) = lanes.close(left, deadline).await;
        let mut unacknowledged = spooled.await.unwrap_or_else(|error| {
            tracing::error!(%error, "handing in the spool failed");
            home.read_spool().unwrap_or_default()
        });
        unacknowledged.extend(late);
        metrics::unacknowledged(unacknowledged.len());
        tracing::info!(
            trajectories,
            spooled = unacknowledged.len(),
            "handed in; what is spooled was not acknowledged and is sent again at the next start"
        );
        home.write_spool(&unacknowledged)
    }
}

/// Hands in what comes until the drain fires, or nothing more can come; the episode that waited at that moment.
async fn hand_in(lanes: &mut Lanes, finished: &mut mpsc::Receiver<Finished>, drain: &Drain) -> Option<Finished> {
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    let mut waiting = None;
    loop {
        tokio::select! {
            biased;
            () = drain.wait() => return waiting,
            _ = looks.tick() => {
                lanes.renew_taken_epochs().await;
                lanes.steer();
                report(lanes);
            }
            () = insert_waiting(lanes, waiting.as_ref()), if waiting.is_some() => waiting = None,
            episode = finished.recv(), if waiting.is_none() => waiting = Some(episode?),
        }
    }
}

async fn insert_waiting(lanes: &mut Lanes, waiting: Option<&Finished>) {
    if let Some(Finished { episode, insert }) = waiting {
        lanes.insert_traced(episode, insert.clone()).await;
    }
}

fn report(lanes: &Lanes) {
    let stats = lanes.stats();
    metrics::unacknowledged(stats.unacknowledged);
    metrics::inserted(stats.acknowledged);
    metrics::id_collisions(stats.collisions);
    metrics::refused(stats.refused);
    metrics::stale(stats.stale);
    metrics::replay_servers(lanes.servers(), stats.moves);
}

/// What earlier epochs left, on its way.
#[derive(Clone)]
struct Spool {
    servers: Servers,
    /// Endpoint and epoch of a writer are those of what it writes.
    writer: WriterSettings,
    drain: Drain,
    drain_timeout: Duration,
}

impl Spool {
    /// Hands it in under its ids, each to whom it is owed; returns what is not acknowledged a while after the drain fires.
    async fn hand_in(self, left: Vec<Owed>, home: Home) -> Vec<Owed> {
        if left.is_empty() {
            return left;
        }
        tracing::info!(trajectories = left.len(), "handing in what earlier starts left");
        let mut kept = Vec::new();
        let mut owners = BTreeMap::<Option<Owner>, BTreeMap<u64, Vec<Trajectory>>>::new();
        for Owed { trajectory, to } in left {
            let (id, game) = (trajectory.id(), trajectory.game());
            if game == self.writer.game && id.actor == self.writer.actor {
                owners.entry(to).or_default().entry(id.epoch).or_default().push(trajectory);
            } else {
                tracing::warn!(%id, game, "a spooled trajectory is of another actor or game and stays in the spool");
                kept.push(Owed { trajectory, to });
            }
        }
        let mut tasks = JoinSet::new();
        for (owner, epochs) in owners {
            tasks.spawn(self.clone().hand_in_epochs(owner, epochs));
        }
        for left in tasks.join_all().await {
            kept.extend(left);
        }
        if kept.is_empty()
            && let Err(error) = home.write_spool(&[])
        {
            let error = service::chain(&error);
            tracing::warn!(error, "the spool is handed in but cannot be removed; it will be sent again and count once");
        }
        kept
    }

    /// All that is owed to one server.
    async fn hand_in_epochs(mut self, mut owner: Option<Owner>, epochs: BTreeMap<u64, Vec<Trajectory>>) -> Vec<Owed> {
        let mut kept = Vec::new();
        for (epoch, mut trajectories) in epochs {
            while !trajectories.is_empty() && !self.drain.started() {
                let Some(server) = self.find(owner.as_ref()).await else { break };
                let alone = self.servers.current().len() == 1 && owner.is_none_or(|owner| owner.is_alone());
                owner = Some(Owner::new(&server, alone));
                trajectories = self.hand_in_epoch(&server, epoch, trajectories).await;
            }
            kept.extend(trajectories.into_iter().map(|trajectory| Owed { trajectory, to: owner.clone() }));
        }
        kept
    }

    /// The server that something is owed to, once it is there; whichever this actor prefers, if it is owed to nobody.
    /// `None` if the drain fires first.
    async fn find(&mut self, owner: Option<&Owner>) -> Option<Server> {
        let mut told = false;
        loop {
            let set = self.servers.current();
            let found = match owner {
                Some(owner) => owner.among(&set),
                None => preferred(&set, self.writer.actor).into_iter().next(),
            };
            if found.is_some() {
                return found;
            }
            if !std::mem::replace(&mut told, true) {
                tracing::warn!(?owner, "the replay server that spooled trajectories are owed to is not there");
            }
            tokio::select! {
                () = self.drain.wait() => return None,
                () = self.servers.changed() => {}
            }
        }
    }

    /// Until all is acknowledged, the server has another address, or a while after the drain has fired; what is left.
    async fn hand_in_epoch(&mut self, server: &Server, epoch: u64, trajectories: Vec<Trajectory>) -> Vec<Trajectory> {
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

/// Waits until a server is known by another address.
async fn moved(servers: &mut Servers, server: &Server) {
    let is_elsewhere = |other: &Server| other.id == server.id && other.endpoint != server.endpoint;
    while !servers.current().iter().any(is_elsewhere) {
        servers.changed().await;
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
