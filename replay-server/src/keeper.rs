//! The keeper: the one owner of tables and limiters, on a thread of its own.
//!
//! It takes one [`Command`] at a time, applies it, and then lets through whatever the limiters allow: inserts to the
//! log, batches to their samplers. An insert enters the tables only when the log has made it durable. It knows neither
//! tonic nor files; others hold a cheap [`Handle`].

mod clock;
mod handle;
mod inserts;
mod inspect;
mod notes;
mod segments;
mod served;
mod stall;

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use experience::TrajectoryId;
use rand_chacha::ChaCha8Rng;
use replay::SeenIds;
use tokio::sync::mpsc;

use crate::config::TableIndex;
use crate::log::Note;
use crate::log::committer::{LogCommand, LogEvent};
use crate::metrics::Metrics;
pub use clock::Clock;
pub use handle::{BatchRequest, Command, Ended, Found, Handle, Inserted, Refusal, Sampled};
use inserts::{Arrival, InLog};
use notes::Then;
pub use segments::Segments;
use served::Common;
pub use served::Served;
pub use stall::Hold;

/// Commands that may wait for the keeper; senders wait when it is full.
pub const COMMANDS_MAX: usize = 1024;

/// The maximum number of entries in flight to the disk; two commits' worth keeps the log busy while it syncs.
pub const IN_LOG_MAX: usize = 512;

/// The capacity of the channel to the log besides entries: counters and drops, which may be sent again.
pub const LOG_COMMANDS_MAX: usize = IN_LOG_MAX + 64;

/// The state and its only owner.
#[derive(Debug)]
pub struct Keeper {
    /// The main table first.
    tables: Vec<Served>,
    /// The ids of all trajectories ever inserted: an insert counts once.
    seen: SeenIds,
    rng: ChaCha8Rng,
    clock: Clock,
    log: SyncSender<LogCommand>,
    metrics: Metrics,
    /// In the order of their coming.
    arrivals: VecDeque<Arrival>,
    in_log: HashMap<TrajectoryId, InLog>,
    /// All their items.
    in_log_items: u64,
    /// Entries in the log's channel or hands, notes among them.
    in_log_entries: usize,
    /// Of everything that has arrived and is in no table yet, with its records.
    in_flight_bytes: u64,
    /// The reply channels of each queued trajectory; a client that reconnected waits beside its old stream.
    replies: HashMap<TrajectoryId, Vec<mpsc::Sender<Inserted>>>,
    /// Not given to the log yet.
    notes: VecDeque<(Note, Then)>,
    /// For each note that the log has.
    notes_in_log: VecDeque<Then>,
    /// Of each table, as it was last given to the log.
    samples_noted: Vec<u64>,
    /// In notes that are not durable yet.
    priorities_under_way: usize,
    segments: Segments,
    memory_bytes_max: Option<u64>,
    common: Common,
    draining: bool,
}

/// The state restored from the log: see [`crate::storage::restore`].
#[derive(Debug)]
pub struct Restored {
    /// The tables with their contents and what their limiters counted, the main table first.
    pub tables: Vec<Served>,
    /// The names of tables that the log knows and the run file does not.
    pub tables_gone: Vec<String>,
    /// Every id that ever came in.
    pub seen: SeenIds,
    /// The segments of the trajectories held.
    pub segments: Segments,
    /// Bytes of the log.
    pub log_bytes: u64,
}

impl Keeper {
    /// A keeper over what was restored.
    pub fn new(restored: Restored, clock: Clock, rng: ChaCha8Rng, log: SyncSender<LogCommand>) -> Self {
        let Restored { tables, tables_gone, seen, segments, log_bytes } = restored;
        // Written once after a start: the log may know nothing of a table yet.
        let samples_noted = vec![u64::MAX; tables.len()];
        let mut keeper = Self {
            tables,
            seen,
            rng,
            clock,
            log,
            metrics: Metrics::new(),
            arrivals: VecDeque::new(),
            in_log: HashMap::new(),
            in_log_items: 0,
            in_log_entries: 0,
            in_flight_bytes: 0,
            replies: HashMap::new(),
            notes: VecDeque::new(),
            notes_in_log: VecDeque::new(),
            samples_noted,
            priorities_under_way: 0,
            segments,
            memory_bytes_max: None,
            common: Common { log_bytes, ..Common::default() },
            draining: false,
        };
        keeper.forget_tables(tables_gone);
        keeper
    }

