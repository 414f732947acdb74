//! A seeded simulation of log, storage and table service on a disk with power losses: no threads, no clock, no files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use experience::{Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Outcome};
use proto::replay::Revisable;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use run_file::replay::Ack;
use run_file::replay::{MAIN, SelectorName, TableKeys, TableSection};
use tokio::sync::{mpsc, oneshot};
use weights::WeightsVersion;

use super::*;
use crate::log::committer::{Committer, LogCommand, LogEvent};
use crate::log::power_disk::{Faults, PowerDisk};
use crate::log::tests::Memory;
use crate::log::{Counters, Entry};
use crate::table_service::{Clock, Command, Inserted, LOG_COMMANDS_MAX, Refusal, Sampled, TableService};

mod earlier_revisions;
mod startup;

const ITEMS: u64 = 4;
const CAPACITY_ITEMS: u64 = 60;
const STEPS: usize = 120;
/// Number of seeds on request; CI runs the first [`SEEDS_IN_CI`].
const SEEDS: u64 = 1000;
const SEEDS_IN_CI: u64 = 120;

fn seeds() -> u64 {
    std::env::var("ZEROFLEET_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS_IN_CI)
}

fn settings() -> Settings {
    let mut config = crate::Config::default();
    config.replay.main.min_items = 4;
    config.replay.main.samples_per_insert = 2.0;
    config.replay.main.error_items = 200.0;
    config.replay.main.capacity_items = CAPACITY_ITEMS;
    config.replay.main.window_items_min = 20;
    // A table that holds more than the main table, draws by priority and does not block inserts.
    config.replay.tables = vec![TableSection {
        name: "long".to_owned(),
        keys: TableKeys {
            selector: SelectorName::Prioritised,
            min_items: 4,
            capacity_items: 2 * CAPACITY_ITEMS,
            window_items_min: 20,
            ..TableKeys::default()
        },
        blocks_inserts: false,
    }];
    // The segment size is below the minimum of the configuration, so that a short run has many segments.
    Settings { segment_bytes: 1500, ..config.settings().unwrap() }
}

fn trajectory(id: TrajectoryId) -> Trajectory {
    let policy = vec![experience::ActionProbability { action: Action(0), probability: 1.0 }];
    let kind = StepKind::Full { policy, value: 0.0 };
    let step = Step { action: Action(0), reward: 0.0, kind, weights_version: WeightsVersion(id.sequence) };
    Trajectory::of(id, "connect_four", &vec![step; ITEMS as usize], Outcome::Draw).unwrap()
}

/// Returns the trajectory in revision `revision`, searched by weights version `id.sequence + revision`.
fn revised(id: TrajectoryId, revision: u64) -> Trajectory {
    let mut steps: Vec<Step> = trajectory(id).steps().collect();
    for step in &mut steps {
        step.weights_version = WeightsVersion(id.sequence + revision);
    }
    Trajectory::of(id, "connect_four", &steps, Outcome::Draw).unwrap()
}

/// One run of the process.
struct Server {
    tables: TableService,
    commands: Receiver<LogCommand>,
    committer: Committer<PowerDisk>,
    waiting: Vec<mpsc::Receiver<Inserted>>,
    batches: Vec<mpsc::Receiver<Sampled>>,
    revising: Vec<(TrajectoryId, oneshot::Receiver<Result<u64, Refusal>>)>,
}

/// The simulated clients, disk and server, and the state seen by the clients.
struct World {
    seed: u64,
    rng: ChaCha8Rng,
    settings: Settings,
    ack: Ack,
    disk: PowerDisk,
    server: Server,
    /// Next sequence of each actor.
    next: [u64; 2],
    /// Trajectories sent and not yet acknowledged.
    unanswered: BTreeSet<TrajectoryId>,
    /// Acknowledged trajectories.
    acknowledged: BTreeMap<TrajectoryId, Survival>,
    /// Trajectories with a written quarantine.
    quarantined: BTreeMap<TrajectoryId, Survival>,
    /// Last acknowledged revision per trajectory.
    revisions: BTreeMap<TrajectoryId, (u64, Survival)>,
    /// Trajectories that the capacity removed from the table.
    removed: BTreeSet<TrajectoryId>,
    drawn: u64,
    drawn_durable: u64,
    log: Vec<String>,
}

/// The fate of a record if the machine stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Survival {
    Certain,
    /// The record survives after the next sync.
    Pending,
    /// A sync has failed: the fate is unknown.
    Unknown,
}

