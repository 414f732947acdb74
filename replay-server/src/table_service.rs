//! The table service: the single owner of tables and rate limiters, on a separate thread.
//!
//! It applies one [`Command`] at a time, and then all inserts and draws that the limiters allow: inserts go to the
//! log, batches to the samplers. A trajectory enters the tables only when the log has made it durable. The service
//! depends neither on tonic nor on files; callers hold a cheap [`Handle`].

mod clock;
mod commands;
mod inserts;
mod memory;
mod operator_records;
mod revisions;
mod search;
mod state;

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use experience::{Trajectory, TrajectoryId};
use proto::replay::{Located, ServerStats};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use replay::{RateLimiterCounts, SeenIds};
use run_file::replay::{Settings, TableIndex};
use tokio::sync::mpsc;

use crate::defect::{Defect, Planted};
use crate::log::committer::{LogCommand, LogEvent};
use crate::log::{OperatorRecord, SegmentNumber};
use crate::metrics;
use crate::repetition::Repetition;
pub use clock::Clock;
pub use commands::{Command, Ended, Handle, InsertReply, Inserted, Refusal, Reply, Sampled};
use inserts::{Arrival, InLog, LogProgress};
use memory::InFlight;
use operator_records::Continuation;
use revisions::Revisions;
pub use search::Search;
use state::Common;
pub use state::{Hold, Restored, Segments, TableState};

/// Capacity of the channel to the table service; senders wait while it is full.
pub const COMMANDS_MAX: usize = 1024;

/// Maximum number of entries in flight to the disk; two commits' worth keeps the log busy while it syncs.
pub const IN_LOG_MAX: usize = 512;

/// Capacity of the channel to the log: room for all entries in flight, and for some counters and segment removals,
/// which may be sent again.
pub const LOG_COMMANDS_MAX: usize = IN_LOG_MAX + 64;

/// Interval between measurements of repetition, which take milliseconds, at most about a tenth of a second.
const REPETITION_INTERVAL: Duration = Duration::from_secs(15);

/// The table service: owns the state of all tables.
#[derive(Debug)]
pub struct TableService {
    /// Tables, the main table first.
    tables: Vec<TableState>,
    /// Ids of all trajectories ever inserted, so that each insert counts once.
    seen: SeenIds,
    rng: ChaCha8Rng,
    revisions: Revisions,
    clock: Clock,
    log: SyncSender<LogCommand>,
    /// Trajectories waiting for admission, in order of arrival.
    arrivals: VecDeque<Arrival>,
    in_log: HashMap<TrajectoryId, InLog>,
    /// Total items of the trajectories in `in_log`.
    in_log_items: u64,
    /// Number of entries sent to the log that have no result yet, including operator records.
    in_log_entries: usize,
    log_progress: LogProgress,
    in_flight: InFlight,
    /// Reply channels of each queued trajectory; after a reconnect, a client may wait on the old and the new stream.
    replies: HashMap<TrajectoryId, Vec<InsertReply>>,
    /// Operator records not yet sent to the log.
    records: VecDeque<(OperatorRecord, Continuation)>,
    /// Continuations of the operator records in the log, in order.
    records_in_log: VecDeque<Continuation>,
    /// Sample count of each table last sent to the log.
    samples_recorded: Vec<u64>,
    /// Number of priorities in records that are not durable yet.
    priorities_in_flight: usize,
    segments: Segments,
    memory_bytes_max: Option<u64>,
    /// Maximum number of items in a trajectory.
    items_each_max: u64,
    evicted_for_memory: u64,
    common: Common,
    /// Time of the last measurement of repetition.
    repetition_measured: Option<Instant>,
    draining: bool,
    planted: Planted,
}