    /// Holds to so many bytes of memory.
    #[must_use]
    pub fn within(self, memory_bytes_max: Option<u64>) -> Self {
        Self { memory_bytes_max, ..self }
    }

    /// Runs until it has drained: no insert is queued or in flight to the disk.
    pub fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        self.publish();
        while let Some(command) = commands.blocking_recv() {
            self.apply(command, Instant::now());
            if self.draining && self.in_log_entries == 0 && self.notes.is_empty() {
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
            Command::HighestEpoch { actor, reply } => drop(reply.send(self.highest_epoch(actor))),
            Command::CountRefused => self.common.refused += 1,
            Command::NewestWeights(version) => self.tables.iter_mut().for_each(|table| table.hold_to_newest(version)),
            Command::Sample(BatchRequest { table, items, reply }) if !self.draining => {
                self.tables[table.0].request(items, reply, now);
            }
            Command::Sample(_) => {}
            Command::BatchItemsMax { table, reply } => {
                let _ = reply.send(self.tables[table.0].limiter().batch_items_max());
            }
            Command::Stats { table, reply } => drop(reply.send(self.stats(table))),
            Command::Held { table, reply } => drop(reply.send(self.held(table))),
            Command::Get { id, reply } => drop(reply.send(self.get(id))),
            Command::Report { id, reply } => drop(reply.send(self.report(id))),
            Command::Quarantine { suspect, reply } => self.quarantine(suspect, reply),
            Command::Release { suspect, reply } => self.release(suspect, reply),
            Command::Configure { table, settings, reply } => self.configure(table, &settings, reply),
            Command::UpdatePriorities { table, priorities, reply } => {
                let _ = reply.send(self.update_priorities(table, &priorities));
            }
            Command::Log(LogEvent::Committed { entries, segment, bytes }) => {
                self.committed(entries, segment, bytes, now);
            }
            Command::Log(LogEvent::Failed { entries, error }) => self.failed(entries, &error),
            Command::Tick => self.tick(now),
            Command::Drain => self.drain(),
        }
        self.send_notes();
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
        self.forget_abandoned();
        self.drop_segments();
        self.note_samples();
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
        self.note_samples();
        self.tables.iter_mut().for_each(Served::drain);
        self.hand_back();
    }

    fn main(&self) -> &Served {
        &self.tables[TableIndex::MAIN.0]
    }