fn start(disk: &PowerDisk, settings: &Settings, ack: Ack) -> Result<(Server, Counters), String> {
    let (log, restored, _) =
        restore(disk.clone(), settings, Startup::in_tests()).map_err(|error| format!("{error:?}"))?;
    let counters = log.state().counters;
    let seen: u64 = log.state().seen.intervals().map(|(_, _, ids)| ids.end() - ids.start() + 1).sum();
    assert_eq!(counters.trajectories, seen, "what was counted is what was seen");
    assert_eq!(counters.items, ITEMS * seen);
    for table in &restored.tables {
        let (counts, items) = (table.limiter().counts(), table.table().items());
        assert_eq!((counts.inserted, counts.inserted - counts.deleted), (counters.items, items), "{}", table.name());
    }
    let held = restored.tables.iter().map(|table| table.table().trajectories()).max();
    assert_eq!(Some(restored.segments.trajectories()), held.map(|held| held as u64));
    let (to_log, commands) = sync_channel(LOG_COMMANDS_MAX);
    let tables = TableService::new(restored, settings, to_log, Clock::start());
    let committer = Committer::new(log, ack);
    let (waiting, batches, revising) = (Vec::new(), Vec::new(), Vec::new());
    Ok((Server { tables, commands, committer, waiting, batches, revising }, counters))
}

impl World {
    fn new(seed: u64, ack: Ack) -> Self {
        let (settings, disk) = (settings(), PowerDisk::new(seed));
        let (server, _) = start(&disk, &settings, ack).unwrap();
        let rng = ChaCha8Rng::seed_from_u64(!seed);
        Self {
            seed,
            rng,
            settings,
            ack,
            disk,
            server,
            next: [0; 2],
            unanswered: BTreeSet::new(),
            acknowledged: BTreeMap::new(),
            quarantined: BTreeMap::new(),
            revisions: BTreeMap::new(),
            removed: BTreeSet::new(),
            drawn: 0,
            drawn_durable: 0,
            log: Vec::new(),
        }
    }

    /// Returns the survival of a record acknowledged now.
    fn survival(&self) -> Survival {
        if self.ack == Ack::Fsync { Survival::Certain } else { Survival::Pending }
    }

    fn settle(&mut self, survival: Survival) {
        let revisions = self.revisions.values_mut().map(|(_, survival)| survival);
        let pending = self.acknowledged.values_mut().chain(self.quarantined.values_mut()).chain(revisions);
        pending.filter(|survival| **survival == Survival::Pending).for_each(|pending| *pending = survival);
    }

    fn note(&mut self, what: String) {
        self.log.push(what);
    }

    fn apply(&mut self, command: Command) {
        self.server.tables.apply(command, Instant::now());
        self.receive();
    }

