//! The way of an insert: it waits until every table lets it in, goes to the log, and into the tables when it is
//! durable.

use std::collections::HashMap;
use std::sync::mpsc::TrySendError;
use std::time::Instant;

use experience::{Trajectory, TrajectoryId};
use replay::Wait;
use tokio::sync::mpsc;

use super::handle::Inserted;
use super::{IN_LOG_MAX, Keeper, Served};
use crate::config::TableIndex;
use crate::log::committer::LogCommand;
use crate::log::{EncodedTrajectory, Entry, SegmentNumber, UnixMillis};

/// A trajectory that is not admitted yet.
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

impl Keeper {
    pub(super) fn insert(&mut self, arrival: Arrival, reply: mpsc::Sender<Inserted>) {
        let id = arrival.trajectory.id();
        if self.seen.contains(id) {
            self.common.duplicates += 1;
            return answer(&reply, Inserted::Duplicate(id));
        }
        if self.draining && !self.in_log.contains_key(&id) {
            return answer(&reply, Inserted::Draining(id));
        }
        // `replies` has an entry for an id exactly while its insert is queued or being written.
        if let Some(askers) = self.replies.get_mut(&id) {
            askers.retain(|asker| !asker.is_closed());
            return askers.push(reply);
        }
        if self.is_stale(&arrival) {
            self.metrics.count_stale();
            return answer(&reply, Inserted::Stale(id));
        }
        let bytes = in_flight_bytes(&arrival.trajectory, &arrival.content);
        if let Some(bytes_max) = self.memory_bytes_max
            && self.memory_bytes() + bytes > bytes_max
            && !self.tables.iter().all(Served::is_full)
        {
            self.metrics.count_over_memory();
            return answer(&reply, Inserted::OverMemory { id, bytes_max });
        }
        self.replies.insert(id, vec![reply]);
        self.in_flight_bytes += bytes;
        self.arrivals.push_back(arrival);
    }

    /// The highest epoch of an actor among the ids stored and those that wait to be; 0 for none.
    pub(super) fn highest_epoch(&self, actor: u64) -> u64 {
        let waiting = self.replies.keys().filter(|id| id.actor == actor).map(|id| id.epoch).max();
        self.seen.highest_epoch(actor).max(waiting).unwrap_or(0)
    }

    /// Returns true if every table rejects trajectories whose newest weights are that far behind. Leaves no trace: a
    /// retry is checked again.
    fn is_stale(&self, arrival: &Arrival) -> bool {
        let version = arrival.trajectory.last_weights_version();
        self.tables.iter().all(|table| table.table().is_stale(version))
    }

    /// Removes the blocked inserts of clients that have gone: they will retry. Without this a client that reconnects
    /// repeatedly while the limiter blocks it would fill the memory.
    pub(super) fn forget_abandoned(&mut self) {
        let (replies, bytes) = (&mut self.replies, &mut self.in_flight_bytes);
        self.arrivals.retain(|Arrival { trajectory, content, .. }| {
            let awaited = is_awaited(replies, trajectory.id());
            if !awaited {
                replies.remove(&trajectory.id());
                *bytes -= in_flight_bytes(trajectory, content);
            }
            awaited
        });
    }

