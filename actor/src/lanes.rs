//! The ways to the replay servers: a writer for each server that this start of the actor has written to, and an epoch for
//! each writer, so that no server ever sees an id that another one may have stored.
//!
//! One of them is current: what is finished goes there. Which it is follows from the order in which rendezvous hashing
//! ranks the servers for this actor, and from which of them are away. The others only bring to an end what they were
//! given. With one server there is one lane, whatever happens to the server.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use experience::{Invalid, Trajectory, TrajectoryId};
use proto::limits::SERVERS_MAX;
use proto::replay::{Writer, WriterSettings, WriterStats};
use proto::servers::{Server, Servers, preferred};
use selfplay::FinishedEpisode;
use service::trace::Span;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::home::Home;
use crate::spool::{Owed, Owner};

/// All lanes of this start of the actor.
pub(crate) struct Lanes {
    servers: Servers,
    /// Endpoint and epoch of a writer are those of its lane.
    writer: WriterSettings,
    home: Home,
    /// Until the first lane takes it.
    first_epoch: Option<u64>,
    away_max: Duration,
    /// By the id of the server.
    lanes: BTreeMap<Arc<str>, Lane>,
    current: Option<Arc<str>>,
    /// There never was more than one server.
    alone: bool,
    /// What lanes did that are closed.
    closed: WriterStats,
    moves: u64,
    /// How many trajectories have an id.
    numbered: u64,
    /// How many of them for no server, because none was known.
    for_nobody: u64,
}

struct Lane {
    server: Server,
    writer: Writer,
    /// The id of the next trajectory.
    next: TrajectoryId,
}

/// What all lanes did.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct LaneStats {
    pub(crate) unacknowledged: usize,
    pub(crate) acknowledged: u64,
    /// Lost, because the server held another trajectory under the id.
    pub(crate) collisions: u64,
    /// Given to a server that had no use for weights so far behind.
    pub(crate) stale: u64,
    pub(crate) refused: u64,
    /// How often another server was taken.
    pub(crate) moves: u64,
}

impl Lanes {
    /// The first lane has the epoch of `writer`, each other one a new one. A server may be away for `away_max` before
    /// another is taken. Must be called on a runtime.
    pub(crate) fn new(servers: Servers, writer: WriterSettings, home: Home, away_max: Duration) -> Self {
        let first_epoch = Some(writer.epoch);
        let mut lanes = Self {
            servers,
            writer,
            home,
            first_epoch,
            away_max,
            lanes: BTreeMap::new(),
            current: None,
            alone: true,
            closed: WriterStats::default(),
            moves: 0,
            numbered: 0,
            for_nobody: 0,
        };
        lanes.steer();
        lanes
    }

    /// Goes by the servers that there are now, and by which of them are away.
    pub(crate) fn steer(&mut self) {
        let set = self.servers.current();
        self.alone &= set.len() <= 1;
        self.follow_addresses(&set);
        let ranked = preferred(&set, self.writer.actor);
        let reached = self.first_reached(&ranked);
        let stays = self.current.clone().filter(|id| set.is_empty() || set.iter().any(|server| server.id == *id));
        let first = || ranked.iter().map(|server| Arc::clone(&server.id)).find(|id| self.lanes.contains_key(id));
        let next = reached.or(stays).or_else(first).or_else(|| self.current.clone());
        if next != self.current {
            self.take(next);
        }
        self.close_settled(&set);
    }

    /// A server that has another address is the same one.
    fn follow_addresses(&mut self, set: &[Server]) {
        for server in set {
            if let Some(lane) = self.lanes.get_mut(&server.id)
                && lane.server != *server
            {
                lane.writer.moved(&server.endpoint);
                lane.server = server.clone();
            }
        }
    }

    /// The most preferred server that takes trajectories. One that may be on its way is waited for: nobody further down
    /// is asked before it has been away for too long.
    fn first_reached(&mut self, ranked: &[Server]) -> Option<Arc<str>> {
        let away_max = self.away_max;
        for server in ranked {
            match self.lane(server)?.writer.away_for() {
                None => return Some(Arc::clone(&server.id)),
                Some(away) if away < away_max => return None,
                Some(_) => {}
            }
        }
        None
    }

