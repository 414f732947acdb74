//! The log of the replay server against a naive model, under I/O errors, process stops and power losses.
//!
//! The input is a sequence of operations, as in the fuzz target of redb: commits, writes and syncs, operator records,
//! segment removals, a countdown to I/O errors, and restarts of process or machine. It is independent of file formats.
//! Start with [`check`].

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use experience::TrajectoryId;
use proto::replay::Suspect;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use replay::SeenLimits;
use replay_server::defect::Planted;
use replay_server::log::power_disk::{Burst, Faults, PowerDisk};
use replay_server::log::{
    EncodedTrajectory, Entry, Log, LogSettings, OperatorRecord, Recovered, SegmentNumber, UnixMillis,
};
use run_file::replay::DamagedHead;

/// Maximum number of operations of one input.
const OPERATIONS_MAX: usize = 200;
/// Number of starts that may fail in a row before the disk works again.
const STARTS_MAX: usize = 12;
const GAME: &str = "connect_four";

/// Checks that a log interrupted at any operation opens again. It must have every acknowledged record once, no records
/// besides these and whole unacknowledged records, and the same state.
pub(crate) fn check(bytes: &[u8]) {
    let mut input = Input(bytes);
    let Some(how) = input.byte() else { return };
    let mut run = Run::new(how);
    run.start(Interruption::Kill);
    for _ in 0..OPERATIONS_MAX {
        let Some(operation) = input.byte() else { break };
        run.operate(operation, &mut input);
    }
    run.disk.set_faults(Faults::default());
    run.start(Interruption::PowerLoss);
    // The log still accepts records, and keeps them.
    let entries = [run.new_trajectory(0)];
    run.put(entries.into());
    run.sync();
    run.start(Interruption::PowerLoss);
}

/// Returns inputs that reach most operations; the corpus test mutates them.
#[allow(dead_code, reason = "used by the test of the corpus alone")]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    // Operations with arguments, as read by `Run::operate`.
    let commits = [0, 1, 1, 2, 0, 9];
    let operators = [7, 5, 8, 1, 8, 6, 9, 0, 7, 1, 6, 0];
    let samples = [10, 9];
    let mut seeds = Vec::new();
    for how in [0, 1, 6, 7, 14, 15] {
        let quiet = [&[how][..], &commits, &operators, &samples, &[11, 14], &commits, &[15, 3], &operators].concat();
        seeds.push(quiet);
        for countdown in [0, 1, 2, 5] {
            let fault = [13, countdown, how ^ countdown];
            let faulty =
                [&[how][..], &commits, &[11], &fault, &commits, &[11, 5, 0], &operators, &[15, 9], &commits, &fault];
            seeds.push([faulty.concat().as_slice(), &[14, 12, 2], &commits, &[11, 12, 3, 15, 200]].concat());
        }
    }
    seeds
}

/// Unread rest of an input.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    /// Returns the argument of an operation; 0 after the end.
    fn argument(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }
}

/// Way in which a process stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interruption {
    /// The kernel keeps all writes.
    Kill,
    /// The disk keeps synced data, and any part of the rest.
    PowerLoss,
}

/// Promise of the log for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    /// It is durable.
    Durable(SegmentNumber),
    /// It survives a process stop.
    Written(SegmentNumber),
    /// Nothing: a commit failed.
    Nothing,
    /// It may be lost, and the id may count as seen.
    Lost,
    /// The id counts as seen, and the record is no longer held.
    Seen,
}

/// The naive model of all promises of the log.
#[derive(Debug, Default)]
struct Model {
    trajectories: BTreeMap<TrajectoryId, Promise>,
    /// Trajectories in quarantine, which this check never releases.
    suspects: BTreeMap<TrajectoryId, Promise>,
    /// Revisions of each trajectory.
    revisions: BTreeMap<(TrajectoryId, u64), Promise>,
    /// Possible states of each actor: in quarantine or not.
    actors: BTreeMap<u64, BTreeSet<bool>>,
    /// Possible settings of each table.
    tables: BTreeMap<String, BTreeSet<Option<String>>>,
    /// Operator records that were written and not synced.
    unsynced: Vec<OperatorRecord>,
    /// Largest durable number of samples, and largest number sent.
    samples: (u64, u64),
    /// Records of earlier segments may be removed.
    dropped_before: Option<SegmentNumber>,
}

struct Run {
    disk: PowerDisk,
    log: Option<Log<PowerDisk>>,
    model: Model,
    /// True if records are written first and synced later; otherwise each commit syncs.
    writes_first: bool,
    segment_bytes: u64,
    starts: u8,
    sequence: u64,
}

