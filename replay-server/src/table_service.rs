//! The table service: the one owner of tables and limiters, on a thread of its own.
//!
//! It takes one [`Command`] at a time, applies it, and then lets through whatever the limiters allow: inserts to the
//! log, batches to their samplers. An insert enters the tables only when the log has made it durable. It uses neither
//! tonic nor files; others hold a cheap [`Handle`].

mod commands;
mod inserts;
mod operator_records;
mod state;

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant, SystemTime};

use experience::{Trajectory, TrajectoryId};
use proto::replay::{Located, ServerStats};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use replay::SeenIds;
use tokio::sync::mpsc;

use crate::config::{Settings, TableIndex};
use crate::log::OperatorRecord;
use crate::log::committer::{LogCommand, LogEvent};
use crate::metrics;
pub use commands::{Command, Ended, Handle, Inserted, Refusal, Reply, Sampled};
use inserts::{Arrival, InLog};
use operator_records::Continuation;
use state::Common;
pub use state::{Hold, Restored, Segments, TableState};

/// Commands that may wait for the table service; senders wait when it is full.
pub const COMMANDS_MAX: usize = 1024;

/// The maximum number of entries in flight to the disk; two commits' worth keeps the log busy while it syncs.
pub const IN_LOG_MAX: usize = 512;

/// The capacity of the channel to the log besides entries: counters and drops, which may be sent again.
pub const LOG_COMMANDS_MAX: usize = IN_LOG_MAX + 64;

/// The state and its only owner.
#[derive(Debug)]
pub struct TableService {
    /// The main table first.
    tables: Vec<TableState>,
    /// The ids of all trajectories ever inserted: an insert counts once.
    seen: SeenIds,
    rng: ChaCha8Rng,
    clock: Clock,
    log: SyncSender<LogCommand>,
    /// In the order of their coming.
    arrivals: VecDeque<Arrival>,
    in_log: HashMap<TrajectoryId, InLog>,
    /// All their items.
    in_log_items: u64,
    /// Entries in the log's channel or hands, records of operators among them.
    in_log_entries: usize,
    /// Of everything that has arrived and is in no table yet, with its records.
    in_flight_bytes: u64,
    /// The reply channels of each queued trajectory; a client that reconnected waits beside its old stream.
    replies: HashMap<TrajectoryId, Vec<mpsc::Sender<Inserted>>>,
    /// Not given to the log yet.
    records: VecDeque<(OperatorRecord, Continuation)>,
    /// For each record that the log has.
    records_in_log: VecDeque<Continuation>,
    /// Of each table, as it was last given to the log.
    samples_recorded: Vec<u64>,
    /// In records that are not durable yet.
    priorities_in_flight: usize,
    segments: Segments,
    memory_bytes_max: Option<u64>,
    common: Common,
    draining: bool,
}

impl TableService {
    /// Serves what was restored.
    pub fn new(restored: Restored, settings: &Settings, log: SyncSender<LogCommand>) -> Self {
        let Restored { tables, tables_gone, seen, segments, log_bytes } = restored;
        metrics::describe();
        // Written once after a start: the log may know nothing of a table yet.
        let samples_recorded = vec![u64::MAX; tables.len()];
        let mut service = Self {
            tables,
            seen,
            rng: ChaCha8Rng::seed_from_u64(settings.seed),
            clock: Clock::start(),
            log,
            arrivals: VecDeque::new(),
            in_log: HashMap::new(),
            in_log_items: 0,
            in_log_entries: 0,
            in_flight_bytes: 0,
            replies: HashMap::new(),
            records: VecDeque::new(),
            records_in_log: VecDeque::new(),
            samples_recorded,
            priorities_in_flight: 0,
            segments,
            memory_bytes_max: settings.memory_bytes_max,
            common: Common { log_bytes, ..Common::default() },
            draining: false,
        };
        service.record_removed_tables(tables_gone);
        service
    }

