//! Tracks live and lost actors with one lease per actor, which every message renews.
//!
//! An actor sends a message every heartbeat. An actor that misses three in a row is lost: the loss is logged and
//! counted once, and the next message makes the actor live again. An actor is removed without a log entry after a
//! goodbye on all streams. [`Leases`], and [`Actors`], which shares them between streams, take the time as an
//! argument. Each stream holds a `Lease`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proto::limits::ACTORS_MAX;
use proto::replay::{Actor, ActorState, Actors as ActorList};

#[cfg(test)]
mod tests;

/// Number of consecutive heartbeats that an actor may miss.
pub const MISSED_MAX: u32 = 3;

/// Time for which a lost actor stays listed, because an operator may look for the actor, or the actor may reconnect.
pub const LOST_KEPT: Duration = Duration::from_secs(600);

/// The leases of all actors.
#[derive(Debug)]
pub struct Leases {
    heartbeat: Duration,
    credit: u32,
    entries: BTreeMap<u64, Entry>,
    next_stream: u64,
    lost_total: u64,
    swept: Option<Instant>,
}

/// The lease of one actor, shared by all streams of the actor.
#[derive(Debug)]
struct Entry {
    epoch: u64,
    address: String,
    since: Instant,
    renewed: Instant,
    is_lost: bool,
    /// True after a stream has closed without a goodbye, until the next stream opens.
    broke: bool,
    weights_version: Option<u64>,
    trajectories: u64,
    streams: BTreeMap<u64, Stream>,
}

#[derive(Debug, Default)]
struct Stream {
    goodbye_received: bool,
    unanswered: u32,
}

/// One stream of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamId {
    actor: u64,
    stream: u64,
}

/// The state of an actor before a message renewed the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// The lease had not expired.
    Live,
    /// The actor was lost.
    Lost,
}

impl Leases {
    /// Creates empty leases for actors that send a message every `heartbeat` and may have `credit` unanswered
    /// trajectories per stream.
    pub fn new(heartbeat: Duration, credit: u32) -> Self {
        Self { heartbeat, credit, entries: BTreeMap::new(), next_stream: 0, lost_total: 0, swept: None }
    }

    /// Adds a stream of an actor. In a full list, the actor replaces the actor that has been lost for longest; if
    /// none is lost, the new actor is served but not listed.
    pub fn open(&mut self, actor: u64, epoch: u64, address: String, now: Instant) -> (StreamId, Before) {
        let stream = self.next_stream;
        self.next_stream += 1;
        let id = StreamId { actor, stream };
        if !self.entries.contains_key(&actor) && !self.has_room() {
            return (id, Before::Live);
        }
        let entry = self.entries.entry(actor).or_insert_with(|| Entry {
            epoch,
            address: String::new(),
            since: now,
            renewed: now,
            is_lost: false,
            broke: false,
            weights_version: None,
            trajectories: 0,
            streams: BTreeMap::new(),
        });
        if epoch > entry.epoch {
            (entry.epoch, entry.since) = (epoch, now);
        }
        (entry.address, entry.broke) = (address, false);
        entry.streams.insert(stream, Stream::default());
        (id, entry.renew(now))
    }

    /// Renews the lease after a message from the actor, or while this server prevents messages.
    pub fn renew(&mut self, id: StreamId, now: Instant) -> Before {
        self.entries.get_mut(&id.actor).map_or(Before::Live, |entry| entry.renew(now))
    }

    /// Records the arrival of a trajectory, unanswered until [`answered`](Self::answered). `weights_version` played
    /// the last step.
    pub fn arrived(&mut self, id: StreamId, weights_version: Option<u64>) {
        let Some(entry) = self.entries.get_mut(&id.actor) else { return };
        entry.weights_version = weights_version.or(entry.weights_version);
        if let Some(stream) = entry.streams.get_mut(&id.stream) {
            stream.unanswered += 1;
        }
    }

    /// Records the reply to a trajectory; `stored` is 1 if the trajectory is new and durable, else 0.
    pub fn answered(&mut self, id: StreamId, stored: u64) {
        let Some(entry) = self.entries.get_mut(&id.actor) else { return };
        entry.trajectories += stored;
        if let Some(stream) = entry.streams.get_mut(&id.stream) {
            stream.unanswered = stream.unanswered.saturating_sub(1);
        }
    }

    /// Records a goodbye: the actor closes the stream after all replies.
    pub fn goodbye(&mut self, id: StreamId) {
        let stream = self.entries.get_mut(&id.actor).and_then(|entry| entry.streams.get_mut(&id.stream));
        if let Some(stream) = stream {
            stream.goodbye_received = true;
        }
    }

    /// Records that either side closed a stream. An actor is removed after goodbyes on all streams; any other actor
    /// may reconnect until the lease expires.
    pub fn closed(&mut self, id: StreamId) {
        let Some(entry) = self.entries.get_mut(&id.actor) else { return };
        let Some(stream) = entry.streams.remove(&id.stream) else { return };
        entry.broke |= !stream.goodbye_received;
        if entry.streams.is_empty() && !entry.broke && !entry.is_lost {
            self.entries.remove(&id.actor);
        }
    }

    /// Returns the actors with a lease that expired since the last sweep, in the last known state, and removes actors
    /// lost for longer than [`LOST_KEPT`]. If more than a heartbeat has passed since the previous sweep, the server was
    /// stalled, and no actor counts as lost because of this time.
    pub fn sweep(&mut self, now: Instant) -> Vec<Actor> {
        let swept = self.swept.replace(now);
        if swept.is_some_and(|swept| now.saturating_duration_since(swept) > self.heartbeat) {
            self.entries.values_mut().filter(|entry| !entry.is_lost).for_each(|entry| entry.renewed = now);
            return Vec::new();
        }
        let (silence_max, credit) = (self.heartbeat * MISSED_MAX, self.credit);
        self.entries.retain(|_, entry| !entry.is_lost || entry.silent(now) <= LOST_KEPT);
        let mut lost = Vec::new();
        for (&actor, entry) in &mut self.entries {
            if entry.state() == ActorState::Live && entry.silent(now) > silence_max {
                entry.is_lost = true;
                lost.push(entry.listed(actor, credit, now));
            }
        }
        self.lost_total += lost.len() as u64;
        lost
    }

