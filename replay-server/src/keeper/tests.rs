use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use experience::{PackedTrajectory, Step, StepKind, Trajectory};
use game::{Action, Outcome};
use rand_chacha::rand_core::SeedableRng as _;
use weights::WeightsVersion;

use super::*;
use crate::log::tests::Memory;
use crate::log::{Entry, Framed, SegmentNumber, UnixMillis, committer};

impl Keeper {
    /// What is out of sampling, for simulations.
    pub(crate) fn quarantined(&self) -> impl Iterator<Item = TrajectoryId> + '_ {
        self.main().table().quarantined_ids()
    }
}

fn trajectory(sequence: u64) -> Arc<PackedTrajectory> {
    let kind = StepKind::Full { policy: Vec::new(), value: 0.0 };
    let step = Step { action: Action(0), reward: 0.0, kind, weights_version: WeightsVersion(1) };
    let id = TrajectoryId { actor: 1, epoch: 1, sequence };
    let trajectory = Trajectory { id, game: "connect_four".into(), steps: vec![step; 4], outcome: Outcome::Draw };
    Arc::new(PackedTrajectory::pack(&trajectory))
}

/// A keeper whose log is played by the test.
fn keeper() -> (Keeper, Receiver<LogCommand>) {
    let settings = crate::Config::default().settings().unwrap();
    let (_, restored, _) = crate::storage::restore(Memory::default(), &settings).unwrap();
    let (to_log, log) = sync_channel(LOG_COMMANDS_MAX);
    (Keeper::new(restored, Clock::start(), ChaCha8Rng::seed_from_u64(1), to_log), log)
}

fn insert(keeper: &mut Keeper, sequence: u64) -> mpsc::Receiver<Inserted> {
    let (reply, answers) = mpsc::channel(4);
    let command = Command::Insert {
        trajectory: trajectory(sequence),
        content: Framed::default(),
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
    keeper.apply(Command::Log(LogEvent::Committed { entries, segment: SegmentNumber(1), bytes: 9 }), Instant::now());
    assert_eq!(first.try_recv().unwrap(), Inserted::New(id(0)));
    assert_eq!(second.try_recv().unwrap(), Inserted::Duplicate(id(0)));
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
    keeper.apply(Command::Log(LogEvent::Committed { entries, segment: SegmentNumber(1), bytes: 9 }), Instant::now());
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
            keeper.apply(Command::Sample(BatchRequest { table: TableIndex::MAIN, items: 1, reply }), Instant::now());
            sampled
        })
        .collect();
    samplers.truncate(1);
    keeper.apply(Command::Tick, Instant::now());
    assert_eq!(keeper.main().waiting(), 1);
}