    /// Receives all available replies.
    fn receive(&mut self) {
        let mut answers = Vec::new();
        self.server.waiting.retain_mut(|waiting| match waiting.try_recv() {
            Ok(answer) => {
                answers.push(answer);
                false
            }
            Err(mpsc::error::TryRecvError::Empty) => true,
            Err(mpsc::error::TryRecvError::Disconnected) => false,
        });
        for answer in answers {
            match answer {
                Inserted::New(id) => {
                    assert!(!self.acknowledged.contains_key(&id), "{id} was acknowledged as new before");
                    self.unanswered.remove(&id);
                    self.acknowledged.insert(id, self.survival());
                }
                Inserted::Stale(id) => panic!("{id} is stale, and no table bounds the lag"),
                Inserted::Duplicate(id) => {
                    self.unanswered.remove(&id);
                    let survival = self.survival();
                    self.acknowledged.entry(id).or_insert(survival);
                }
                Inserted::NotStored(id, _) | Inserted::Draining(id) | Inserted::OverMemory { id, .. } => {
                    self.unanswered.insert(id);
                }
            }
        }
        let mut revised = Vec::new();
        self.server.revising.retain_mut(|(id, answer)| match answer.try_recv() {
            Ok(answer) => {
                revised.extend(answer.ok().map(|revision| (*id, revision)));
                false
            }
            Err(oneshot::error::TryRecvError::Empty) => true,
            Err(oneshot::error::TryRecvError::Closed) => false,
        });
        for (id, revision) in revised {
            let before = self.revisions.insert(id, (revision, self.survival())).map_or(0, |(before, _)| before);
            assert_eq!(revision, before + 1, "{id} has a revision that was not computed from the last one");
        }
        for batches in &mut self.server.batches {
            while let Ok(sampled) = batches.try_recv() {
                // The log counts the samples of the main table.
                if let Sampled::Batch { drawn, table } = sampled
                    && table.name == MAIN
                {
                    self.drawn += drawn.len() as u64;
                }
            }
        }
    }

    fn insert(&mut self, id: TrajectoryId) {
        let trajectory = trajectory(id);
        let inserted = UnixMillis(id.sequence);
        let content = encode(&trajectory, inserted).unwrap();
        let (reply, answers) = mpsc::channel(1);
        if !self.acknowledged.contains_key(&id) {
            self.unanswered.insert(id);
        }
        self.server.waiting.push(answers);
        self.apply(Command::Insert { trajectory, content, inserted, reply: reply.into() });
    }

    /// Sends new searches of a trajectory; some are based on the revision before the last.
    fn revise(&mut self, id: TrajectoryId) {
        let (held, _) = self.revisions.get(&id).copied().unwrap_or((0, Survival::Certain));
        let from = held - u64::from(held > 0 && self.rng.random_bool(0.2));
        let (trajectory, at) = (revised(id, from + 1), UnixMillis(id.sequence));
        let content = encode_revision(&trajectory, from + 1, at).unwrap();
        let (reply, answer) = oneshot::channel();
        self.server.revising.push((id, answer));
        let revised = Revisable { trajectory, revision: from };
        self.apply(Command::Revise { revised, content, at, reply });
    }

    /// Returns the revisions of all held trajectories, after checking that the searches match the revision.
    fn held_revisions(&mut self) -> BTreeMap<TrajectoryId, u64> {
        let revision = |world: &mut Self, id: TrajectoryId| {
            let (reply, mut answer) = oneshot::channel();
            world.apply(Command::Get(id, reply));
            let located = answer.try_recv().unwrap().unwrap();
            assert_eq!(located.trajectory, revised(id, located.revision));
            (id, located.revision)
        };
        self.held().into_iter().map(|id| revision(self, id)).collect()
    }

    fn new_id(&mut self) -> TrajectoryId {
        let actor = self.rng.random_range(0..self.next.len());
        // Actors skip sequence numbers too: a trajectory rejected as invalid is never inserted.
        self.next[actor] += if self.rng.random_bool(0.1) { 2 } else { 1 };
        TrajectoryId { actor: actor as u64, epoch: 1, sequence: self.next[actor] }
    }

    fn any(&mut self, ids: Vec<TrajectoryId>) -> Option<TrajectoryId> {
        (!ids.is_empty()).then(|| ids[self.rng.random_range(0..ids.len())])
    }

    fn held(&mut self) -> Vec<TrajectoryId> {
        let (reply, mut answer) = oneshot::channel();
        self.apply(Command::Held(TableIndex::MAIN, reply));
        let mut ids: Vec<_> = answer.try_recv().unwrap().iter().map(|trajectory| trajectory.id()).collect();
        ids.sort_unstable();
        ids
    }

