//! The keeper: the one owner of table and limiter, on a thread of its own.
//!
//! It takes one [`Command`] at a time, applies it, and then lets through whatever the limiter allows: inserts to the
//! log, batches to their samplers. An insert enters the table only when the log has made it durable. It knows neither
//! tonic nor files; others hold a cheap [`Handle`].

use std::collections::{HashMap, HashSet, VecDeque};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

use experience::{PackedTrajectory, TrajectoryId};
use proto::limits::CREDIT_BATCHES_MAX;
use proto::replay::{TableEdge, TableStats};
use rand_chacha::ChaCha8Rng;
use replay::{Drawn, Insertion, Quarantine, RateLimiter, Table, Wait};
use tokio::sync::{mpsc, oneshot};

use crate::log::committer::{LogCommand, LogEvent};
use crate::log::{Entry, Framed, Note, SegmentNumber};
use crate::metrics::Metrics;

/// Commands that may wait for the keeper; senders wait when it is full.
pub const COMMANDS_MAX: usize = 1024;

/// Entries that may be on their way to the disk; two commits' worth keeps the log busy while it syncs.
pub const IN_LOG_MAX: usize = 512;

/// What the channel to the log holds besides entries: counters and drops, which may be sent again.
pub const LOG_COMMANDS_MAX: usize = IN_LOG_MAX + 64;

/// Reports that wait for the log. Beyond them, or where the log fails, a report holds until the next start only: what is
/// drawn again then is reported again.
const QUARANTINES_WAITING_MAX: usize = 1024;

/// What became of an insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inserted {
    /// It is durable.
    New(TrajectoryId),
    /// It had been durable before.
    Duplicate(TrajectoryId),
    /// The log cannot take it now; it may be sent again.
    NotStored(TrajectoryId, String),
    /// The server drains; it may be sent to the next one.
    Draining(TrajectoryId),
}

/// What a sampler hears.
#[derive(Debug)]
pub enum Sampled {
    /// A batch.
    Batch {
        /// Its draws.
        drawn: Vec<Drawn>,
        /// The table when it was drawn.
        table: Box<TableStats>,
    },
    /// Why none comes.
    Waiting(String),
}

/// One batch that somebody has given credit for.
#[derive(Debug)]
pub struct BatchRequest {
    /// Items in it.
    pub items: u64,
    /// Where it goes.
    pub reply: mpsc::Sender<Sampled>,
}

/// What the keeper is told.
#[derive(Debug)]
pub enum Command {
    /// A valid trajectory came in.
    Insert {
        /// It.
        trajectory: Arc<PackedTrajectory>,
        /// Its record for the log.
        content: Framed,
        /// Who waits for the answer. Must have room for it.
        reply: mpsc::Sender<Inserted>,
    },
    /// An invalid trajectory was refused.
    CountRefused,
    /// A batch is wanted.
    Sample(BatchRequest),
    /// What the table holds.
    Stats(oneshot::Sender<TableStats>),
    /// The ids held above `after`, ascending, at most `limit`.
    List {
        /// Exclusive lower bound.
        after: Option<TrajectoryId>,
        /// How many.
        limit: Option<NonZeroU64>,
        /// Where they go.
        reply: oneshot::Sender<Vec<TrajectoryId>>,
    },
    /// Take a trajectory out of sampling; answers whether it was held.
    Quarantine {
        /// Which.
        id: TrajectoryId,
        /// Where the answer goes.
        reply: oneshot::Sender<bool>,
    },
    /// The log made entries durable, or could not.
    Log(LogEvent),
    /// Some time has passed: publish metrics, repeat what could not be sent.
    Tick,
    /// Let nothing more in, give nothing more out; finish what is on its way to the disk.
    Drain,
}

/// A cheap way to talk to the keeper.
#[derive(Debug, Clone)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
}

/// The keeper has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the replay table has ended")]
pub struct Ended;

impl Handle {
    /// A handle and what the keeper receives from it.
    pub fn new() -> (Self, mpsc::Receiver<Command>) {
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        (Self { commands }, receiver)
    }