    /// The lane to a server, which is opened if need be and if there may be another.
    fn lane(&mut self, server: &Server) -> Option<&Lane> {
        if !self.lanes.contains_key(&server.id) {
            let lane = self.open(server)?;
            self.lanes.insert(Arc::clone(&server.id), lane);
        }
        self.lanes.get(&server.id)
    }

    fn open(&mut self, server: &Server) -> Option<Lane> {
        if self.lanes.len() >= SERVERS_MAX {
            return None;
        }
        let epoch = match self.first_epoch.take() {
            Some(epoch) => epoch,
            None => self.next_epoch(server, 0)?,
        };
        Some(self.open_with(server.clone(), epoch))
    }

    fn next_epoch(&self, server: &Server, highest: u64) -> Option<u64> {
        let failed = |error: &anyhow::Error| {
            tracing::error!(error = service::chain(error), server = &*server.id, "no new epoch for a replay server");
        };
        self.home.next_epoch(highest).inspect_err(failed).ok()
    }

    fn open_with(&self, server: Server, epoch: u64) -> Lane {
        let endpoint = server.endpoint.as_ref().to_owned();
        let next = TrajectoryId { actor: self.writer.actor, epoch, sequence: 0 };
        let writer = Writer::start_epoch(WriterSettings { endpoint, epoch, ..self.writer.clone() });
        Lane { server, writer, next }
    }

    /// Gives a new epoch to each lane whose server has stored trajectories under its own one, or a later one: what the lane
    /// holds was never sent, and goes out under new ids.
    pub(crate) async fn renew_taken_epochs(&mut self) {
        let taken: Vec<_> = self.lanes.iter().filter(|(_, lane)| lane.writer.epoch_taken().is_some()).collect();
        for id in taken.into_iter().map(|(id, _)| Arc::clone(id)).collect::<Vec<_>>() {
            let Some(lane) = self.lanes.remove(&id) else { continue };
            let lane = self.renewed(lane).await;
            self.lanes.insert(id, lane);
        }
    }

    /// The lane under another epoch; unchanged where there is none, and then tried again.
    async fn renewed(&self, lane: Lane) -> Lane {
        let Some(highest) = lane.writer.epoch_taken() else { return lane };
        let Some(epoch) = self.next_epoch(&lane.server, highest) else { return lane };
        let (server, taken) = (&*lane.server.id, lane.next.epoch);
        tracing::warn!(server, taken, highest, epoch, "the replay server has stored a higher epoch of this actor");
        let mut fresh = self.open_with(lane.server, epoch);
        for trajectory in lane.writer.close(Duration::ZERO).await {
            // There is room: it held no more than the new one may.
            let trajectory = trajectory.with_id(fresh.next);
            if let Err(error) = fresh.writer.insert(trajectory).await {
                tracing::error!(%error, "a trajectory cannot be sent and is dropped");
            }
            fresh.next.sequence += 1;
        }
        fresh
    }

    fn take(&mut self, next: Option<Arc<str>>) {
        if let (Some(from), Some(to)) = (&self.current, &next) {
            self.moves += 1;
            tracing::info!(from = &**from, to = &**to, "trajectories go to another replay server from now on");
        }
        self.current = next;
    }

    /// Lanes to servers that are gone, once nothing is owed to them.
    fn close_settled(&mut self, set: &[Server]) {
        let (current, closed) = (&self.current, &mut self.closed);
        self.lanes.retain(|id, lane| {
            let is_used = current.as_ref() == Some(id) || set.iter().any(|server| server.id == *id);
            let stays = is_used || lane.writer.unacknowledged() > 0;
            if !stays {
                add(closed, lane.writer.stats());
            }
            stays
        });
    }

    /// Gives an episode to the current server; waits for as long as there is none, or it takes no more. Cancel-safe: the
    /// episode may then be given to another one.
    pub(crate) async fn insert(&mut self, episode: &FinishedEpisode) {
        self.insert_traced(episode, None).await;
    }