impl TableService {
    /// Creates a service from the restored tables; `clock` drives retention.
    pub fn new(restored: Restored, settings: &Settings, log: SyncSender<LogCommand>, clock: Clock) -> Self {
        let Restored { tables, tables_gone, seen, segments, log_bytes, planted } = restored;
        let [draws, choices] = streams(settings.seed, tables[TableIndex::MAIN.0].limiter().counts());
        metrics::begin();
        // Forces one record per table after a start: the log may have no counters for the table yet.
        let samples_recorded = vec![u64::MAX; tables.len()];
        let mut service = Self {
            tables,
            seen,
            rng: draws,
            revisions: Revisions::new(choices),
            clock,
            log,
            arrivals: VecDeque::new(),
            in_log: HashMap::new(),
            in_log_items: 0,
            in_log_entries: 0,
            log_progress: LogProgress::default(),
            in_flight: InFlight::default(),
            replies: HashMap::new(),
            records: VecDeque::new(),
            records_in_log: VecDeque::new(),
            samples_recorded,
            priorities_in_flight: 0,
            segments,
            memory_bytes_max: settings.memory_bytes_max,
            items_each_max: settings.limits.steps_max as u64,
            evicted_for_memory: 0,
            common: Common { log_bytes, ..Common::default() },
            repetition_measured: None,
            draining: false,
            planted,
        };
        service.record_removed_tables(tables_gone);
        service.keep_memory();
        service
    }

    /// Runs until the drain is complete: no insert is queued or in flight to the disk. Also stops after a panic of the
    /// log thread, since nothing can be stored any more. Calls `on_command` after every command.
    pub fn run(mut self, mut commands: mpsc::Receiver<Command>, on_command: impl Fn()) {
        self.publish();
        while let Some(command) = commands.blocking_recv() {
            if matches!(command, Command::Log(LogEvent::Panicked)) {
                tracing::error!("the replay log's thread panicked; exiting");
                return;
            }
            self.apply(command, Instant::now());
            on_command();
            if self.draining && self.in_log_entries == 0 && self.records.is_empty() {
                break;
            }
        }
        // The send below waits for the log thread, which must not wait for capacity in the command channel.
        drop(commands);
        self.publish();
        // The log thread receives this before it sees that the channel is closed.
        let _ = self.log.send(LogCommand::Samples(self.main().limiter().counts().sampled));
    }

    /// Applies one command, and everything that it enables. [`TableService::run`] calls this for each command; so
    /// does a caller without threads.
    pub fn apply(&mut self, command: Command, now: Instant) {
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
            Command::InsertWait(reply) => drop(reply.send(self.insert_wait(now))),
            Command::BatchItemsMax(table, reply) => {
                let _ = reply.send(self.tables[table.0].limiter().settings().batch_items_max());
            }
            Command::Stats(table, reply) => drop(reply.send(self.stats(table))),
            Command::Held(table, reply) => drop(reply.send(self.held(table))),
            Command::Search(table, mut search, reply) => {
                search.advance(self.tables[table.0].table());
                drop(reply.send(search));
            }
            Command::Get(id, reply) => drop(reply.send(self.get(id))),
            Command::Choose(table, older_than, reply) => drop(reply.send(self.choose(table, older_than))),
            Command::Revise { revised, content, at, reply } => self.revise(&revised, content, at, reply),
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
            Command::Log(LogEvent::Failed { entries, .. }) if self.planted.is(Defect::FailureAcknowledged) => {
                self.committed(entries, SegmentNumber(0), self.common.log_bytes, now);
            }
            Command::Log(LogEvent::Failed { entries, error }) => self.failed(entries, &error),
            Command::Log(LogEvent::Panicked) => {}
            Command::Tick => self.tick(now),
            Command::Drain => self.drain(),
        }
        self.send_records();
        let unix = self.clock.unix(now);
        // Samples come first: they unblock inserts, while an insert appears in the tables only after the commit.
        for table in &mut self.tables {
            table.sample(&mut self.rng, self.common, now, unix);
        }
        let inserts = self.admit();
        self.log_progress.update(self.in_log_entries, now);
        self.keep_memory();
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
        if self.repetition_measured.is_none_or(|then| now.saturating_duration_since(then) >= REPETITION_INTERVAL) {
            let newest = self.main().table().held().map(|held| held.trajectory);
            if let Some(found) = Repetition::of(newest) {
                metrics::publish_repetition(&found);
                self.repetition_measured = Some(now);
            }
        }
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