impl Run {
    fn new(how: u8) -> Self {
        Self {
            disk: PowerDisk::new(u64::from(how)),
            log: None,
            model: Model::default(),
            writes_first: how & 1 == 1,
            segment_bytes: 300 + 200 * u64::from(how >> 1 & 7),
            starts: 0,
            sequence: 0,
        }
    }

    fn log(&mut self) -> &mut Log<PowerDisk> {
        self.log.as_mut().expect("the log is open between operations")
    }

    fn operate(&mut self, operation: u8, input: &mut Input<'_>) {
        let argument = input.argument();
        let chosen = |count: usize| usize::from(argument) % count.max(1);
        match operation & 15 {
            0..=4 => {
                let entries = (0..1 + chosen(3)).map(|index| self.new_trajectory(argument >> 2 & (1 << index)));
                let entries = entries.collect();
                self.put(entries);
            }
            5 => {
                let is_lost = |(id, promise): (&TrajectoryId, &Promise)| (*promise == Promise::Nothing).then_some(*id);
                let lost: Vec<TrajectoryId> = self.model.trajectories.iter().filter_map(is_lost).collect();
                if let Some(&id) = lost.get(chosen(lost.len())) {
                    self.put(vec![trajectory(id)]);
                }
            }
            6 => {
                let is_held =
                    |(id, promise): (&TrajectoryId, &Promise)| matches!(promise, Promise::Durable(_)).then_some(*id);
                let held: Vec<TrajectoryId> = self.model.trajectories.iter().filter_map(is_held).collect();
                if let Some(&id) = held.get(chosen(held.len())) {
                    let last = self.model.revisions.range((id, 0)..=(id, u64::MAX)).next_back();
                    self.put(vec![revision(id, last.map_or(0, |((_, number), _)| *number) + 1)]);
                }
            }
            7 => {
                let suspect = Suspect::Actor(u64::from(argument & 3));
                let record = if argument & 4 == 0 {
                    OperatorRecord::Quarantine(suspect)
                } else {
                    OperatorRecord::Release(suspect)
                };
                self.put(vec![Entry::Operator(record)]);
            }
            8 => {
                let settings = (argument & 2 == 0).then(|| format!("{{\"{argument}\":0}}"));
                let name = if argument & 1 == 0 { "main" } else { "late" }.to_owned();
                self.put(vec![Entry::Operator(OperatorRecord::Table { name, settings })]);
            }
            9 => {
                let ids: Vec<TrajectoryId> = self.model.trajectories.keys().copied().collect();
                if let Some(&id) = ids.get(chosen(ids.len())) {
                    let record = OperatorRecord::Quarantine(Suspect::Trajectory(id));
                    self.put(vec![Entry::Operator(record)]);
                }
            }
            10 => {
                self.model.samples.1 += u64::from(argument);
                self.put(Vec::new());
            }
            11 => self.sync(),
            12 => {
                let number = SegmentNumber(self.log().segment().0.saturating_sub(u64::from(argument & 7)));
                self.model.dropped_before = self.model.dropped_before.max(Some(number));
                // A failure leaves some segments for a later attempt.
                let _ = self.log().drop_before(number);
            }
            13 => {
                let burst = Burst { after: u32::from(argument & 15), count: 1 + u32::from(argument >> 4) };
                self.disk.set_faults(Faults { burst, ..Faults::default() });
            }
            14 => self.start(Interruption::Kill),
            _ => self.start(Interruption::PowerLoss),
        }
    }

    fn new_trajectory(&mut self, gap: u8) -> Entry {
        self.sequence += 1 + u64::from(gap & 1);
        trajectory(TrajectoryId { actor: u64::from(gap >> 1 & 1), epoch: 1, sequence: self.sequence })
    }

    /// Commits or writes entries, and records the promises of the log.
    fn put(&mut self, entries: Vec<Entry>) {
        let samples = self.model.samples.1;
        let writes_first = self.writes_first;
        let log = self.log();
        let before = log.state().clone();
        let put = if writes_first { log.write(&entries, samples) } else { log.commit(&entries, samples) };
        let promise = match &put {
            &Ok(segment) if writes_first => Promise::Written(segment),
            &Ok(segment) => Promise::Durable(segment),
            Err(_) => {
                assert_eq!(log.state(), &before, "a failed commit changed the state");
                Promise::Nothing
            }
        };
        if let Promise::Durable(_) = promise {
            self.model.samples.0 = samples;
        }
        // A full segment is synced before the next segment; if that fails, earlier writes may be lost.
        if writes_first && put.is_err() && !self.log().is_dirty() {
            self.model.written_may_be_lost();
        }
        for entry in entries {
            self.model.note(entry, promise);
        }
    }

