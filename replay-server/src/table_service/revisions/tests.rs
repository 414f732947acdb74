use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use experience::{ActionProbability, Step, StepKind};
use game::{Action, Outcome};
use proto::replay::ServerStats;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::log::SegmentNumber;
use crate::log::committer::{LogCommand, LogEvent};
use crate::log::tests::Memory;
use crate::storage;
use crate::table_service::{Clock, Command, LOG_COMMANDS_MAX};

/// A service with a log simulated by the test.
struct Bench {
    service: TableService,
    log: Receiver<LogCommand>,
}

type Answer = oneshot::Receiver<Result<u64, Refusal>>;

/// Returns a trajectory of four steps searched by `version`, with the value `version / 4`.
fn trajectory(sequence: u64, version: u64) -> Trajectory {
    let policy = vec![ActionProbability { action: Action(0), probability: 1.0 }];
    let kind = StepKind::Full { policy, value: version as f32 / 4.0 };
    let step = Step { action: Action(0), reward: 0.0, kind, weights_version: WeightsVersion(version) };
    let id = TrajectoryId { actor: 1, epoch: 1, sequence };
    Trajectory::of(id, "connect_four", &vec![step; 4], Outcome::Draw).unwrap()
}

fn id(sequence: u64) -> TrajectoryId {
    trajectory(sequence, 1).id()
}

impl Bench {
    fn new() -> Self {
        let mut config = crate::Config::default();
        // Two trajectories of four items.
        (config.replay.main.capacity_items, config.replay.main.window_items_min) = (8, 8);
        config.replay.main.min_items = 4;
        let settings = config.settings().unwrap();
        let (_, restored, _) = storage::restore(Memory::default(), &settings, storage::Startup::in_tests()).unwrap();
        let (to_log, log) = sync_channel(LOG_COMMANDS_MAX);
        Self { service: TableService::new(restored, &settings, to_log, Clock::start()), log }
    }

    /// Returns a service with the trajectories 0 and 1.
    fn holding() -> Self {
        let mut bench = Self::new();
        (0..2).for_each(|sequence| bench.insert(sequence));
        bench.commit();
        bench
    }

    fn insert(&mut self, sequence: u64) {
        let (reply, _answers) = mpsc::channel(4);
        let (trajectory, inserted) = (trajectory(sequence, 1), UnixMillis(5));
        let content = storage::encode(&trajectory, inserted).unwrap();
        self.service.apply(Command::Insert { trajectory, content, inserted, reply: reply.into() }, Instant::now());
    }

    fn revise(&mut self, trajectory: Trajectory, from: u64) -> Answer {
        let (reply, answer) = oneshot::channel();
        let at = UnixMillis(9);
        let content = storage::encode_revision(&trajectory, from + 1, at).unwrap();
        let revised = Revisable { trajectory, revision: from };
        self.service.apply(Command::Revise { revised, content, at, reply }, Instant::now());
        answer
    }

    fn entries(&mut self) -> Vec<Entry> {
        let commands = self.log.try_iter();
        commands
            .filter_map(|command| if let LogCommand::Append(entry) = command { Some(entry) } else { None })
            .collect()
    }

    fn commit(&mut self) {
        let committed = LogEvent::Committed { entries: self.entries(), segment: SegmentNumber(1), bytes: 9 };
        self.service.apply(Command::Log(committed), Instant::now());
    }

    fn fail(&mut self) {
        let failed = LogEvent::Failed { entries: self.entries(), error: "no space left".into() };
        self.service.apply(Command::Log(failed), Instant::now());
    }

    /// Returns the revision of a trajectory and the version of the last step.
    fn held(&mut self, sequence: u64) -> Option<(u64, u64)> {
        let located = self.service.get(id(sequence))?;
        Some((located.revision, located.trajectory.last_weights_version().0))
    }
}

#[test]
fn a_revision_replaces_the_searches_when_it_is_durable_and_not_before_and_counts_as_nothing_else() {
    let mut bench = Bench::holding();
    let before = bench.service.stats(TableIndex::MAIN);
    let mut answer = bench.revise(trajectory(0, 3), 0);
    assert!(answer.try_recv().is_err());
    assert_eq!(bench.held(0), Some((0, 1)));
    bench.commit();
    assert_eq!(answer.try_recv().unwrap(), Ok(1));
    assert_eq!(bench.held(0), Some((1, 3)));
    let located = bench.service.get(id(0)).unwrap();
    assert_eq!((located.inserted_unix_ms, located.revised_unix_ms), (5, 9));
    let mut expected = before;
    // The revised trajectory is the oldest, and the log has grown as the test set.
    expected.table.oldest.as_mut().unwrap().weights_version = 3;
    // The first revision builds an index by id.
    let now = bench.service.stats(TableIndex::MAIN);
    assert!(now.memory_bytes > expected.memory_bytes && now.memory_bytes < expected.memory_bytes + 200);
    assert_eq!(now, ServerStats { memory_bytes: now.memory_bytes, ..expected });
}

#[test]
fn of_two_revisions_of_the_same_searches_the_first_wins_and_a_repeated_one_changes_nothing() {
    let mut bench = Bench::holding();
    let (mut first, mut second) = (bench.revise(trajectory(0, 3), 0), bench.revise(trajectory(0, 4), 0));
    let stale = |from| Err(Refusal::StaleRevision { id: id(0), held: 1, from });
    assert_eq!(second.try_recv().unwrap(), stale(0), "it is refused while the first is on its way");
    bench.commit();
    assert_eq!(first.try_recv().unwrap(), Ok(1));
    assert_eq!(bench.revise(trajectory(0, 3), 0).try_recv().unwrap(), stale(0));
    assert_eq!(bench.revise(trajectory(0, 3), 2).try_recv().unwrap(), stale(2), "the number is from the future");
    assert_eq!((bench.held(0), bench.entries().len()), (Some((1, 3)), 0));
    let mut next = bench.revise(trajectory(0, 4), 1);
    bench.commit();
    assert_eq!((next.try_recv().unwrap(), bench.held(0)), (Ok(2), Some((2, 4))));
}

