//! Routes trajectories to one of the replay servers. Each server that the actor has written to since it started has a
//! separate link, which is a writer with an epoch, so that no server receives an id that another server may have
//! stored.
//!
//! New trajectories go to the current link. The current link depends on the ranking of servers for this actor by
//! rendezvous hashing, and on which servers are reachable. All other links only finish their uploads. With one server
//! there is always one link.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use experience::{Invalid, Trajectory, TrajectoryId};
use proto::replay::{LinkState, Links, Route, Writer, WriterSettings, WriterStats};
use selfplay::FinishedEpisode;
use service::trace::Span;
use tokio::time::{Instant, sleep_until, timeout_at};
use transport::limits::SERVERS_MAX;
use transport::servers::{Server, Servers, preferred};

use crate::spool::{Destination, PendingUpload};
use crate::state_dir::ActorStateDir;

/// All links of this actor process.
pub(crate) struct ReplayRouter {
    servers: Servers,
    /// Settings of all writers, except for endpoint and epoch, which belong to the link.
    writer: WriterSettings,
    state_dir: ActorStateDir,
    /// Epoch of the first link; `None` once this link is open.
    first_epoch: Option<u64>,
    route: Route,
    /// Links by server id.
    links: BTreeMap<Arc<str>, ReplayLink>,
    /// True as long as there has been only one server.
    alone: bool,
    /// Counters summed over closed links.
    closed: WriterStats,
    /// Number of trajectories that have been given an id.
    numbered: u64,
    /// Number of trajectories that have no server, because no server was known.
    without_server: u64,
}

struct ReplayLink {
    server: Server,
    writer: Writer,
    /// Id of the next trajectory.
    next: TrajectoryId,
}

/// Counters over all links.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct RouterStats {
    /// Number of known servers.
    pub(crate) servers: usize,
    pub(crate) unacknowledged: usize,
    /// Counters summed over all links.
    pub(crate) written: WriterStats,
    /// Number of changes to another server.
    pub(crate) failovers: u64,
}

impl ReplayRouter {
    /// Creates a router with the epoch of `writer` for the first link; every other link has a new epoch. A server may
    /// be unreachable for `away_max` before the router uses another server. Must be called on a tokio runtime.
    pub(crate) fn new(servers: Servers, writer: WriterSettings, state_dir: ActorStateDir, away_max: Duration) -> Self {
        let first_epoch = Some(writer.epoch);
        let mut router = Self {
            servers,
            writer,
            state_dir,
            first_epoch,
            route: Route::new(away_max),
            links: BTreeMap::new(),
            alone: true,
            closed: WriterStats::default(),
            numbered: 0,
            without_server: 0,
        };
        router.steer();
        router
    }

    /// Chooses the current link from the known servers, by reachability.
    pub(crate) fn steer(&mut self) {
        let set = self.servers.current();
        self.alone &= set.len() <= 1;
        self.follow_addresses(&set);
        let mut route = self.route.clone();
        route.steer(&preferred(&set, self.writer.actor), self);
        self.route = route;
        self.close_settled(&set);
    }

    /// Updates the addresses of the links: a server at a new address remains the same server.
    fn follow_addresses(&mut self, set: &[Server]) {
        for server in set {
            if let Some(link) = self.links.get_mut(&server.id)
                && link.server != *server
            {
                link.writer.moved(&server.endpoint);
                link.server = server.clone();
            }
        }
    }

    fn next_epoch(&self, server: &Server, highest: u64) -> Option<u64> {
        let failed = |error: &anyhow::Error| {
            tracing::error!(error = service::chain(error), server = &*server.id, "cannot store a new epoch");
        };
        self.state_dir.next_epoch(highest).inspect_err(failed).ok()
    }

    fn link(&self, server: Server, epoch: u64) -> ReplayLink {
        let endpoint = server.endpoint.as_ref().to_owned();
        let next = TrajectoryId { actor: self.writer.actor, epoch, sequence: 0 };
        let writer = Writer::start_epoch(WriterSettings { endpoint, epoch, ..self.writer.clone() });
        ReplayLink { server, writer, next }
    }

    /// Gives a new epoch to each link with a taken epoch. An epoch is taken if the server has stored trajectories of
    /// this actor under that epoch or a later epoch. The link has sent no trajectory, so all trajectories get new ids.
    pub(crate) async fn renew_taken_epochs(&mut self) {
        let taken: Vec<_> = self.links.iter().filter(|(_, link)| link.writer.epoch_taken().is_some()).collect();
        for id in taken.into_iter().map(|(id, _)| Arc::clone(id)).collect::<Vec<_>>() {
            let Some(link) = self.links.remove(&id) else { continue };
            let link = self.renewed(link).await;
            self.links.insert(id, link);
        }
    }

    /// Returns the link with a new epoch if the epoch is taken. If no new epoch can be stored, returns the link
    /// unchanged for a later attempt.
    async fn renewed(&self, link: ReplayLink) -> ReplayLink {
        let Some(highest) = link.writer.epoch_taken() else { return link };
        let Some(epoch) = self.next_epoch(&link.server, highest) else { return link };
        let (server, taken) = (&*link.server.id, link.next.epoch);
        tracing::warn!(server, taken, highest, epoch, "the replay server has stored a higher epoch of this actor");
        let mut fresh = self.link(link.server, epoch);
        for trajectory in link.writer.close(Duration::ZERO).await {
            // The new writer has capacity, since the limits are equal.
            let trajectory = trajectory.with_id(fresh.next);
            if let Err(error) = fresh.writer.insert(trajectory).await {
                tracing::error!(%error, "cannot send a trajectory; dropping it");
            }
            fresh.next.sequence += 1;
        }
        fresh
    }

