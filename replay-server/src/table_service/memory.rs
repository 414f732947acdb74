//! Enforces the memory limit: computes the use by tables and trajectories in flight, and evicts from full tables.

use std::ops::{AddAssign, SubAssign};

use experience::Trajectory;
use replay::Expected;

use super::{TableService, TableState};
use crate::defect::Defect;
use crate::log::EncodedTrajectory;
use crate::{metrics, storage};

/// Divisor of the memory limit that gives the part reserved for trajectories in flight, while full tables make room for
/// them.
const IN_FLIGHT_PART: u64 = 4;

/// The amount of data on the way to the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct InFlight {
    /// Memory of trajectories and encoded records, in bytes.
    pub(super) bytes: u64,
    /// Number of new trajectories.
    trajectories: u64,
    /// Number of items in new trajectories.
    items: u64,
}

impl InFlight {
    /// Returns the counts for a new trajectory with the encoded record.
    pub(super) fn trajectory(trajectory: &Trajectory, content: &EncodedTrajectory) -> Self {
        let bytes = (trajectory.bytes() + content.payload().len()) as u64;
        Self { bytes, trajectories: 1, items: storage::items(trajectory).into() }
    }

    /// Returns the counts for a revision of `bytes` bytes.
    pub(super) fn revision(bytes: u64) -> Self {
        Self { bytes, ..Self::default() }
    }
}

impl AddAssign for InFlight {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.trajectories += other.trajectories;
        self.items += other.items;
    }
}

impl SubAssign for InFlight {
    fn sub_assign(&mut self, other: Self) {
        self.bytes -= other.bytes;
        self.trajectories -= other.trajectories;
        self.items -= other.items;
    }
}

impl TableService {
    /// Returns the memory of all tables and data in flight, in bytes. Every table holds a suffix of the same
    /// trajectory sequence, so the longest suffix contains all held trajectories.
    pub(super) fn memory_bytes(&self) -> u64 {
        let tables = || self.tables.iter().map(|table| table.table());
        let shared = tables().map(|table| table.trajectory_bytes()).max().unwrap_or(0);
        let own: u64 = tables().map(|table| table.bytes() - table.trajectory_bytes()).sum();
        shared + own + self.in_flight.bytes
    }

    /// Makes room for a trajectory or a revision on the way to the tables. If all tables are full, they evict the
    /// oldest trajectories. Otherwise nothing is evicted, since the configured capacity does not fit into the limit.
    ///
    /// # Errors
    /// The limit, if there is no room.
    pub(super) fn make_room(&mut self, more: InFlight) -> Result<(), u64> {
        let Some(bytes_max) = self.memory_bytes_max else { return Ok(()) };
        let fits = |service: &Self| service.memory_bytes_with(more) <= bytes_max;
        if fits(self) {
            return Ok(());
        }
        // One trajectory always passes, however large. Further trajectories must leave the larger part to the tables:
        // otherwise clients that send without waiting would empty them.
        let is_first = self.in_flight.bytes == 0;
        if !self.is_full(more.bytes) || !(is_first || self.in_flight.bytes + more.bytes <= bytes_max / IN_FLIGHT_PART) {
            return Err(bytes_max);
        }
        if self.memory_bytes_with(more) - self.evictable_bytes() <= bytes_max {
            self.evict_until(fits);
            return Ok(());
        }
        // Nothing is evicted if that would not suffice.
        if is_first { Ok(()) } else { Err(bytes_max) }
    }

    /// Evicts from full tables what exceeds the limit for reasons that no insert could foresee: the limit is lower than
    /// at the last start, or changed settings need more state per item.
    pub(super) fn keep_memory(&mut self) {
        if let Some(bytes_max) = self.memory_bytes_max
            && self.memory_bytes() > bytes_max
            && self.is_full(0)
        {
            self.evict_until(|service| service.memory_bytes() <= bytes_max);
        }
    }

    /// Returns the number of trajectories evicted because of the memory limit since the start.
    pub fn evicted_for_memory(&self) -> u64 {
        self.evicted_for_memory
    }

    /// Returns the peak memory until everything in flight and `more` have entered the tables, in bytes.
    fn memory_bytes_with(&self, more: InFlight) -> u64 {
        let mut waiting = self.in_flight;
        waiting += more;
        let InFlight { trajectories, items, .. } = waiting;
        let expected = Expected { trajectories, items, items_each_max: self.items_each_max };
        // The table state per trajectory, in addition to the trajectory itself, grows by doubling on entry.
        let growth: u64 = self.tables.iter().map(|table| table.table().growth(expected)).sum();
        let growth = if self.planted.is(Defect::GrowthNotCounted) { 0 } else { growth };
        self.memory_bytes() + growth + more.bytes
    }

    fn is_full(&self, bytes: u64) -> bool {
        self.tables.iter().all(|table| table.is_full(bytes))
    }

    /// Returns the memory of all trajectories but the newest, in bytes.
    fn evictable_bytes(&self) -> u64 {
        let bytes = |table: &TableState| {
            let newest = table.table().newest().map_or(0, |newest| newest.bytes() as u64);
            table.table().trajectory_bytes() - newest
        };
        self.tables.iter().map(bytes).max().unwrap_or(0)
    }