    /// Sends a command; waits while the keeper is behind.
    ///
    /// # Errors
    /// [`Ended`].
    pub async fn send(&self, command: Command) -> Result<(), Ended> {
        self.commands.send(command).await.map_err(|_| Ended)
    }

    /// Sends a command from a thread.
    ///
    /// # Errors
    /// [`Ended`].
    pub fn send_blocking(&self, command: Command) -> Result<(), Ended> {
        self.commands.blocking_send(command).map_err(|_| Ended)
    }

    /// Asks a question.
    ///
    /// # Errors
    /// [`Ended`].
    pub async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Ended> {
        let (reply, answer) = oneshot::channel();
        self.send(question(reply)).await?;
        answer.await.map_err(|_| Ended)
    }
}

/// The state and its only owner.
#[derive(Debug)]
pub struct Keeper {
    table: Table,
    limiter: RateLimiter,
    rng: ChaCha8Rng,
    log: SyncSender<LogCommand>,
    metrics: Metrics,
    /// Admitted by nobody yet, in the order of their coming.
    waiting_inserts: VecDeque<(Arc<PackedTrajectory>, Framed)>,
    /// Admitted and on their way to the disk.
    in_log: HashMap<TrajectoryId, Arc<PackedTrajectory>>,
    /// All their items.
    in_log_items: u64,
    /// Entries in the log's channel or hands.
    in_log_entries: usize,
    /// Who waits for which trajectory; a client that came back waits beside its own ghost.
    replies: HashMap<TrajectoryId, Vec<mpsc::Sender<Inserted>>>,
    waiting_samples: VecDeque<BatchRequest>,
    waiting_quarantines: VecDeque<TrajectoryId>,
    /// Oldest first: how many trajectories each segment still has in the table.
    segments: VecDeque<(SegmentNumber, u64)>,
    insert_wait: Stall,
    sample_wait: Stall,
    /// What the samplers were last told, by its kind.
    told: Option<std::mem::Discriminant<Wait>>,
    log_bytes: u64,
    duplicates: u64,
    refused: u64,
    quarantined: HashSet<TrajectoryId>,
    draining: bool,
}

/// What an earlier life left: see [`crate::storage::restore`].
#[derive(Debug)]
pub struct Restored {
    /// The table with its contents.
    pub table: Table,
    /// The limiter with its counts.
    pub limiter: RateLimiter,
    /// Oldest first: how many of the trajectories held lie in each segment.
    pub segments: VecDeque<(SegmentNumber, u64)>,
    /// Bytes of the log.
    pub log_bytes: u64,
}

/// How long one side has been held up by the limiter.
#[derive(Debug, Default)]
struct Stall {
    since: Option<Instant>,
    total: Duration,
}

impl Stall {
    fn update(&mut self, stalled: bool, now: Instant) {
        if let Some(since) = self.since {
            self.total += now.saturating_duration_since(since);
        }
        self.since = stalled.then_some(now);
    }
}

impl Keeper {
    /// A keeper over what was restored.
    pub fn new(restored: Restored, rng: ChaCha8Rng, log: SyncSender<LogCommand>) -> Self {
        let Restored { table, limiter, segments, log_bytes } = restored;
        let quarantined = table.held().filter(|held| held.quarantined).map(|held| held.trajectory.id()).collect();
        Self {
            table,
            limiter,
            rng,
            log,
            metrics: Metrics::new(),
            waiting_inserts: VecDeque::new(),
            in_log: HashMap::new(),
            in_log_items: 0,
            in_log_entries: 0,
            replies: HashMap::new(),
            waiting_samples: VecDeque::new(),
            waiting_quarantines: VecDeque::new(),
            segments,
            insert_wait: Stall::default(),
            sample_wait: Stall::default(),
            told: None,
            log_bytes,
            duplicates: 0,
            refused: 0,
            quarantined,
            draining: false,
        }
    }