    /// Closes links to removed servers, once no trajectory of the link is unacknowledged.
    fn close_settled(&mut self, set: &[Server]) {
        let (current, closed) = (self.route.current(), &mut self.closed);
        self.links.retain(|id, link| {
            let is_used = current == Some(id) || set.iter().any(|server| server.id == *id);
            let stays = is_used || link.writer.unacknowledged() > 0;
            if !stays {
                add(closed, link.writer.stats());
            }
            stays
        });
    }

    /// Inserts an episode into the current server; waits while no server is known, or while the server blocks inserts.
    /// Cancel-safe: after a cancellation, the episode may be inserted into another server. `span` is the span of the
    /// insert.
    pub(crate) async fn insert(&mut self, episode: &FinishedEpisode, mut span: Option<Span>) {
        let game = &self.writer.game;
        let Some(link) = self.route.current().and_then(|id| self.links.get_mut(id)) else { return pending().await };
        if let Some(span) = &mut span {
            span.set("trajectory", link.next.to_string().as_str());
        }
        let Some(trajectory) = identify(episode, link.next, game) else { return };
        let taken = link.writer.insert_traced(trajectory, span).await;
        link.next.sequence += 1;
        self.numbered += 1;
        if let Err(error) = taken {
            tracing::error!(%error, "cannot send a trajectory; dropping it");
        }
    }

    pub(crate) fn stats(&self) -> RouterStats {
        let mut written = self.closed;
        self.links.values().for_each(|link| add(&mut written, link.writer.stats()));
        RouterStats {
            servers: self.servers.current().len(),
            unacknowledged: self.links.values().map(|link| link.writer.unacknowledged()).sum(),
            written,
            failovers: self.route.failovers(),
        }
    }

    /// Inserts `rest` into the current server and waits for acknowledgements until `deadline`. Returns the pending
    /// trajectories in order, and the number of all trajectories.
    pub(crate) async fn close(mut self, rest: Vec<FinishedEpisode>, deadline: Instant) -> (Vec<PendingUpload>, u64) {
        let mut late = Vec::new();
        for episode in &rest {
            let given = tokio::select! {
                biased;
                () = self.insert(episode, None) => true,
                () = sleep_until(deadline) => false,
            };
            if !given {
                late.extend(self.owe(episode));
            }
        }
        let (alone, mut pending) = (self.alone, Vec::new());
        for (_, link) in std::mem::take(&mut self.links) {
            // The server may report a taken epoch only now; remaining trajectories must not be spooled under a taken
            // epoch.
            let _ = timeout_at(deadline, link.writer.settled()).await;
            let ReplayLink { server, writer, .. } = self.renewed(link).await;
            // The other writers continue meanwhile, each in a separate task.
            let left = writer.close_by(sleep_until(deadline)).await;
            let to = Some(Destination::new(&server, alone));
            pending.extend(left.into_iter().map(|trajectory| PendingUpload { trajectory, to: to.clone() }));
        }
        pending.extend(late);
        pending.sort_by_key(|pending| pending.trajectory.id());
        (pending, self.numbered)
    }

    /// Gives an id to an episode that no server accepted, even if no server is known.
    fn owe(&mut self, episode: &FinishedEpisode) -> Option<PendingUpload> {
        self.numbered += 1;
        let alone = self.alone;
        if let Some(link) = self.route.current().and_then(|id| self.links.get_mut(id)) {
            let trajectory = identify(episode, link.next, &self.writer.game)?;
            link.next.sequence += 1;
            return Some(PendingUpload { trajectory, to: Some(Destination::new(&link.server, alone)) });
        }
        let WriterSettings { actor, epoch, game, .. } = &self.writer;
        let id = TrajectoryId { actor: *actor, epoch: *epoch, sequence: self.without_server };
        self.without_server += 1;
        Some(PendingUpload { trajectory: identify(episode, id, game)?, to: None })
    }
}

impl Links for ReplayRouter {
    fn open(&mut self, server: &Server) {
        if self.links.contains_key(&server.id) || self.links.len() >= SERVERS_MAX {
            return;
        }
        let Some(epoch) = self.first_epoch.take().or_else(|| self.next_epoch(server, 0)) else { return };
        self.links.insert(Arc::clone(&server.id), self.link(server.clone(), epoch));
    }

    fn state(&self, server: &Server) -> LinkState {
        let Some(link) = self.links.get(&server.id) else { return LinkState::Missing };
        link.writer.away_for().map_or(LinkState::Works, LinkState::Away)
    }
}

/// Converts an episode to a trajectory; logs an error and returns `None` if self-play has produced an invalid
/// episode.
pub(crate) fn identify(episode: &FinishedEpisode, id: TrajectoryId, game: &str) -> Option<Trajectory> {
    let invalid = |fault: &Invalid| tracing::error!(%id, %fault, "episode is not a valid trajectory; dropping it");
    episode.trajectory(id, game).inspect_err(invalid).ok()
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