    fn publish(&self) {
        let main = self.main();
        self.metrics.publish(&main.stats(self.common), main.table().bytes(), main.waits());
        self.metrics.publish_memory(self.memory_bytes(), self.memory_bytes_max);
        for table in &self.tables {
            self.metrics.publish_waits(table.name(), table.waits_by_reason());
            self.metrics.publish_table(table.name(), table.table(), table.limiter().counts());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, sync_channel};

    use experience::{ActionProbability, Step, StepKind, Trajectory};
    use game::{Action, Outcome};
    use rand_chacha::rand_core::SeedableRng as _;
    use weights::WeightsVersion;

    use super::*;
    use crate::log::tests::Memory;
    use crate::log::{EncodedTrajectory, Entry, SegmentNumber, UnixMillis, committer};

    impl Keeper {
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

    /// A keeper whose log is played by the test.
    fn keeper() -> (Keeper, Receiver<LogCommand>) {
        let settings = crate::Config::default().settings().unwrap();
        let (_, restored, _) = crate::storage::restore(Memory::default(), &settings, [0; 32]).unwrap();
        let (to_log, log) = sync_channel(LOG_COMMANDS_MAX);
        (Keeper::new(restored, Clock::start(), ChaCha8Rng::seed_from_u64(1), to_log), log)
    }

    fn insert(keeper: &mut Keeper, sequence: u64) -> mpsc::Receiver<Inserted> {
        let (reply, answers) = mpsc::channel(4);
        let command = Command::Insert {
            trajectory: trajectory(sequence),
            content: EncodedTrajectory::default(),
            inserted: UnixMillis(0),
            reply,
        };
        keeper.apply(command, Instant::now());
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
        let (mut keeper, log) = keeper();
        let mut answers = insert(&mut keeper, 0);
        assert!(answers.try_recv().is_err());
        assert_eq!(keeper.stats(TableIndex::MAIN).table.trajectories, 0);
        let entries = entries(&log);
        let committed = LogEvent::Committed { entries, segment: SegmentNumber(1), bytes: 9 };
        keeper.apply(Command::Log(committed), Instant::now());
        assert_eq!(answers.try_recv().unwrap(), Inserted::New(id(0)));
        assert_eq!(keeper.stats(TableIndex::MAIN).table.trajectories, 1);
    }

    #[test]
    fn an_id_that_comes_again_while_it_is_being_written_is_written_once_and_both_are_answered() {
        let (mut keeper, log) = keeper();
        let mut first = insert(&mut keeper, 0);
        let mut second = insert(&mut keeper, 0);
        let entries = entries(&log);
        assert_eq!(entries.len(), 1);
        keeper
            .apply(Command::Log(LogEvent::Committed { entries, segment: SegmentNumber(1), bytes: 9 }), Instant::now());
        assert_eq!(first.try_recv().unwrap(), Inserted::New(id(0)));
        assert_eq!(second.try_recv().unwrap(), Inserted::Duplicate(id(0)));
    }

    #[test]
    fn the_highest_epoch_of_an_actor_is_known_from_its_first_trajectory_on() {
        let (mut keeper, _log) = keeper();
        assert_eq!(keeper.highest_epoch(1), 0);
        let _answers = insert(&mut keeper, 0);
        assert_eq!((keeper.highest_epoch(1), keeper.highest_epoch(2)), (1, 0));
    }

    #[test]
    fn what_the_log_could_not_take_may_come_again() {
        let (mut keeper, log) = keeper();
        let mut answers = insert(&mut keeper, 0);
        let failed = LogEvent::Failed { entries: entries(&log), error: "no space left".into() };
        keeper.apply(Command::Log(failed), Instant::now());
        assert_eq!(answers.try_recv().unwrap(), Inserted::NotStored(id(0), "no space left".into()));
        insert(&mut keeper, 0);
        assert_eq!(entries(&log).len(), 1);
    }

    #[test]
    fn a_drain_hands_back_what_waits_and_finishes_what_is_being_written() {
        let (mut keeper, log) = keeper();
        let mut written = insert(&mut keeper, 0);
        keeper.apply(Command::Drain, Instant::now());
        let mut late = insert(&mut keeper, 1);
        assert_eq!(late.try_recv().unwrap(), Inserted::Draining(id(1)));
        let entries = entries(&log);
        keeper
            .apply(Command::Log(LogEvent::Committed { entries, segment: SegmentNumber(1), bytes: 9 }), Instant::now());
        assert_eq!(written.try_recv().unwrap(), Inserted::New(id(0)));
    }

    #[test]
    fn the_channel_to_the_log_holds_everything_that_may_be_on_its_way() {
        const { assert!(LOG_COMMANDS_MAX > IN_LOG_MAX && IN_LOG_MAX >= committer::COMMIT_ENTRIES_MAX) };
        let (mut keeper, log) = keeper();
        let answers: Vec<_> = (0..IN_LOG_MAX as u64 + 10).map(|sequence| insert(&mut keeper, sequence)).collect();
        assert_eq!(entries(&log).len(), IN_LOG_MAX);
        assert_eq!((keeper.arrivals.len(), answers.len()), (10, IN_LOG_MAX + 10));
    }

    #[test]
    fn what_waits_for_clients_that_have_gone_is_forgotten_and_may_come_again() {
        let (mut keeper, _log) = keeper();
        // All but the first few wait: the log is full.
        let mut answers: Vec<_> = (0..IN_LOG_MAX as u64 + 10).map(|sequence| insert(&mut keeper, sequence)).collect();
        answers.truncate(IN_LOG_MAX + 1);
        keeper.apply(Command::Tick, Instant::now());
        assert_eq!((keeper.arrivals.len(), keeper.replies.len()), (1, IN_LOG_MAX + 1));
        answers.push(insert(&mut keeper, IN_LOG_MAX as u64 + 9));
        assert_eq!(keeper.arrivals.len(), 2);
    }

    #[test]
    fn batches_for_samplers_that_have_gone_are_forgotten() {
        let (mut keeper, _log) = keeper();
        let mut samplers: Vec<_> = (0..3)
            .map(|_| {
                let (reply, sampled) = mpsc::channel(100);
                keeper
                    .apply(Command::Sample(BatchRequest { table: TableIndex::MAIN, items: 1, reply }), Instant::now());
                sampled
            })
            .collect();
        samplers.truncate(1);
        keeper.apply(Command::Tick, Instant::now());
        assert_eq!(keeper.main().waiting(), 1);
    }
}