    /// Simulates the log thread, which takes some commands and commits them.
    fn commit(&mut self) {
        let take = self.rng.random_range(1..12);
        let commands: Vec<LogCommand> = self.server.commands.try_iter().take(take).collect();
        commands.into_iter().for_each(|command| self.server.committer.take(command));
        let mut events = Vec::new();
        self.server.committer.commit(&mut |event| events.push(event));
        for event in events {
            if let LogEvent::Committed { entries, .. } = &event {
                for entry in entries {
                    if let Entry::Operator(OperatorRecord::Quarantine(Suspect::Trajectory(id))) = entry {
                        self.quarantined.insert(*id, self.survival());
                    }
                }
            }
            let before: BTreeSet<TrajectoryId> = self.held().into_iter().collect();
            self.apply(Command::Log(event));
            let after: BTreeSet<TrajectoryId> = self.held().into_iter().collect();
            self.removed.extend(before.difference(&after));
        }
        if self.server.committer.is_failing {
            self.settle(Survival::Unknown);
        }
        self.drawn_durable = self.server.committer.log().synced().samples;
    }

    /// Simulates the periodic sync.
    fn sync(&mut self) {
        self.server.committer.sync();
        if self.server.committer.is_failing {
            self.settle(Survival::Unknown);
        } else {
            self.settle(Survival::Certain);
        }
        self.drawn_durable = self.server.committer.log().synced().samples;
    }

    fn step(&mut self) {
        let choice = self.rng.random_range(0..100);
        self.note(format!("{choice}"));
        match choice {
            0..34 => {
                let id = self.new_id();
                self.insert(id);
            }
            34..40 => {
                let ids = self.unanswered.iter().copied().collect();
                if let Some(id) = self.any(ids) {
                    self.insert(id);
                }
            }
            40..43 => {
                let ids = self
                    .acknowledged
                    .iter()
                    .filter(|(_, survival)| **survival == Survival::Certain)
                    .map(|(id, _)| *id)
                    .collect();
                if let Some(id) = self.any(ids) {
                    let (reply, mut answer) = mpsc::channel(1);
                    let inserted = UnixMillis(0);
                    let trajectory = trajectory(id);
                    let content = encode(&trajectory, inserted).unwrap();
                    self.apply(Command::Insert { trajectory, content, inserted, reply: reply.into() });
                    assert_eq!(answer.try_recv().unwrap(), Inserted::Duplicate(id));
                }
            }
            43..56 => {
                let items = self.rng.random_range(1..20);
                let (reply, batches) = mpsc::channel(100);
                self.server.batches.push(batches);
                let table = TableIndex(self.rng.random_range(0..2));
                self.apply(Command::Sample { table, items, reply });
            }
            56..78 => self.commit(),
            78..82 => self.sync(),
            82..85 => self.apply(Command::Tick),
            85..87 => {
                let held = self.held();
                if let Some(id) = self.any(held) {
                    let (reply, _answer) = oneshot::channel();
                    self.apply(Command::Report(id, reply));
                }
            }
            87 => {
                let held = self.held();
                for _ in 0..4 {
                    if let Some(id) = self.any(held.clone()) {
                        self.revise(id);
                    }
                }
            }
            88..91 => {
                let room = self.rng.random_range(0..700);
                self.disk.set_faults(Faults { room: Some(room), ..Faults::default() });
            }
            91..93 => self.disk.set_faults(Faults { sync: 0.5, cut: 0.3, ..Faults::default() }),
            93..96 => self.disk.set_faults(Faults::default()),
            96 | 97 => self.crash(End::Process),
            98 => self.crash(End::Machine),
            _ => self.drain(),
        }
    }

    fn drain(&mut self) {
        self.apply(Command::Drain);
        for _ in 0..200 {
            self.commit();
        }
        self.server.committer.finish();
        self.crash(End::Process);
    }

