//! Handles inserts: an insert waits until every table admits it, goes to the log, and enters the tables once it is
//! durable.

use std::collections::HashMap;
use std::sync::mpsc::TrySendError;
use std::time::{Duration, Instant};

use experience::{Trajectory, TrajectoryId};
use proto::replay::InsertWait;
use replay::Wait;
use run_file::replay::TableIndex;

use super::commands::{InsertReply, Inserted};
use super::memory::InFlight;
use super::{IN_LOG_MAX, TableService};
use crate::defect::Defect;
use crate::log::committer::LogCommand;
use crate::log::{EncodedTrajectory, Entry, SegmentNumber, UnixMillis};
use crate::{metrics, storage};

/// Time without any result from the log after which the log counts as stalled: several times the duration of a slow
/// commit.
const LOG_STALL: Duration = Duration::from_secs(1);

/// A trajectory that waits for admission.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) trajectory: Trajectory,
    pub(super) content: EncodedTrajectory,
    pub(super) inserted: UnixMillis,
    pub(super) since: Instant,
}

/// A trajectory in flight to the disk.
#[derive(Debug)]
pub(super) struct InLog {
    trajectory: Trajectory,
    inserted: UnixMillis,
    since: Instant,
}

/// The progress of the log, as its replies show.
#[derive(Debug, Default)]
pub(super) struct LogProgress {
    /// Time since which entries have waited in the log without a commit.
    waits_since: Option<Instant>,
    /// True from a failure until the next commit.
    is_failing: bool,
}

impl LogProgress {
    /// Updates the start of the wait from the number of entries in the log.
    pub(super) fn update(&mut self, in_log_entries: usize, now: Instant) {
        self.waits_since = if in_log_entries == 0 { None } else { self.waits_since.or(Some(now)) };
    }

    fn is_stalled(&self, now: Instant) -> bool {
        self.is_failing || self.waits_since.is_some_and(|since| now.saturating_duration_since(since) >= LOG_STALL)
    }
}

impl TableService {
    pub(super) fn insert(&mut self, arrival: Arrival, reply: InsertReply) {
        let id = arrival.trajectory.id();
        if self.seen.contains(id) {
            self.common.duplicates += 1;
            return reply.answer(Inserted::Duplicate(id));
        }
        if self.draining && !self.in_log.contains_key(&id) {
            return reply.answer(Inserted::Draining(id));
        }
        // `replies` has an entry for an id exactly while the insert is queued or being written.
        if let Some(waiters) = self.replies.get_mut(&id) {
            waiters.retain(|waiter| !waiter.is_closed());
            return waiters.push(reply);
        }
        if self.is_stale(&arrival) {
            metrics::count_stale();
            return reply.answer(Inserted::Stale(id));
        }
        if storage::items(&arrival.trajectory) == 0 && !self.planted.is(Defect::ItemlessStored) {
            // No limiter and no capacity would bound the number of such trajectories, and they have nothing to draw.
            metrics::count_without_items();
            return reply.answer(Inserted::New(id));
        }
        let more = InFlight::trajectory(&arrival.trajectory, &arrival.content);
        if let Err(bytes_max) = self.make_room(more) {
            metrics::count_refused(metrics::OVER_MEMORY);
            return reply.answer(Inserted::OverMemory { id, bytes_max });
        }
        self.replies.insert(id, vec![reply]);
        self.in_flight += more;
        self.arrivals.push_back(arrival);
    }

    /// Returns the highest epoch of an actor among all stored and pending ids; 0 if there are none.
    pub(super) fn highest_epoch(&self, actor: u64) -> u64 {
        if self.planted.is(Defect::EpochReused) {
            return 0;
        }
        let waiting = self.replies.keys().filter(|id| id.actor == actor).map(|id| id.epoch).max();
        self.seen.highest_epoch(actor).max(waiting).unwrap_or(0)
    }

    /// Returns true if every table rejects the trajectory because of the policy lag. The id is not recorded: a retry
    /// is checked again.
    fn is_stale(&self, arrival: &Arrival) -> bool {
        let version = arrival.trajectory.last_weights_version();
        self.tables.iter().all(|table| table.table().is_stale(version))
    }

    /// Removes blocked inserts of disconnected clients, which will retry. Without this, a client that reconnects
    /// repeatedly while the limiter blocks it would exhaust the memory.
    pub(super) fn drop_abandoned(&mut self) {
        let (replies, in_flight) = (&mut self.replies, &mut self.in_flight);
        self.arrivals.retain(|Arrival { trajectory, content, .. }| {
            let awaited = is_awaited(replies, trajectory.id());
            if !awaited {
                replies.remove(&trajectory.id());
                *in_flight -= InFlight::trajectory(trajectory, content);
            }
            awaited
        });
    }