    /// Returns the number of actors in each state.
    pub fn counts(&self) -> impl Iterator<Item = (ActorState, usize)> + '_ {
        let count = |state| self.entries.values().filter(|entry| entry.state() == state).count();
        [ActorState::Live, ActorState::Draining, ActorState::Lost].into_iter().map(move |state| (state, count(state)))
    }

    /// Returns the total number of losses.
    pub fn lost_total(&self) -> u64 {
        self.lost_total
    }

    /// Returns the list of actors, with the total of losses and the heartbeat interval.
    pub fn list(&self, now: Instant) -> ActorList {
        let actors = self.entries.iter().map(|(&actor, entry)| entry.listed(actor, self.credit, now)).collect();
        let heartbeat_ms = u32::try_from(self.heartbeat.as_millis()).unwrap_or(u32::MAX);
        ActorList { actors, lost_total: self.lost_total, heartbeat_ms }
    }

    /// Returns true if another actor may be listed; removes a lost actor if necessary.
    fn has_room(&mut self) -> bool {
        if self.entries.len() < ACTORS_MAX {
            return true;
        }
        let lost = self.entries.iter().filter(|(_, entry)| entry.is_lost && entry.streams.is_empty());
        let first = lost.min_by_key(|(_, entry)| entry.renewed).map(|(&actor, _)| actor);
        first.is_some_and(|actor| self.entries.remove(&actor).is_some())
    }
}

impl Entry {
    fn renew(&mut self, now: Instant) -> Before {
        self.renewed = now;
        if std::mem::replace(&mut self.is_lost, false) { Before::Lost } else { Before::Live }
    }

    fn silent(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.renewed)
    }

    fn state(&self) -> ActorState {
        let drains =
            !self.broke && !self.streams.is_empty() && self.streams.values().all(|stream| stream.goodbye_received);
        match (self.is_lost, drains) {
            (true, _) => ActorState::Lost,
            (false, true) => ActorState::Draining,
            (false, false) => ActorState::Live,
        }
    }

    fn listed(&self, actor: u64, credit: u32, now: Instant) -> Actor {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let unanswered = self.streams.values().map(|stream| stream.unanswered).sum();
        Actor {
            actor,
            epoch: self.epoch,
            state: self.state().into(),
            address: self.address.clone(),
            since_ms: milliseconds(now.saturating_duration_since(self.since)),
            silent_ms: milliseconds(self.silent(now)),
            weights_version: self.weights_version,
            trajectories: self.trajectories,
            unanswered,
            credit,
        }
    }
}

/// The leases of a server, shared by all streams.
#[derive(Debug, Clone)]
pub struct Actors {
    leases: Arc<Mutex<Leases>>,
}

impl Actors {
    /// Creates empty shared leases; see [`Leases::new`].
    pub fn new(heartbeat: Duration, credit: u32) -> Self {
        Self { leases: Arc::new(Mutex::new(Leases::new(heartbeat, credit))) }
    }

    /// Opens a stream of an actor; logs the return of a lost actor.
    pub(crate) fn open(&self, actor: u64, epoch: u64, address: String, now: Instant) -> Lease {
        let (id, before) = self.leases.lock().open(actor, epoch, address, now);
        log_return(before, actor, epoch);
        Lease { actors: self.clone(), id, epoch }
    }

    /// Sweeps the leases and logs each lost actor once.
    pub fn sweep(&self, now: Instant) {
        let (lost, heartbeat) = {
            let mut leases = self.leases.lock();
            let lost = leases.sweep(now);
            crate::metrics::actors(leases.counts(), leases.lost_total());
            (lost, leases.heartbeat)
        };
        for Actor { actor, epoch, address, silent_ms, weights_version, trajectories, unanswered, .. } in lost {
            let heartbeat_ms = heartbeat.as_millis();
            tracing::warn!(
                actor,
                epoch,
                address,
                silent_ms,
                heartbeat_ms,
                weights_version,
                trajectories,
                unanswered,
                "actor lost"
            );
        }
    }

    /// Returns the list of actors with the totals; see [`Leases::list`].
    pub fn list(&self, now: Instant) -> ActorList {
        self.leases.lock().list(now)
    }
}

/// A stream's handle on the actor's lease. Dropping the handle records that the stream is closed.
#[derive(Debug)]
pub(crate) struct Lease {
    actors: Actors,
    id: StreamId,
    epoch: u64,
}

impl Lease {
    pub(crate) fn renew(&self, now: Instant) {
        let before = self.actors.leases.lock().renew(self.id, now);
        log_return(before, self.id.actor, self.epoch);
    }

    pub(crate) fn arrived(&self, weights_version: Option<u64>) {
        self.actors.leases.lock().arrived(self.id, weights_version);
    }

    pub(crate) fn answered(&self, stored: u64) {
        self.actors.leases.lock().answered(self.id, stored);
    }

    pub(crate) fn goodbye(&self) {
        self.actors.leases.lock().goodbye(self.id);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.actors.leases.lock().closed(self.id);
    }
}

fn log_return(before: Before, actor: u64, epoch: u64) {
    if before == Before::Lost {
        tracing::info!(actor, epoch, "lost actor is back");
    }
}