#[test]
fn a_revision_of_a_trajectory_that_is_evicted_before_or_meanwhile_is_refused() {
    let mut bench = Bench::holding();
    assert_eq!(bench.revise(trajectory(7, 3), 0).try_recv().unwrap(), Err(Refusal::NotHeld(id(7))));
    // The insert becomes durable first, and evicts the oldest trajectory.
    bench.insert(2);
    let mut evicted = bench.revise(trajectory(0, 3), 0);
    let mut kept = bench.revise(trajectory(1, 3), 0);
    bench.commit();
    assert_eq!(evicted.try_recv().unwrap(), Err(Refusal::NotHeld(id(0))));
    assert_eq!(kept.try_recv().unwrap(), Ok(1));
    assert_eq!((bench.held(0), bench.held(1), bench.held(2)), (None, Some((1, 3)), Some((0, 1))));
    assert_eq!(bench.service.in_flight.bytes, 0);
}

#[test]
fn another_episode_and_searches_by_older_weights_are_refused() {
    let mut bench = Bench::holding();
    let step = trajectory(0, 3).steps().next().unwrap();
    let other = Trajectory::of(id(0), "connect_four", &vec![step; 5], Outcome::Draw).unwrap();
    let Err(Refusal::OtherEpisode(invalid)) = bench.revise(other, 0).try_recv().unwrap() else { panic!() };
    assert_eq!(invalid.field, "plies");
    let older = Refusal::OlderWeights { id: id(0), held: WeightsVersion(1), sent: WeightsVersion(0) };
    assert_eq!(bench.revise(trajectory(0, 0), 0).try_recv().unwrap(), Err(older));
    assert_eq!((bench.held(0), bench.entries().len()), (Some((0, 1)), 0));
}

#[test]
fn a_revision_that_the_log_failed_to_write_changes_nothing_and_may_be_sent_again() {
    let mut bench = Bench::holding();
    let mut answer = bench.revise(trajectory(0, 3), 0);
    bench.fail();
    assert_eq!(answer.try_recv().unwrap(), Err(Refusal::RevisionNotStored("no space left".into())));
    assert_eq!((bench.held(0), bench.service.in_flight.bytes), (Some((0, 1)), 0));
    let mut again = bench.revise(trajectory(0, 3), 0);
    bench.commit();
    assert_eq!((again.try_recv().unwrap(), bench.held(0)), (Ok(1), Some((1, 3))));
}

#[test]
fn revisions_leave_room_in_the_log_for_inserts_and_are_finished_by_a_drain() {
    let mut bench = Bench::new();
    let mut settings = bench.service.tables[0].settings().clone();
    settings.table.window.capacity_items = 1 << 20;
    bench.service.tables[0].hold_to(settings);
    let count = REVISIONS_IN_LOG_MAX as u64;
    (0..count + 1).for_each(|sequence| bench.insert(sequence));
    bench.commit();
    let mut answers: Vec<Answer> = (0..count).map(|sequence| bench.revise(trajectory(sequence, 2), 0)).collect();
    let refused = bench.revise(trajectory(count, 2), 0).try_recv().unwrap();
    assert_eq!(refused, Err(Refusal::TooManyRevisions(REVISIONS_IN_LOG_MAX)));
    bench.insert(count + 1);
    bench.service.apply(Command::Drain, Instant::now());
    assert_eq!(bench.revise(trajectory(count, 2), 0).try_recv().unwrap(), Err(Refusal::Draining));
    bench.commit();
    assert!(answers.iter_mut().all(|answer| answer.try_recv().unwrap() == Ok(1)));
    assert_eq!(bench.service.stats(TableIndex::MAIN).table.trajectories, count + 2);
}

#[test]
fn a_choice_is_a_trajectory_of_older_weights_with_its_revision_and_counts_as_no_sample() {
    let mut bench = Bench::holding();
    bench.revise(trajectory(0, 3), 0);
    bench.commit();
    let before = bench.service.stats(TableIndex::MAIN);
    let mut choose = |older_than| {
        let (reply, mut chosen) = oneshot::channel();
        bench.service.apply(Command::Choose(TableIndex::MAIN, WeightsVersion(older_than), reply), Instant::now());
        chosen.try_recv().unwrap().map(|chosen: Revisable| (chosen.trajectory.id().sequence, chosen.revision))
    };
    let chosen: std::collections::BTreeSet<_> = (0..40).map(|_| choose(4)).collect();
    assert_eq!(chosen, [Some((0, 1)), Some((1, 0))].into());
    assert_eq!((choose(3), choose(1)), (Some((1, 0)), None));
    assert_eq!(bench.service.stats(TableIndex::MAIN), before);
}

#[test]
fn a_revision_beyond_the_memory_limit_is_refused() {
    let mut bench = Bench::new();
    bench.insert(0);
    bench.commit();
    bench.service.memory_bytes_max = Some(1);
    let mut refused = bench.revise(trajectory(0, 3), 0);
    assert_eq!(refused.try_recv().unwrap(), Err(Refusal::OverMemory { id: id(0), bytes_max: 1 }));
    bench.service.memory_bytes_max = None;
    bench.insert(1);
    bench.commit();
    bench.service.memory_bytes_max = Some(1);
    let mut passes = bench.revise(trajectory(1, 3), 0);
    bench.commit();
    assert_eq!(passes.try_recv().unwrap(), Ok(1), "one always passes while the tables are full");
}