    /// [`insert`](Self::insert) as part of a trace.
    pub(crate) async fn insert_traced(&mut self, episode: &FinishedEpisode, mut span: Option<Span>) {
        let game = &self.writer.game;
        let Some(lane) = self.current.as_ref().and_then(|id| self.lanes.get_mut(id)) else { return pending().await };
        if let Some(span) = &mut span {
            span.set("trajectory", lane.next.to_string().as_str());
        }
        let Some(trajectory) = identify(episode, lane.next, game) else { return };
        let taken = lane.writer.insert_traced(trajectory, span).await;
        lane.next.sequence += 1;
        self.numbered += 1;
        if let Err(error) = taken {
            tracing::error!(%error, "a trajectory cannot be sent and is dropped");
        }
    }

    pub(crate) fn stats(&self) -> LaneStats {
        let mut sum = self.closed;
        self.lanes.values().for_each(|lane| add(&mut sum, lane.writer.stats()));
        LaneStats {
            unacknowledged: self.lanes.values().map(|lane| lane.writer.unacknowledged()).sum(),
            acknowledged: sum.inserted + sum.duplicates,
            collisions: sum.collisions,
            stale: sum.stale,
            refused: sum.refused,
            moves: self.moves,
        }
    }

    /// How many servers there are.
    pub(crate) fn servers(&self) -> usize {
        self.servers.current().len()
    }

    /// Gives the rest to the current server, waits for acknowledgements until `deadline`, and returns in order what is
    /// owed then, with how many trajectories there were.
    pub(crate) async fn close(mut self, rest: Vec<FinishedEpisode>, deadline: Instant) -> (Vec<Owed>, u64) {
        let mut late = Vec::new();
        for episode in &rest {
            let given = tokio::select! {
                biased;
                () = self.insert(episode) => true,
                () = sleep_until(deadline) => false,
            };
            if !given {
                late.extend(self.owe(episode));
            }
        }
        let (alone, mut owed) = (self.alone, Vec::new());
        for (_, lane) in std::mem::take(&mut self.lanes) {
            // An epoch may turn out to be taken only now; what is left must not be spooled under it.
            let _ = timeout_at(deadline, lane.writer.settled()).await;
            let Lane { server, writer, .. } = self.renewed(lane).await;
            // The others go on meanwhile, each in its own task.
            let left = writer.close_by(sleep_until(deadline)).await;
            let to = Some(Owner::new(&server, alone));
            owed.extend(left.into_iter().map(|trajectory| Owed { trajectory, to: to.clone() }));
        }
        owed.extend(late);
        owed.sort_by_key(|owed| owed.trajectory.id());
        (owed, self.numbered)
    }

    /// An episode that nobody took; without a server it has an id all the same.
    fn owe(&mut self, episode: &FinishedEpisode) -> Option<Owed> {
        self.numbered += 1;
        let alone = self.alone;
        if let Some(lane) = self.current.as_ref().and_then(|id| self.lanes.get_mut(id)) {
            let trajectory = identify(episode, lane.next, &self.writer.game)?;
            lane.next.sequence += 1;
            return Some(Owed { trajectory, to: Some(Owner::new(&lane.server, alone)) });
        }
        let WriterSettings { actor, epoch, game, .. } = &self.writer;
        let id = TrajectoryId { actor: *actor, epoch: *epoch, sequence: self.for_nobody };
        self.for_nobody += 1;
        Some(Owed { trajectory: identify(episode, id, game)?, to: None })
    }
}

/// The trajectory of an episode; `None`, and an error for a person to look at, if self-play has made an invalid one.
fn identify(episode: &FinishedEpisode, id: TrajectoryId, game: &str) -> Option<Trajectory> {
    let FinishedEpisode { steps, outcome, .. } = episode;
    let invalid = |fault: &Invalid| tracing::error!(%id, %fault, "an episode is no valid trajectory and is dropped");
    Trajectory::of(id, game, steps, *outcome).inspect_err(invalid).ok()
}

fn add(sum: &mut WriterStats, more: WriterStats) {
    let WriterStats { inserted, duplicates, collisions, stale, refused, broken_streams } = more;
    sum.inserted += inserted;
    sum.duplicates += duplicates;
    sum.collisions += collisions;
    sum.stale += stale;
    sum.refused += refused;
    sum.broken_streams += broken_streams;
}

#[cfg(test)]
mod tests;