    fn crash(&mut self, end: End) {
        let before: BTreeSet<TrajectoryId> = self.held().into_iter().collect();
        // Entries that could not be written are only in memory, and are lost with the process.
        let (mut unwritten, mut unwritten_revisions) = (BTreeSet::new(), BTreeSet::new());
        for entry in &self.server.committer.unwritten {
            match entry {
                Entry::Trajectory { id, .. } | Entry::Operator(OperatorRecord::Quarantine(Suspect::Trajectory(id))) => {
                    unwritten.insert(*id);
                }
                Entry::Revision { id, .. } => {
                    unwritten_revisions.insert(*id);
                }
                Entry::Operator(_) => {}
            }
        }
        match end {
            End::Process => self.disk.end_process(),
            End::Machine => self.disk.lose_power(),
        }
        self.disk.set_faults(Faults::default());
        let (server, counters) = start(&self.disk, &self.settings, self.ack).unwrap();
        self.server = server;
        self.check(end, &before, &unwritten, counters);
        let revisions = self.held_revisions();
        for (id, &(revision, survival)) in &self.revisions {
            let survives = match end {
                End::Process => !unwritten_revisions.contains(id),
                End::Machine => survival == Survival::Certain,
            };
            let held = revisions.get(id).copied();
            // One later revision may be written and not yet acknowledged.
            assert!(
                held.is_none_or(|held| held <= revision + 1),
                "{id} has the revision {held:?}, {revision} was last"
            );
            assert!(
                !survives || held.is_none_or(|held| held >= revision),
                "revision {revision} of {id} is lost: {held:?}"
            );
        }
        self.revisions = revisions.into_iter().map(|(id, revision)| (id, (revision, Survival::Certain))).collect();
        // The restored trajectories are durable now. All other trajectories are sent again, or were lost as the
        // acknowledgement mode allows.
        let held: BTreeSet<TrajectoryId> = self.held().into_iter().collect();
        self.removed.retain(|id| !held.contains(id));
        self.acknowledged.retain(|id, survival| *survival == Survival::Certain || held.contains(id));
        self.quarantined = self.server.tables.quarantined().map(|id| (id, Survival::Certain)).collect();
        self.acknowledged.values_mut().for_each(|survival| *survival = Survival::Certain);
        self.drawn = counters.samples;
        self.drawn_durable = counters.samples;
    }

    fn check(
        &mut self,
        end: End,
        before: &BTreeSet<TrajectoryId>,
        unwritten: &BTreeSet<TrajectoryId>,
        counters: Counters,
    ) {
        let list = self.held();
        let held: BTreeSet<TrajectoryId> = list.iter().copied().collect();
        assert_eq!(held.len(), list.len(), "one is held twice");
        let sent = |id: &TrajectoryId| self.acknowledged.contains_key(id) || self.unanswered.contains(id);
        assert!(held.iter().all(sent), "one is held that was never sent");
        // The trajectories that evicted them may be lost too, unless they were acknowledged on disk.
        let is_exact = self.ack == Ack::Fsync || (end == End::Process && unwritten.is_empty());
        let came_back: Vec<_> = held.intersection(&self.removed).filter(|_| is_exact).collect();
        assert_eq!(came_back, Vec::<&TrajectoryId>::new(), "removed ones came back");
        assert!(counters.samples <= self.drawn, "{} samples of {} drawn", counters.samples, self.drawn);
        assert!(counters.samples >= self.drawn_durable, "{} samples of {}", counters.samples, self.drawn_durable);
        let survives = |id: &TrajectoryId, survival: Survival| match end {
            End::Process => !unwritten.contains(id),
            End::Machine => survival == Survival::Certain,
        };
        for (id, _) in self.acknowledged.iter().filter(|(id, survival)| survives(id, **survival)) {
            let kept = held.contains(id) || !before.contains(id) || held.len() as u64 * ITEMS >= CAPACITY_ITEMS;
            assert!(kept, "{id} was acknowledged and is lost");
        }
        let in_quarantine: BTreeSet<TrajectoryId> = self.server.tables.quarantined().collect();
        for (id, _) in self.quarantined.iter().filter(|(id, survival)| survives(id, **survival)) {
            assert!(in_quarantine.contains(id) || !held.contains(id), "{id} is out of quarantine");
        }
    }