    /// Sends the arrivals that every table admits to the log; returns the first table that blocks the next arrival,
    /// and the reason. A whole trajectory is admitted as soon as its first item is.
    pub(super) fn admit(&mut self) -> Option<(TableIndex, Wait)> {
        while let Some(Arrival { trajectory, content, .. }) = self.arrivals.front() {
            let id = trajectory.id();
            if !is_awaited(&self.replies, id) {
                self.in_flight -= InFlight::trajectory(trajectory, content);
                self.replies.remove(&id);
                self.arrivals.pop_front();
                continue;
            }
            if self.in_log_entries >= IN_LOG_MAX {
                return None;
            }
            if let Some(wait) = self.refusal() {
                return Some(wait);
            }
            let Arrival { trajectory, content, inserted, since } = self.arrivals.pop_front()?;
            let items = storage::items(&trajectory);
            self.in_log_items += u64::from(items);
            self.in_log.insert(id, InLog { trajectory, inserted, since });
            self.append(Entry::Trajectory { id, items, content });
        }
        None
    }

    /// Returns the first table that blocks inserts now, and the reason.
    fn refusal(&self) -> Option<(TableIndex, Wait)> {
        if self.planted.is(Defect::RatioIgnored) {
            return None;
        }
        let mut tables = self.tables.iter().enumerate();
        tables.find_map(|(index, table)| Some((TableIndex(index), table.can_insert(self.in_log_items).err()?)))
    }

    /// Returns the reason why inserts wait now, or would wait. A stalled log comes first: a limiter may block forever
    /// because of it.
    pub(super) fn insert_wait(&self, now: Instant) -> InsertWait {
        if self.log_progress.is_stalled(now) {
            InsertWait::Log
        } else if self.refusal().is_some() {
            InsertWait::Limited
        } else {
            InsertWait::Turn
        }
    }

    pub(super) fn committed(&mut self, entries: Vec<Entry>, segment: SegmentNumber, bytes: u64, now: Instant) {
        self.log_progress = LogProgress::default();
        self.common.log_bytes = bytes;
        self.in_log_entries -= entries.len();
        for entry in entries {
            match entry {
                Entry::Trajectory { id, items, content } => {
                    if let Some(stored) = self.land(id, items, &content) {
                        self.stored(stored, segment, now);
                    }
                }
                Entry::Revision { id, .. } => self.revised(id),
                Entry::Operator(record) => self.recorded(&record, Ok(())),
            }
        }
        self.drop_segments();
    }

    fn stored(&mut self, stored: InLog, segment: SegmentNumber, now: Instant) {
        let InLog { trajectory, inserted, since } = stored;
        let id = trajectory.id();
        metrics::inserted_after(now.saturating_duration_since(since));
        // The id is new even if the gap around it has closed since the admission.
        self.seen.insert(id);
        self.segments.push(segment);
        for table in &mut self.tables {
            table.insert(trajectory.clone(), inserted.since_1970());
        }
        for (index, reply) in self.replies.remove(&id).into_iter().flatten().enumerate() {
            self.common.duplicates += u64::from(index > 0);
            reply.answer(if index == 0 { Inserted::New(id) } else { Inserted::Duplicate(id) });
        }
    }

    pub(super) fn failed(&mut self, entries: Vec<Entry>, error: &str) {
        self.log_progress.is_failing = true;
        self.in_log_entries -= entries.len();
        for entry in entries {
            match entry {
                Entry::Trajectory { id, items, content } => {
                    self.land(id, items, &content);
                    for reply in self.replies.remove(&id).into_iter().flatten() {
                        metrics::count_refused(metrics::NOT_STORED);
                        reply.answer(Inserted::NotStored(id, error.to_owned()));
                    }
                }
                Entry::Revision { id, .. } => self.revision_failed(id, error),
                Entry::Operator(record) => self.recorded(&record, Err(error.to_owned())),
            }
        }
    }

    /// Removes a trajectory from the trajectories in flight after the log has replied.
    fn land(&mut self, id: TrajectoryId, items: u32, content: &EncodedTrajectory) -> Option<InLog> {
        let landed = self.in_log.remove(&id)?;
        self.in_flight -= InFlight::trajectory(&landed.trajectory, content);
        self.in_log_items -= u64::from(items);
        Some(landed)
    }

    /// Sends an entry to the log. The channel has capacity: it exceeds the maximum number of entries in flight.
    pub(super) fn append(&mut self, entry: Entry) {
        self.in_log_entries += 1;
        match self.log.try_send(LogCommand::Append(entry)) {
            Ok(()) => {}
            Err(TrySendError::Full(refused) | TrySendError::Disconnected(refused)) => {
                if let LogCommand::Append(entry) = refused {
                    self.failed(vec![entry], "the log accepts no entries");
                }
            }
        }
    }

    /// Replies [`Inserted::Draining`] to every queued insert that is not in flight to the disk.
    pub(super) fn hand_back(&mut self) {
        for Arrival { trajectory, content, .. } in std::mem::take(&mut self.arrivals) {
            self.in_flight -= InFlight::trajectory(&trajectory, &content);
            for reply in self.replies.remove(&trajectory.id()).into_iter().flatten() {
                reply.answer(Inserted::Draining(trajectory.id()));
            }
        }
    }
}

/// Returns true if a client still waits for the reply to a trajectory.
fn is_awaited(replies: &HashMap<TrajectoryId, Vec<InsertReply>>, id: TrajectoryId) -> bool {
    replies.get(&id).is_some_and(|waiters| waiters.iter().any(|waiter| !waiter.is_closed()))
}