    fn sync(&mut self) {
        let samples = self.log().state().counters.samples;
        if self.log().sync().is_ok() {
            self.model.samples.0 = samples;
            self.model.written_is_durable();
        } else {
            self.model.written_may_be_lost();
        }
    }

    /// Stops the process, and starts it until the log opens.
    fn start(&mut self, interruption: Interruption) {
        self.log = None;
        match interruption {
            Interruption::Kill => self.model.written_is_durable(),
            Interruption::PowerLoss => {
                self.disk.lose_power();
                self.model.unsynced.clear();
            }
        }
        for attempt in 0.. {
            if attempt == STARTS_MAX {
                self.disk.set_faults(Faults::default());
            }
            self.disk.end_process();
            self.starts = self.starts.wrapping_add(1);
            let mut recovered = Vec::new();
            let settings = LogSettings {
                game: GAME.to_owned(),
                segment_bytes: self.segment_bytes,
                threads: NonZeroUsize::MIN,
                salt_seed: [self.starts; 32],
                seen: SeenLimits::default(),
                damaged_head: DamagedHead::default(),
                planted: Planted::default(),
            };
            let decode = |_, content: &[u8]| Ok(content.to_vec());
            let opened = Log::open(self.disk.clone(), settings, decode, |segment, record| {
                recovered.push((segment, record));
            });
            match opened {
                Ok((log, _)) => {
                    self.model.compare(&log, &recovered, interruption);
                    self.log = Some(log);
                    return;
                }
                Err(error) => assert!(attempt < STARTS_MAX, "the disk works, and the log does not open: {error}"),
            }
        }
    }
}

impl Model {
    /// Records the promise for an entry.
    fn note(&mut self, entry: Entry, promise: Promise) {
        match entry {
            Entry::Trajectory { id, .. } => drop(self.trajectories.insert(id, promise)),
            Entry::Revision { id, content } => {
                let number = number_of(&content);
                self.revisions.insert((id, number), promise);
            }
            Entry::Operator(OperatorRecord::Quarantine(Suspect::Trajectory(id))) => {
                // An earlier record of the same trajectory keeps the promise made for it.
                let known = self.suspects.entry(id).or_insert(promise);
                if matches!(promise, Promise::Durable(_)) || *known == Promise::Nothing {
                    *known = promise;
                }
            }
            Entry::Operator(record) => {
                let is_certain = matches!(promise, Promise::Durable(_));
                self.allow(&record, is_certain);
                if let Promise::Written(_) = promise {
                    self.unsynced.push(record);
                }
            }
        }
    }

    /// Adds a possible state, or makes it the only one.
    fn allow(&mut self, record: &OperatorRecord, is_certain: bool) {
        match record {
            OperatorRecord::Quarantine(Suspect::Actor(actor)) | OperatorRecord::Release(Suspect::Actor(actor)) => {
                let states = self.actors.entry(*actor).or_insert_with(|| [false].into());
                if is_certain {
                    states.clear();
                }
                states.insert(matches!(record, OperatorRecord::Quarantine(_)));
            }
            OperatorRecord::Table { name, settings } => {
                let states = self.tables.entry(name.clone()).or_insert_with(|| [None].into());
                if is_certain {
                    states.clear();
                }
                states.insert(settings.clone());
            }
            record => unreachable!("{record:?} is not written here"),
        }
    }

    /// Marks all writes as durable, after a sync or after a process stop on a running machine.
    fn written_is_durable(&mut self) {
        for record in std::mem::take(&mut self.unsynced) {
            self.allow(&record, true);
        }
        self.each_promise(|promise| {
            if let Promise::Written(segment) = *promise {
                *promise = Promise::Durable(segment);
            }
        });
    }

    /// Marks all writes as possibly lost after a failed sync: the next head counts them, but a power loss may remove
    /// them.
    fn written_may_be_lost(&mut self) {
        self.unsynced.clear();
        self.each_promise(|promise| {
            if let Promise::Written(_) = *promise {
                *promise = Promise::Lost;
            }
        });
    }

    fn each_promise(&mut self, change: impl FnMut(&mut Promise)) {
        let promises = self.trajectories.values_mut().chain(self.suspects.values_mut());
        promises.chain(self.revisions.values_mut()).for_each(change);
    }