    /// Finishes the simulation on a disk without faults: all unanswered trajectories are sent again, stored, and
    /// survive.
    fn end(&mut self) {
        self.disk.set_faults(Faults::default());
        self.crash(End::Machine);
        for _ in 0..400 {
            let ids: Vec<TrajectoryId> = self.unanswered.iter().copied().collect();
            ids.into_iter().for_each(|id| self.insert(id));
            self.commit();
            let (reply, batches) = mpsc::channel(100);
            self.server.batches.push(batches);
            self.apply(Command::Sample { table: TableIndex::MAIN, items: 8, reply });
            if self.unanswered.is_empty() {
                break;
            }
        }
        assert_eq!(self.unanswered, BTreeSet::new(), "some were never taken");
        self.sync();
        self.crash(End::Machine);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Process,
    Machine,
}

#[allow(clippy::print_stderr, reason = "a failed simulation shows its seed")]
fn simulate(ack: Ack, seeds: u64) {
    struct PrintOnPanic<'a>(&'a mut World);
    impl Drop for PrintOnPanic<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let World { seed, ack, log, .. } = &*self.0;
                eprintln!("seed {seed} with {ack:?}, after the steps {}", log.join(" "));
            }
        }
    }
    for seed in 0..seeds {
        let mut world = World::new(seed, ack);
        let world = PrintOnPanic(&mut world);
        for _ in 0..STEPS {
            world.0.step();
        }
        world.0.end();
    }
}

#[test]
fn no_crash_loses_or_duplicates_a_trajectory_acknowledged_on_disk() {
    simulate(Ack::Fsync, seeds());
}

#[test]
fn the_end_of_the_process_loses_nothing_that_was_acknowledged_in_the_file() {
    simulate(Ack::Flushed, seeds());
}

#[test]
fn a_trajectory_acknowledged_in_memory_is_never_duplicated() {
    simulate(Ack::Memory, seeds());
}

#[test]
#[ignore = "takes a minute: run it after changes to the log"]
fn a_thousand_simulated_runs_of_each_mode_lose_and_duplicate_nothing() {
    [Ack::Fsync, Ack::Flushed, Ack::Memory].into_iter().for_each(|ack| simulate(ack, SEEDS));
}

#[test]
fn a_trajectory_of_another_game_is_refused_by_name() {
    let id = TrajectoryId { actor: 1, epoch: 1, sequence: 0 };
    let other = Settings { game: "chess".to_owned(), ..settings() };
    assert_eq!(decode(id, trajectory(id).columns(), &settings()), Ok(trajectory(id)));
    let error = decode(id, trajectory(id).columns(), &other).unwrap_err();
    assert_eq!(error, "game: is \"connect_four\", the table holds \"chess\"");
}

/// Commits each entry separately; returns the files.
fn files_of(entries: &[Entry]) -> BTreeMap<String, Vec<u8>> {
    let memory = Memory::default();
    let (mut log, _, _) =
        restore(memory.clone(), &Settings { segment_bytes: 1 << 20, ..settings() }, Startup::in_tests()).unwrap();
    for entry in entries {
        log.commit(std::slice::from_ref(entry), 0).unwrap();
    }
    memory.files()
}

fn id(sequence: u64) -> TrajectoryId {
    TrajectoryId { actor: 0, epoch: 1, sequence }
}

fn insert_entry(sequence: u64) -> Entry {
    let content = encode(&trajectory(id(sequence)), UnixMillis(1)).unwrap();
    Entry::Trajectory { id: id(sequence), items: ITEMS as u32, content }
}

fn revision_entry(sequence: u64, revision: u64) -> Entry {
    let trajectory = revised(id(sequence), revision);
    Entry::Revision { id: id(sequence), content: encode_revision(&trajectory, revision, UnixMillis(revision)).unwrap() }
}

/// Restores the tables; returns, per table, the revision of each trajectory, oldest first.
fn restored_revisions(files: BTreeMap<String, Vec<u8>>) -> Vec<Vec<u64>> {
    let (_, restored, _) = restore(Memory::with(files), &settings(), Startup::in_tests()).unwrap();
    let revisions = |table: &TableState| {
        let mut held: Vec<_> = table.table().held().collect();
        held.reverse();
        let revision = |held: &replay::Held<'_>| {
            assert_eq!(*held.trajectory, revised(held.trajectory.id(), held.revision));
            assert_eq!(held.revised.map(|at| at.as_millis() as u64), (held.revision > 0).then_some(held.revision));
            held.revision
        };
        assert!(table.table().totals().trajectories <= 2, "a revision counts as no insert");
        held.iter().map(revision).collect()
    };
    restored.tables.iter().map(revisions).collect()
}