    /// Runs until it has drained: no insert is queued or in flight to the disk.
    pub fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        self.publish();
        while let Some(command) = commands.blocking_recv() {
            self.apply(command, Instant::now());
            if self.draining && self.in_log_entries == 0 && self.records.is_empty() {
                break;
            }
        }
        self.publish();
        // The log's thread takes this before it sees that the channel has ended.
        let _ = self.log.send(LogCommand::Samples(self.main().limiter().counts().sampled));
    }

    /// One event, and everything that follows from it.
    pub(crate) fn apply(&mut self, command: Command, now: Instant) {
        match command {
            Command::Insert { trajectory, content, inserted, reply } => {
                self.insert(Arrival { trajectory, content, inserted, since: now }, reply);
            }
            Command::CountRefused => self.common.refused += 1,
            Command::NewestWeights(version) => self.tables.iter_mut().for_each(|table| table.hold_to_newest(version)),
            Command::Sample { table, items, reply } if !self.draining => {
                self.tables[table.0].request(items, reply, now);
            }
            Command::Sample { .. } => {}
            Command::HighestEpoch(actor, reply) => drop(reply.send(self.highest_epoch(actor))),
            Command::BatchItemsMax(table, reply) => {
                let _ = reply.send(self.tables[table.0].limiter().settings().batch_items_max());
            }
            Command::Stats(table, reply) => drop(reply.send(self.stats(table))),
            Command::Held(table, reply) => drop(reply.send(self.held(table))),
            Command::Get(id, reply) => drop(reply.send(self.get(id))),
            Command::Report(id, reply) => drop(reply.send(self.report(id))),
            Command::Quarantine(suspect, reply) => self.quarantine(suspect, reply),
            Command::Release(suspect, reply) => self.release(suspect, reply),
            Command::Configure(table, settings, reply) => self.configure(table, &settings, reply),
            Command::UpdatePriorities(table, priorities, reply) => {
                drop(reply.send(self.update_priorities(table, priorities)));
            }
            Command::Log(LogEvent::Committed { entries, segment, bytes }) => {
                self.committed(entries, segment, bytes, now);
            }
            Command::Log(LogEvent::Failed { entries, error }) => self.failed(entries, &error),
            Command::Tick => self.tick(now),
            Command::Drain => self.drain(),
        }
        self.send_records();
        let unix = self.clock.unix(now);
        // Samples first: they make room for inserts, and an insert only shows in the tables after its commit.
        for table in &mut self.tables {
            table.sample(&mut self.rng, self.common, now, unix);
        }
        let inserts = self.admit();
        for (index, table) in self.tables.iter_mut().enumerate() {
            table.hold_inserts(inserts.filter(|(at, _)| *at == TableIndex(index)).map(|(_, wait)| wait), now);
        }
    }

    fn tick(&mut self, now: Instant) {
        let unix = self.clock.unix(now);
        for table in &mut self.tables {
            table.expire(unix);
            table.tick();
        }
        self.drop_abandoned();
        self.drop_segments();
        self.record_samples();
        let _ = self.log.try_send(LogCommand::Samples(self.main().limiter().counts().sampled));
        self.publish();
    }

    fn drop_segments(&mut self) {
        self.segments.keep(self.tables.iter().map(|table| table.table().trajectories()).max().unwrap_or(0));
        if let Some(oldest) = self.segments.oldest() {
            let _ = self.log.try_send(LogCommand::DropBefore(oldest));
        }
    }

    fn drain(&mut self) {
        self.draining = true;
        self.record_samples();
        self.tables.iter_mut().for_each(TableState::drain);
        self.hand_back();
    }

    fn main(&self) -> &TableState {
        &self.tables[TableIndex::MAIN.0]
    }

    fn stats(&self, table: TableIndex) -> ServerStats {
        ServerStats {
            table: self.tables[table.0].stats(self.common),
            tables: self.tables.iter().map(|table| table.name().to_owned()).collect(),
            memory_bytes: self.memory_bytes(),
        }
    }

    /// All that a table holds, newest first. It costs a pointer for each.
    fn held(&self, table: TableIndex) -> Vec<Trajectory> {
        self.tables[table.0].table().held().map(|held| held.trajectory.clone()).collect()
    }

    /// O(trajectories): called rarely, by a person.
    fn get(&self, id: TrajectoryId) -> Option<Located> {
        let mut found: Option<Located> = None;
        for table in &self.tables {
            let Some(held) = table.table().held().find(|held| held.trajectory.id() == id) else { continue };
            let found = found.get_or_insert_with(|| Located {
                trajectory: held.trajectory.clone(),
                tables: Vec::new(),
                inserted_unix_ms: u64::try_from(held.inserted.as_millis()).unwrap_or(u64::MAX),
                quarantined: held.quarantined,
            });
            found.tables.push(table.name().to_owned());
        }
        found
    }

    /// Bytes of all tables, and of what is on its way into them. Every table holds the newest stretch of the same
    /// trajectories, so the longest stretch is all of them.
    pub(super) fn memory_bytes(&self) -> u64 {
        let tables = || self.tables.iter().map(|table| table.table());
        let shared = tables().map(|table| table.trajectory_bytes()).max().unwrap_or(0);
        let own: u64 = tables().map(|table| table.bytes() - table.trajectory_bytes()).sum();
        shared + own + self.in_flight_bytes
    }

    fn publish(&self) {
        let main = self.main();
        metrics::publish(&main.stats(self.common), main.waits());
        metrics::publish_memory(self.memory_bytes(), self.memory_bytes_max);
        for table in &self.tables {
            metrics::publish_waits(table.name(), table.waits_by_reason());
            metrics::publish_table(table.name(), table.table(), table.limiter().counts());
        }
    }
}