    /// Evicts the oldest trajectory of all tables until there is room, or until each table has only the newest
    /// trajectory.
    fn evict_until(&mut self, has_room: impl Fn(&Self) -> bool) {
        while !has_room(self) {
            let held = |table: &TableState| table.table().trajectories();
            let most = self.tables.iter().map(held).max().unwrap_or(0);
            if most < 2 {
                return;
            }
            self.tables.iter_mut().filter(|table| held(table) == most).for_each(TableState::evict_oldest);
            self.evicted_for_memory += 1;
            metrics::count_evicted_for_memory();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, sync_channel};
    use std::time::Instant;

    use tokio::sync::mpsc;

    use super::*;
    use crate::log::committer::{LogCommand, LogEvent};
    use crate::log::tests::Memory;
    use crate::log::{SegmentNumber, UnixMillis};
    use crate::storage::Startup;
    use crate::table_service::tests::trajectory;
    use crate::table_service::{Clock, Command, Inserted, LOG_COMMANDS_MAX};

    /// A service with ten trajectories in full tables, and the number of the next trajectory.
    struct Bench {
        service: TableService,
        log: Receiver<LogCommand>,
        next: u64,
    }

    impl Bench {
        fn new() -> Self {
            let mut config = crate::Config::default();
            let main = &mut config.replay.main;
            (main.capacity_items, main.window_items_min, main.min_items, main.error_items) = (40, 40, 4, 1e9);
            let settings = config.settings().unwrap();
            let (_, restored, _) = storage::restore(Memory::default(), &settings, Startup::in_tests()).unwrap();
            let (to_log, log) = sync_channel(LOG_COMMANDS_MAX);
            Self { service: TableService::new(restored, &settings, to_log, Clock::start()), log, next: 0 }
        }

        /// Sends trajectories until one is rejected, at most `most`; returns the number of accepted trajectories.
        fn send(&mut self, most: u64) -> u64 {
            for sent in 0..most {
                let (reply, mut answers) = mpsc::channel(1);
                let (content, inserted) = (EncodedTrajectory::default(), UnixMillis(0));
                let trajectory = trajectory(self.next);
                self.service
                    .apply(Command::Insert { trajectory, content, inserted, reply: reply.into() }, Instant::now());
                if let Ok(Inserted::OverMemory { .. }) = answers.try_recv() {
                    return sent;
                }
                std::mem::forget(answers);
                self.next += 1;
            }
            most
        }

        fn commit(&mut self) {
            let append = |command| if let LogCommand::Append(entry) = command { Some(entry) } else { None };
            let entries = self.log.try_iter().filter_map(append).collect();
            let committed = LogEvent::Committed { entries, segment: SegmentNumber(1), bytes: 9 };
            self.service.apply(Command::Log(committed), Instant::now());
        }

        fn held(&self) -> usize {
            self.service.main().table().trajectories()
        }
    }

    #[test]
    fn full_tables_make_room_and_keep_the_limit() {
        let mut bench = Bench::new();
        for _ in 0..30 {
            assert_eq!(bench.send(1), 1);
            bench.commit();
        }
        assert_eq!(bench.held(), 10);
        let bytes_max = bench.service.memory_bytes_with(InFlight::default());
        bench.service.memory_bytes_max = Some(bytes_max);
        for _ in 0..20 {
            assert!(bench.send(3) > 0);
            assert!(bench.service.memory_bytes() <= bytes_max, "{} of {bytes_max}", bench.service.memory_bytes());
            bench.commit();
            assert!(bench.service.memory_bytes() <= bytes_max, "{} of {bytes_max}", bench.service.memory_bytes());
        }
        assert!(bench.service.evicted_for_memory() > 0);
        assert!(bench.held() >= 5, "{} are held", bench.held());
    }

    #[test]
    fn an_insert_counts_what_the_tables_will_need_beside_the_trajectory() {
        for bytes_max in (2_000..4_000).step_by(50) {
            let mut bench = Bench::new();
            bench.service.memory_bytes_max = Some(bytes_max);
            let sent = bench.send(9);
            bench.commit();
            assert_eq!(bench.held() as u64, sent);
            assert!(bench.service.memory_bytes() <= bytes_max, "{} of {bytes_max}", bench.service.memory_bytes());
        }
    }

    #[test]
    fn a_lower_limit_evicts_from_full_tables_and_a_capacity_that_does_not_fit_is_refused() {
        let mut bench = Bench::new();
        assert_eq!(bench.send(9), 9);
        bench.commit();
        bench.service.memory_bytes_max = Some(1);
        assert_eq!((bench.send(1), bench.held()), (0, 9), "the tables were never full");
        bench.service.memory_bytes_max = None;
        assert_eq!(bench.send(1), 1);
        bench.service.memory_bytes_max = Some(1);
        bench.commit();
        assert_eq!(bench.held(), 1);
    }
}