    /// Sends to the log what every table lets in; otherwise why the first does not. A trajectory enters whole as soon
    /// as its first item may.
    pub(super) fn admit(&mut self) -> Option<(TableIndex, Wait)> {
        while let Some(Arrival { trajectory, content, .. }) = self.arrivals.front() {
            let id = trajectory.id();
            if !is_awaited(&self.replies, id) {
                self.in_flight_bytes -= in_flight_bytes(trajectory, content);
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
            let items = items(&trajectory);
            self.in_log_items += u64::from(items);
            self.in_log.insert(id, InLog { trajectory, inserted, since });
            self.append(Entry::Trajectory { id, items, content });
        }
        None
    }

    /// The first table that does not let a trajectory in now, and why.
    fn refusal(&self) -> Option<(TableIndex, Wait)> {
        let waits = self.tables.iter().enumerate();
        waits.map(|(index, table)| (TableIndex(index), table.can_insert(self.in_log_items))).find_map(
            |(index, answer)| match answer {
                Ok(()) => None,
                Err(wait) => Some((index, wait)),
            },
        )
    }

    pub(super) fn committed(&mut self, entries: Vec<Entry>, segment: SegmentNumber, bytes: u64, now: Instant) {
        self.common.log_bytes = bytes;
        self.in_log_entries -= entries.len();
        for entry in entries {
            match entry {
                Entry::Trajectory { id, items, content } => self.stored(id, items, &content, segment, now),
                Entry::Note(note) => self.noted(&note, Ok(())),
            }
        }
        self.drop_segments();
    }

    fn stored(
        &mut self,
        id: TrajectoryId,
        items: u32,
        content: &EncodedTrajectory,
        segment: SegmentNumber,
        now: Instant,
    ) {
        let Some(InLog { trajectory, inserted, since }) = self.in_log.remove(&id) else { return };
        self.metrics.inserted_after(now.saturating_duration_since(since));
        self.in_flight_bytes -= in_flight_bytes(&trajectory, content);
        self.in_log_items -= u64::from(items);
        if self.seen.insert(id) {
            self.segments.push(segment);
            for table in &mut self.tables {
                table.insert(trajectory.clone(), inserted.since_1970());
            }
        }
        for (index, reply) in self.replies.remove(&id).into_iter().flatten().enumerate() {
            self.common.duplicates += u64::from(index > 0);
            answer(&reply, if index == 0 { Inserted::New(id) } else { Inserted::Duplicate(id) });
        }
    }

    pub(super) fn failed(&mut self, entries: Vec<Entry>, error: &str) {
        self.in_log_entries -= entries.len();
        for entry in entries {
            let (id, items, content) = match entry {
                Entry::Trajectory { id, items, content } => (id, items, content),
                Entry::Note(note) => {
                    self.noted(&note, Err(error.to_owned()));
                    continue;
                }
            };
            if let Some(InLog { trajectory, .. }) = self.in_log.remove(&id) {
                self.in_flight_bytes -= in_flight_bytes(&trajectory, &content);
            }
            self.in_log_items -= u64::from(items);
            for reply in self.replies.remove(&id).into_iter().flatten() {
                self.metrics.count_not_stored();
                answer(&reply, Inserted::NotStored(id, error.to_owned()));
            }
        }
    }

    /// There is room: entries in flight are counted, and the channel has more room than their maximum.
    pub(super) fn append(&mut self, entry: Entry) {
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

    /// Answers every insert that is queued and not in flight to the disk.
    pub(super) fn hand_back(&mut self) {
        for Arrival { trajectory, content, .. } in std::mem::take(&mut self.arrivals) {
            self.in_flight_bytes -= in_flight_bytes(&trajectory, &content);
            for reply in self.replies.remove(&trajectory.id()).into_iter().flatten() {
                answer(&reply, Inserted::Draining(trajectory.id()));
            }
        }
    }
}

/// Returns the memory of a trajectory in flight, with its record, in bytes.
fn in_flight_bytes(trajectory: &Trajectory, content: &EncodedTrajectory) -> u64 {
    (trajectory.bytes() + content.payload().len()) as u64
}

/// The items of a trajectory, as the log counts them.
fn items(trajectory: &Trajectory) -> u32 {
    u32::try_from(trajectory.full_steps()).expect("an episode has under 2^32 steps")
}

/// Returns true if a client still waits for the outcome of a trajectory.
fn is_awaited(replies: &HashMap<TrajectoryId, Vec<mpsc::Sender<Inserted>>>, id: TrajectoryId) -> bool {
    replies.get(&id).is_some_and(|askers| askers.iter().any(|asker| !asker.is_closed()))
}

/// A client keeps room for every answer that is due; a client that has gone retries.
fn answer(reply: &mpsc::Sender<Inserted>, inserted: Inserted) {
    let _ = reply.try_send(inserted);
}