    /// Runs until it has drained: nothing waits and nothing is on its way to the disk.
    pub fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        self.publish();
        while let Some(command) = commands.blocking_recv() {
            self.apply(command, Instant::now());
            if self.draining && self.in_log_entries == 0 && self.waiting_quarantines.is_empty() {
                break;
            }
        }
        self.publish();
        // The log's thread takes this before it sees that the channel has ended.
        let _ = self.log.send(LogCommand::Samples(self.limiter.counts().sampled));
    }

    /// One event, and everything that follows from it.
    pub(crate) fn apply(&mut self, command: Command, now: Instant) {
        match command {
            Command::Insert { trajectory, content, reply } => self.insert(trajectory, content, reply),
            Command::CountRefused => self.refused += 1,
            Command::Sample(request) if !self.draining => {
                self.waiting_samples.push_back(request);
                // A newcomer has not heard the reason yet.
                self.told = None;
            }
            Command::Sample(_) => {}
            Command::Stats(reply) => drop(reply.send(self.stats())),
            Command::List { after, limit, reply } => drop(reply.send(self.list(after, limit))),
            Command::Quarantine { id, reply } => drop(reply.send(self.quarantine(id))),
            Command::Log(LogEvent::Committed { entries, segment, bytes }) => self.committed(entries, segment, bytes),
            Command::Log(LogEvent::Failed { entries, error }) => self.failed(entries, &error),
            Command::Tick => {
                self.told = None;
                self.forget_abandoned();
                self.drop_segments();
                let _ = self.log.try_send(LogCommand::Samples(self.limiter.counts().sampled));
                self.publish();
            }
            Command::Drain => self.drain(),
        }
        self.send_quarantines();
        // Samples first: they make room for inserts, and an insert only shows in the table after its commit.
        let sample_wait = self.sample();
        let insert_wait = self.admit();
        self.tell(sample_wait);
        self.sample_wait.update(sample_wait.is_some(), now);
        self.insert_wait.update(insert_wait.is_some(), now);
    }

    fn insert(&mut self, trajectory: Arc<PackedTrajectory>, content: Framed, reply: mpsc::Sender<Inserted>) {
        let id = trajectory.id();
        if self.table.has_seen(id) {
            self.duplicates += 1;
            return answer(&reply, Inserted::Duplicate(id));
        }
        if self.draining && !self.in_log.contains_key(&id) {
            return answer(&reply, Inserted::Draining(id));
        }
        // Somebody is remembered for an id exactly as long as it waits or is on its way to the disk.
        if let Some(askers) = self.replies.get_mut(&id) {
            askers.retain(|asker| !asker.is_closed());
            return askers.push(reply);
        }
        self.replies.insert(id, vec![reply]);
        self.waiting_inserts.push_back((trajectory, content));
    }

    /// Forgets what is held up for clients that have gone: they will send and ask again. Without this a client that
    /// comes and goes while the limiter holds it up would fill the memory.
    fn forget_abandoned(&mut self) {
        let replies = &mut self.replies;
        self.waiting_inserts.retain(|(trajectory, _)| {
            let awaited = is_awaited(replies, trajectory.id());
            if !awaited {
                replies.remove(&trajectory.id());
            }
            awaited
        });
        self.waiting_samples.retain(|request| !request.reply.is_closed());
    }

    /// Sends to the log what the limiter lets in. A trajectory enters whole as soon as its first item may.
    fn admit(&mut self) -> Option<Wait> {
        while let Some((trajectory, _)) = self.waiting_inserts.front() {
            let id = trajectory.id();
            if !is_awaited(&self.replies, id) {
                self.replies.remove(&id);
                self.waiting_inserts.pop_front();
                continue;
            }
            if self.in_log_entries >= IN_LOG_MAX {
                return None;
            }
            if let Err(wait) = self.limiter.can_insert(self.in_log_items + 1) {
                return Some(wait);
            }
            let (trajectory, content) = self.waiting_inserts.pop_front()?;
            let items = items(&trajectory);
            self.in_log_items += u64::from(items);
            self.in_log.insert(id, trajectory);
            self.append(Entry::Trajectory { id, items, content });
        }
        None
    }

    /// Draws every batch that the limiter allows; the oldest request first.
    fn sample(&mut self) -> Option<Wait> {
        while let Some(BatchRequest { items, reply }) = self.waiting_samples.front() {
            if reply.is_closed() {
                self.waiting_samples.pop_front();
                continue;
            }
            if let Err(wait) = self.limiter.can_sample(*items) {
                return Some(wait);
            }
            let drawn: Option<Vec<Drawn>> = (0..*items).map(|_| self.table.sample(&mut self.rng)).collect();
            // The limiter's minimum is one item, so there is something to draw.
            let drawn = drawn?;
            self.limiter.sample(*items);
            let table = Box::new(self.stats());
            if let Some(BatchRequest { reply, .. }) = self.waiting_samples.pop_front() {
                // Room for every batch with credit; a sampler that has gone has lost it.
                let _ = reply.try_send(Sampled::Batch { drawn, table });
            }
        }
        None
    }

    /// Says why batches wait: to everyone, when the kind of reason changes, when somebody new waits, and at every tick.
    fn tell(&mut self, wait: Option<Wait>) {
        let kind = wait.as_ref().map(std::mem::discriminant);
        if kind == self.told {
            return;
        }
        self.told = kind;
        let Some(wait) = wait else { return };
        let reason = wait.to_string();
        for request in &self.waiting_samples {
            // A sampler that does not keep up misses reasons, never batches.
            if request.reply.capacity() > CREDIT_BATCHES_MAX as usize {
                let _ = request.reply.try_send(Sampled::Waiting(reason.clone()));
            }
        }
    }

    fn committed(&mut self, entries: Vec<Entry>, segment: SegmentNumber, bytes: u64) {
        self.log_bytes = bytes;
        self.in_log_entries -= entries.len();
        for entry in entries {
            let Entry::Trajectory { id, items, .. } = entry else { continue };
            let Some(trajectory) = self.in_log.remove(&id) else { continue };
            self.in_log_items -= u64::from(items);
            if let Insertion::Inserted { items, removed } = self.table.insert(trajectory) {
                self.limiter.insert(items);
                count_in_segment(&mut self.segments, segment);
                for removed in removed {
                    self.limiter.delete(removed.items);
                    self.quarantined.remove(&removed.id);
                    forget_oldest(&mut self.segments);
                }
            }
            for (index, reply) in self.replies.remove(&id).into_iter().flatten().enumerate() {
                self.duplicates += u64::from(index > 0);
                answer(&reply, if index == 0 { Inserted::New(id) } else { Inserted::Duplicate(id) });
            }
        }
        self.drop_segments();
    }

    fn failed(&mut self, entries: Vec<Entry>, error: &str) {
        self.in_log_entries -= entries.len();
        for entry in entries {
            let Entry::Trajectory { id, items, .. } = entry else { continue };
            self.in_log.remove(&id);
            self.in_log_items -= u64::from(items);
            for reply in self.replies.remove(&id).into_iter().flatten() {
                self.metrics.count_not_stored();
                answer(&reply, Inserted::NotStored(id, error.to_owned()));
            }
        }
    }

    fn quarantine(&mut self, id: TrajectoryId) -> bool {
        match self.table.quarantine(id) {
            Quarantine::Quarantined { items } => {
                self.limiter.delete(items);
                self.quarantined.insert(id);
                if self.waiting_quarantines.len() < QUARANTINES_WAITING_MAX {
                    self.waiting_quarantines.push_back(id);
                }
                true
            }
            Quarantine::Already => true,
            Quarantine::Unknown => false,
        }
    }

    fn send_quarantines(&mut self) {
        while self.in_log_entries < IN_LOG_MAX {
            let Some(id) = self.waiting_quarantines.pop_front() else { return };
            self.append(Entry::Note(Note::Quarantine(id)));
        }
    }

    /// There is room: entries on their way are counted, and the channel has more room than they may be.
    fn append(&mut self, entry: Entry) {
        self.in_log_entries += 1;
        match self.log.try_send(LogCommand::Append(entry)) {
            Ok(()) => {}
            Err(
                TrySendError::Full(LogCommand::Append(entry)) | TrySendError::Disconnected(LogCommand::Append(entry)),
            ) => {
                self.failed(vec![entry], "the log is not taking entries");
            }
            Err(_) => {}
        }
    }

    fn drop_segments(&mut self) {
        // The newest segment may still grow, whatever it holds.
        while self.segments.len() > 1 && self.segments[0].1 == 0 {
            self.segments.pop_front();
        }
        if let Some(&(oldest, _)) = self.segments.front() {
            let _ = self.log.try_send(LogCommand::DropBefore(oldest));
        }
    }

    fn drain(&mut self) {
        self.draining = true;
        self.waiting_samples.clear();
        for (trajectory, _) in std::mem::take(&mut self.waiting_inserts) {
            for reply in self.replies.remove(&trajectory.id()).into_iter().flatten() {
                answer(&reply, Inserted::Draining(trajectory.id()));
            }
        }
    }

    fn list(&self, after: Option<TrajectoryId>, limit: Option<NonZeroU64>) -> Vec<TrajectoryId> {
        let mut ids: Vec<TrajectoryId> = self.table.held().map(|held| held.trajectory.id()).collect();
        ids.retain(|&id| after.is_none_or(|after| id > after));
        ids.sort_unstable();
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit.get()).unwrap_or(usize::MAX));
        ids.truncate(limit);
        ids
    }

    fn stats(&self) -> TableStats {
        let counts = self.limiter.counts();
        let edge = |trajectory: &Arc<PackedTrajectory>| {
            Some(TableEdge { id: trajectory.id(), weights_version: trajectory.last_weights_version()? })
        };
        TableStats {
            trajectories: self.table.trajectories() as u64,
            items: self.table.items(),
            window_items: self.table.window_items(),
            trajectories_inserted_total: self.table.totals().trajectories,
            items_inserted_total: counts.inserted,
            samples_total: counts.sampled,
            duplicates_total: self.duplicates,
            refused_total: self.refused,
            quarantined_total: self.quarantined.len() as u64,
            samples_per_insert_target: self.limiter.settings().samples_per_insert,
            samples_per_insert: counts.sampled as f64 / counts.inserted.max(1) as f64,
            waiting_reason: self.waiting_reason(),
            bytes: self.log_bytes,
            oldest: self.table.oldest().and_then(edge),
            newest: self.table.newest().and_then(edge),
        }
    }

    fn waiting_reason(&self) -> Option<String> {
        let sample = self.waiting_samples.front().and_then(|request| self.limiter.can_sample(request.items).err());
        let insert = || self.waiting_inserts.front().and_then(|_| self.limiter.can_insert(self.in_log_items + 1).err());
        sample.or_else(insert).map(|wait| wait.to_string())
    }

    fn publish(&self) {
        self.metrics.publish(&self.stats(), self.table.bytes(), self.insert_wait.total, self.sample_wait.total);
    }
}