    /// Returns all trajectories of a table, newest first; costs one pointer per trajectory.
    fn held(&self, table: TableIndex) -> Vec<Trajectory> {
        self.tables[table.0].table().held().map(|held| held.trajectory.clone()).collect()
    }

    /// Finds a trajectory and the tables with it. The first call builds an index of each table; later calls take O(1).
    fn get(&mut self, id: TrajectoryId) -> Option<Located> {
        let mut found: Option<Located> = None;
        for table in &mut self.tables {
            let name = table.name().to_owned();
            let Some(held) = table.lookup(id) else { continue };
            let found = found.get_or_insert_with(|| Located {
                trajectory: held.trajectory.clone(),
                tables: Vec::new(),
                inserted_unix_ms: u64::try_from(held.inserted.as_millis()).unwrap_or(u64::MAX),
                quarantined: held.quarantined,
                revision: held.revision,
                revised_unix_ms: held.revised.map_or(0, |at| u64::try_from(at.as_millis()).unwrap_or(u64::MAX)),
            });
            found.tables.push(name);
        }
        found
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

/// Returns the random streams for draws and for choices of trajectories to revise. They follow from the seed and from
/// the insert and sample counts of the run so far (main table). Equal runs therefore start with equal draws, and a
/// restarted server does not repeat earlier draws.
fn streams(seed: u64, RateLimiterCounts { inserted, sampled, .. }: RateLimiterCounts) -> [ChaCha8Rng; 2] {
    let first = inserted.wrapping_add(sampled).wrapping_mul(2);
    [first, first.wrapping_add(1)].map(|stream| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        rng
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc::{Receiver, sync_channel};

    use experience::{ActionProbability, Step, StepKind, Trajectory};
    use game::{Action, Outcome};
    use proto::replay::InsertWait;
    use rand_chacha::rand_core::Rng as _;
    use replay::TableTotals;
    use weights::WeightsVersion;

    use super::*;
    use crate::log::tests::Memory;
    use crate::log::{EncodedTrajectory, Entry, UnixMillis, committer};

    impl TableService {
        /// Returns the quarantined trajectories, for simulations.
        pub(crate) fn quarantined(&self) -> impl Iterator<Item = TrajectoryId> + '_ {
            self.main().table().quarantined_ids()
        }
    }

    pub(crate) fn trajectory(sequence: u64) -> Trajectory {
        let policy = vec![ActionProbability { action: Action(0), probability: 1.0 }];
        let kind = StepKind::Full { policy, value: 0.0 };
        let step = Step { action: Action(0), reward: 0.0, kind, weights_version: WeightsVersion(1) };
        let id = TrajectoryId { actor: 1, epoch: 1, sequence };
        Trajectory::of(id, "connect_four", &vec![step; 4], Outcome::Draw).unwrap()
    }

    /// Returns a service, and the receiver of the log commands, to which the test replies.
    fn service() -> (TableService, Receiver<LogCommand>) {
        let settings = crate::Config::default().settings().unwrap();
        let (_, restored, _) =
            crate::storage::restore(Memory::default(), &settings, crate::storage::Startup::in_tests()).unwrap();
        let (to_log, log) = sync_channel(LOG_COMMANDS_MAX);
        (TableService::new(restored, &settings, to_log, Clock::start()), log)
    }

    fn insert(service: &mut TableService, sequence: u64) -> mpsc::Receiver<Inserted> {
        let (reply, answers) = mpsc::channel(4);
        let command = Command::Insert {
            trajectory: trajectory(sequence),
            content: EncodedTrajectory::default(),
            inserted: UnixMillis(0),
            reply: reply.into(),
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
    fn a_server_that_restarts_draws_other_numbers_and_a_fresh_one_those_of_the_seed() {
        let settings = crate::Config::default().settings().unwrap();
        let numbers_after = |trajectories: u64, sampled| {
            let mut table = TableState::new(settings.tables[0].clone());
            table.resume(TableTotals { trajectories, items: 4 * trajectories }, Some(sampled));
            streams(7, table.limiter().counts()).map(|mut rng| [rng.next_u64(), rng.next_u64()])
        };
        let mut of_seed = ChaCha8Rng::seed_from_u64(7);
        let fresh = numbers_after(0, 0);
        assert_eq!(fresh[0], [of_seed.next_u64(), of_seed.next_u64()]);
        let states = [(0, 0), (1, 0), (1, 1), (1, 2), (100, 1600)];
        let all = states.map(|(trajectories, sampled)| numbers_after(trajectories, sampled));
        assert_eq!(all.as_flattened().iter().collect::<HashSet<_>>().len(), 2 * states.len(), "{all:?}");
        assert_eq!(numbers_after(100, 1600), all[4]);
    }

    #[test]
    fn a_trajectory_without_items_is_acknowledged_and_takes_no_memory() {
        let (mut service, log) = service();
        let step = Step {
            action: Action(0),
            reward: 0.0,
            kind: StepKind::Fast { value: 0.0 },
            weights_version: WeightsVersion(1),
        };
        let trajectory = Trajectory::of(id(0), "connect_four", &vec![step; 4], Outcome::Draw).unwrap();
        let (reply, mut answers) = mpsc::channel(4);
        let (content, inserted) = (EncodedTrajectory::default(), UnixMillis(0));
        service.apply(Command::Insert { trajectory, content, inserted, reply: reply.into() }, Instant::now());
        assert_eq!(answers.try_recv().unwrap(), Inserted::New(id(0)));
        assert_eq!((entries(&log).len(), service.memory_bytes()), (0, 0));
    }

    #[test]
    fn full_tables_over_the_memory_limit_take_one_trajectory_at_a_time() {
        let settings = {
            let mut config = crate::Config::default();
            (config.replay.main.capacity_items, config.replay.main.window_items_min) = (4, 4);
            config.replay.main.min_items = 4;
            crate::Settings { memory_bytes_max: Some(1 << 20), ..config.settings().unwrap() }
        };
        let startup = crate::storage::Startup::in_tests();
        let (_, restored, _) = crate::storage::restore(Memory::default(), &settings, startup).unwrap();
        let (to_log, log) = sync_channel(LOG_COMMANDS_MAX);
        let mut service = TableService::new(restored, &settings, to_log, Clock::start());
        let _held = insert(&mut service, 0);
        let committed = LogEvent::Committed { entries: entries(&log), segment: SegmentNumber(1), bytes: 9 };
        service.apply(Command::Log(committed), Instant::now());
        service.memory_bytes_max = Some(1);
        let _first = insert(&mut service, 1);
        let mut second = insert(&mut service, 2);
        assert_eq!(second.try_recv().unwrap(), Inserted::OverMemory { id: id(2), bytes_max: 1 });
        assert_eq!(entries(&log).len(), 1, "the first one is on its way");
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
    fn inserts_wait_for_a_log_whose_last_write_failed_until_a_commit() {
        let (mut service, log) = service();
        let why = |service: &mut TableService| {
            let (reply, mut waits) = tokio::sync::oneshot::channel();
            service.apply(Command::InsertWait(reply), Instant::now());
            waits.try_recv().unwrap()
        };
        assert_eq!(why(&mut service), InsertWait::Turn);
        let _first = insert(&mut service, 0);
        let failed = LogEvent::Failed { entries: entries(&log), error: "no space left".into() };
        service.apply(Command::Log(failed), Instant::now());
        assert_eq!(why(&mut service), InsertWait::Log);
        let _second = insert(&mut service, 1);
        let committed = LogEvent::Committed { entries: entries(&log), segment: SegmentNumber(1), bytes: 9 };
        service.apply(Command::Log(committed), Instant::now());
        assert_eq!(why(&mut service), InsertWait::Turn);
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
        // The last ten wait: the log is full.
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