#[test]
fn a_log_cut_anywhere_restores_the_last_whole_revision_of_each_trajectory() {
    let entries = [insert_entry(0), insert_entry(1), revision_entry(0, 1), revision_entry(1, 1), revision_entry(0, 2)];
    let expected: [&[u64]; 6] = [&[], &[0], &[0, 0], &[1, 0], &[1, 1], &[2, 1]];
    let (name, bytes) = files_of(&entries).pop_first().unwrap();
    let frames = crate::log::frame::scan(crate::log::SegmentNumber(1), &bytes).unwrap().frames;
    let ends: Vec<usize> =
        frames.iter().map(|(at, payload)| at + crate::log::frame::HEADER_BYTES + payload.len()).collect();
    for length in 0..=bytes.len() {
        // Frames: the head, then counters and an entry for each commit.
        let whole = ends.iter().filter(|&&end| end <= length).count();
        let entries = whole.saturating_sub(1) / 2;
        let restored = restored_revisions([(name.clone(), bytes[..length].to_vec())].into());
        assert!(restored.iter().all(|table| table == expected[entries]), "cut at {length}: {restored:?}");
    }
}

#[test]
fn a_damaged_revision_costs_itself_and_a_later_one_still_applies() {
    let entries = [insert_entry(0), revision_entry(0, 1), revision_entry(0, 2), revision_entry(0, 2)];
    let (name, bytes) = files_of(&entries).pop_first().unwrap();
    let frames = crate::log::frame::scan(crate::log::SegmentNumber(1), &bytes).unwrap().frames;
    let damaged = |entry: usize| {
        let mut bytes = bytes.clone();
        bytes[frames[2 * entry + 2].0 + crate::log::frame::HEADER_BYTES + 40] ^= 1;
        restored_revisions([(name.clone(), bytes)].into()).swap_remove(0)
    };
    // A lost trajectory has no revision, and the second copy of a record has no effect.
    assert_eq!([damaged(0), damaged(1), damaged(2), damaged(3)], [vec![], vec![2], vec![2], vec![2]]);
}

#[test]
fn a_revision_of_another_episode_or_of_a_lower_number_than_the_last_is_left_out() {
    let other =
        Trajectory::of(id(0), "connect_four", &vec![trajectory(id(0)).steps().next().unwrap(); 5], Outcome::Draw);
    let content = encode_revision(&other.unwrap(), 7, UnixMillis(7)).unwrap();
    let entries = [insert_entry(0), revision_entry(0, 3), revision_entry(0, 2), Entry::Revision { id: id(0), content }];
    assert_eq!(restored_revisions(files_of(&entries))[0], [3]);
}

#[test]
fn revisions_of_removed_trajectories_have_no_effect_at_a_restart() {
    // The main table holds 15 trajectories, the other table 30.
    let mut entries: Vec<Entry> = (0..40).map(insert_entry).collect();
    entries.extend((0..40).map(|sequence| revision_entry(sequence, 1)));
    let restored = restored_counts(files_of(&entries));
    assert_eq!(restored, [(15, 15), (30, 30)]);
}

/// Restores the tables; returns, per table, the number of trajectories and of trajectories at revision 1.
fn restored_counts(files: BTreeMap<String, Vec<u8>>) -> Vec<(usize, usize)> {
    let (_, restored, repairs) = restore(Memory::with(files), &settings(), Startup::in_tests()).unwrap();
    assert_eq!(repairs, []);
    let count = |table: &TableState| {
        let revised = table.table().held().filter(|held| held.revision == 1).count();
        (table.table().trajectories(), revised)
    };
    restored.tables.iter().map(count).collect()
}