/// The items of a trajectory, as the log counts them.
pub fn items(trajectory: &PackedTrajectory) -> u32 {
    u32::try_from(trajectory.full_plies().count()).expect("an episode has under 2^32 steps")
}

/// One more trajectory lies in `segment`; segments only grow at the end.
pub fn count_in_segment(segments: &mut VecDeque<(SegmentNumber, u64)>, segment: SegmentNumber) {
    match segments.back_mut() {
        Some((last, count)) if *last == segment => *count += 1,
        _ => segments.push_back((segment, 1)),
    }
}

/// The oldest trajectory has left; the table removes in the order of the log.
pub fn forget_oldest(segments: &mut VecDeque<(SegmentNumber, u64)>) {
    if let Some((_, count)) = segments.iter_mut().find(|(_, count)| *count > 0) {
        *count -= 1;
    }
}

/// Whether somebody still waits for what becomes of a trajectory.
fn is_awaited(replies: &HashMap<TrajectoryId, Vec<mpsc::Sender<Inserted>>>, id: TrajectoryId) -> bool {
    replies.get(&id).is_some_and(|askers| askers.iter().any(|asker| !asker.is_closed()))
}

/// Whoever sends keeps room for every answer that is due; whoever has gone asks again.
fn answer(reply: &mpsc::Sender<Inserted>, inserted: Inserted) {
    let _ = reply.try_send(inserted);
}

#[cfg(test)]
mod tests;