/// Time since 1970 that advances evenly, even if the machine's clock is set.
#[derive(Debug, Clone, Copy)]
struct Clock {
    start: Instant,
    unix: Duration,
}

impl Clock {
    /// Starts at the time of the machine's clock. A clock before 1970 counts as 1970.
    fn start() -> Self {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), unix }
    }

    /// Since 1970 until `now`.
    fn unix(&self, now: Instant) -> Duration {
        self.unix + now.saturating_duration_since(self.start)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, sync_channel};

    use experience::{ActionProbability, Step, StepKind, Trajectory};
    use game::{Action, Outcome};
    use weights::WeightsVersion;

    use super::*;
    use crate::log::tests::Memory;
    use crate::log::{EncodedTrajectory, Entry, SegmentNumber, UnixMillis, committer};

    impl TableService {
        /// Returns the trajectories in quarantine, for simulations.
        pub(crate) fn quarantined(&self) -> impl Iterator<Item = TrajectoryId> + '_ {
            self.main().table().quarantined_ids()
        }
    }

    fn trajectory(sequence: u64) -> Trajectory {
        let policy = vec![ActionProbability { action: Action(0), probability: 1.0 }];
        let kind = StepKind::Full { policy, value: 0.0 };
        let step = Step { action: Action(0), reward: 0.0, kind, weights_version: WeightsVersion(1) };
        let id = TrajectoryId { actor: 1, epoch: 1, sequence };
        Trajectory::of(id, "connect_four", &vec![step; 4], Outcome::Draw).unwrap()
    }

    /// A service whose log is played by the test.
    fn service() -> (TableService, Receiver<LogCommand>) {
        let settings = crate::Config::default().settings().unwrap();
        let (_, restored, _) = crate::storage::restore(Memory::default(), &settings, [0; 32]).unwrap();
        let (to_log, log) = sync_channel(LOG_COMMANDS_MAX);
        (TableService::new(restored, &settings, to_log), log)
    }

    fn insert(service: &mut TableService, sequence: u64) -> mpsc::Receiver<Inserted> {
        let (reply, answers) = mpsc::channel(4);
        let command = Command::Insert {
            trajectory: trajectory(sequence),
            content: EncodedTrajectory::default(),
            inserted: UnixMillis(0),
            reply,
        };
        service.apply(command, Instant::now());
        answers
    }

    fn entries(log: &Receiver<LogCommand>) -> Vec<Entry> {
        log.try_iter()
            .filter_map(|command| if let LogCommand::Append(entry) = command { Some(entry) } else { None })
            .collect()
    }

    fn id(sequence: u64) -> TrajectoryId {
        trajectory(sequence).id()
    }

    #[test]
    fn an_insert_is_answered_when_it_is_durable_and_not_before() {
        let (mut service, log) = service();
        let mut answers = insert(&mut service, 0);
        assert!(answers.try_recv().is_err());
        assert_eq!(service.stats(TableIndex::MAIN).table.trajectories, 0);
        let entries = entries(&log);
        let committed = LogEvent::Committed { entries, segment: SegmentNumber(1), bytes: 9 };
        service.apply(Command::Log(committed), Instant::now());
        assert_eq!(answers.try_recv().unwrap(), Inserted::New(id(0)));
        assert_eq!(service.stats(TableIndex::MAIN).table.trajectories, 1);
    }

    #[test]
    fn an_id_that_comes_again_while_it_is_being_written_is_written_once_and_both_are_answered() {
        let (mut service, log) = service();
        let mut first = insert(&mut service, 0);
        let mut second = insert(&mut service, 0);
        let entries = entries(&log);
        assert_eq!(entries.len(), 1);
        service
            .apply(Command::Log(LogEvent::Committed { entries, segment: SegmentNumber(1), bytes: 9 }), Instant::now());
        assert_eq!(first.try_recv().unwrap(), Inserted::New(id(0)));
        assert_eq!(second.try_recv().unwrap(), Inserted::Duplicate(id(0)));
    }

    #[test]
    fn the_highest_epoch_of_an_actor_is_known_from_its_first_trajectory_on() {
        let (mut service, _log) = service();
        assert_eq!(service.highest_epoch(1), 0);
        let _answers = insert(&mut service, 0);
        assert_eq!((service.highest_epoch(1), service.highest_epoch(2)), (1, 0));
    }

    #[test]
    fn a_trajectory_that_the_log_failed_to_write_may_be_inserted_again() {
        let (mut service, log) = service();
        let mut answers = insert(&mut service, 0);
        let failed = LogEvent::Failed { entries: entries(&log), error: "no space left".into() };
        service.apply(Command::Log(failed), Instant::now());
        assert_eq!(answers.try_recv().unwrap(), Inserted::NotStored(id(0), "no space left".into()));
        insert(&mut service, 0);
        assert_eq!(entries(&log).len(), 1);
    }

    #[test]
    fn a_drain_hands_back_unwritten_inserts_and_finishes_those_being_written() {
        let (mut service, log) = service();
        let mut written = insert(&mut service, 0);
        service.apply(Command::Drain, Instant::now());
        let mut late = insert(&mut service, 1);
        assert_eq!(late.try_recv().unwrap(), Inserted::Draining(id(1)));
        let entries = entries(&log);
        service
            .apply(Command::Log(LogEvent::Committed { entries, segment: SegmentNumber(1), bytes: 9 }), Instant::now());
        assert_eq!(written.try_recv().unwrap(), Inserted::New(id(0)));
    }

    #[test]
    fn the_channel_to_the_log_holds_everything_that_may_be_on_its_way() {
        const { assert!(LOG_COMMANDS_MAX > IN_LOG_MAX && IN_LOG_MAX >= committer::COMMIT_ENTRIES_MAX) };
        let (mut service, log) = service();
        let answers: Vec<_> = (0..IN_LOG_MAX as u64 + 10).map(|sequence| insert(&mut service, sequence)).collect();
        assert_eq!(entries(&log).len(), IN_LOG_MAX);
        assert_eq!((service.arrivals.len(), answers.len()), (10, IN_LOG_MAX + 10));
    }

    #[test]
    fn waiting_inserts_of_disconnected_clients_are_dropped_and_may_be_repeated() {
        let (mut service, _log) = service();
        // All but the first few wait: the log is full.
        let mut answers: Vec<_> = (0..IN_LOG_MAX as u64 + 10).map(|sequence| insert(&mut service, sequence)).collect();
        answers.truncate(IN_LOG_MAX + 1);
        service.apply(Command::Tick, Instant::now());
        assert_eq!((service.arrivals.len(), service.replies.len()), (1, IN_LOG_MAX + 1));
        answers.push(insert(&mut service, IN_LOG_MAX as u64 + 9));
        assert_eq!(service.arrivals.len(), 2);
    }

    #[test]
    fn waiting_batches_of_disconnected_samplers_are_dropped() {
        let (mut service, _log) = service();
        let mut samplers: Vec<_> = (0..3)
            .map(|_| {
                let (reply, sampled) = mpsc::channel(100);
                service.apply(Command::Sample { table: TableIndex::MAIN, items: 1, reply }, Instant::now());
                sampled
            })
            .collect();
        samplers.truncate(1);
        service.apply(Command::Tick, Instant::now());
        assert_eq!(service.main().waiting(), 1);
    }
}