    /// Compares an opened log with the promises; from then on every record read is durable.
    fn compare(
        &mut self,
        log: &Log<PowerDisk>,
        recovered: &[(SegmentNumber, Recovered<Vec<u8>>)],
        after: Interruption,
    ) {
        let (mut trajectories, mut suspects, mut revisions) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (segment, record) in recovered {
            match record {
                Recovered::Trajectory { id, inserted, content } => {
                    assert_eq!((content, *inserted), (&content_of(*id, 0), time_of(*id)), "{id} has changed");
                    assert_eq!(trajectories.insert(*id, *segment), None, "{id} came twice");
                }
                Recovered::Revision { id, revision, revised, content } => {
                    assert_eq!((content, *revised), (&content_of(*id, *revision), time_of(*id)), "{id} has changed");
                    revisions.insert((*id, *revision), *segment);
                }
                Recovered::Operator(OperatorRecord::Quarantine(Suspect::Trajectory(id))) => {
                    suspects.insert(*id, *segment);
                }
                Recovered::Operator(_) => {}
            }
        }
        let state = log.state();
        let seen = |id: &TrajectoryId| state.seen.contains(*id);
        let dropped_before = self.dropped_before.take().unwrap_or(SegmentNumber(0));
        compared("trajectory", &mut self.trajectories, &trajectories, dropped_before, seen);
        compared("quarantine", &mut self.suspects, &suspects, dropped_before, |_| false);
        compared("revision", &mut self.revisions, &revisions, dropped_before, |_| false);
        let count: u64 = state.seen.intervals().map(|(_, _, sequences)| sequences.end() - sequences.start() + 1).sum();
        assert!(self.trajectories.keys().filter(|id| seen(id)).count() as u64 == count, "unknown ids were seen");
        assert_eq!(state.counters.trajectories, count, "the total counts other trajectories than were seen");
        assert_eq!(state.counters, log.synced(), "everything that was read is durable");
        assert!((self.samples.0..=self.samples.1).contains(&state.counters.samples), "{:?} {state:?}", self.samples);
        self.samples.0 = state.counters.samples;
        for (actor, states) in &mut self.actors {
            let is_quarantined = state.quarantined_actors.contains(actor);
            assert!(states.contains(&is_quarantined), "actor {actor} after {after:?}: {states:?}");
            *states = [is_quarantined].into();
        }
        assert!(state.quarantined_actors.iter().all(|actor| self.actors.contains_key(actor)));
        for (name, states) in &mut self.tables {
            let settings = state.tables.get(name).map(|table| table.settings.clone());
            assert!(states.contains(&settings), "table {name} after {after:?}: {settings:?} is none of {states:?}");
            *states = [settings].into();
        }
        assert!(state.tables.keys().all(|name| self.tables.contains_key(name)));
    }
}

/// Compares records with the promises, and keeps present or seen records as durable.
fn compared<K: Ord + Copy + std::fmt::Debug>(
    what: &str,
    promised: &mut BTreeMap<K, Promise>,
    found: &BTreeMap<K, SegmentNumber>,
    dropped_before: SegmentNumber,
    seen: impl Fn(&K) -> bool,
) {
    for key in found.keys() {
        assert!(promised.contains_key(key), "the {what} of {key:?} was never sent");
    }
    promised.retain(|key, promise| {
        if let Promise::Durable(segment) = *promise {
            let is_kept = found.contains_key(key) || segment < dropped_before;
            assert!(is_kept, "the acknowledged {what} of {key:?} is lost");
        }
        let is_seen = seen(key);
        if what == "trajectory" {
            let must_be_seen = found.contains_key(key) || matches!(promise, Promise::Durable(_) | Promise::Seen);
            assert!(is_seen || !must_be_seen, "the id {key:?} is not seen: {promise:?}");
            assert!(!is_seen || found.contains_key(key) || *promise != Promise::Nothing, "{key:?} is seen, not kept");
        }
        *promise = found.get(key).map_or(Promise::Seen, |segment| Promise::Durable(*segment));
        is_seen || found.contains_key(key)
    });
}

fn trajectory(id: TrajectoryId) -> Entry {
    let content = EncodedTrajectory::new(id, 1, time_of(id), &content_of(id, 0)).expect("it is small");
    Entry::Trajectory { id, items: 1, content }
}

fn revision(id: TrajectoryId, number: u64) -> Entry {
    let content = EncodedTrajectory::revision(id, number, time_of(id), &content_of(id, number));
    Entry::Revision { id, content: content.expect("it is small") }
}

/// Returns the number of a revision, from the record.
fn number_of(content: &EncodedTrajectory) -> u64 {
    use replay_server::log::Record;
    match Record::decode(content.payload()) {
        Ok(Record::Revision { revision, .. }) => revision,
        other => unreachable!("{other:?} is not a revision"),
    }
}

fn time_of(id: TrajectoryId) -> UnixMillis {
    UnixMillis(1000 + id.sequence)
}

/// Returns content that differs between ids and revisions, and hardly compresses.
fn content_of(id: TrajectoryId, revision: u64) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(id.sequence << 8 ^ id.actor ^ revision << 32);
    (0..20 + id.sequence % 90).map(|_| rng.random()).collect()
}
