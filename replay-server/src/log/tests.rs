use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use replay::SeenIds;

use super::*;

/// Files in memory, on a disk that may fill up and whose syncs may fail.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    state: Arc<Mutex<MemoryState>>,
}

#[derive(Debug, Default)]
struct MemoryState {
    files: BTreeMap<String, Vec<u8>>,
    /// Bytes that still fit; `None` for a disk without end.
    room: Option<usize>,
    syncs_fail: bool,
    cuts_fail: bool,
}

#[derive(Debug)]
pub(crate) struct MemoryFile {
    memory: Memory,
    name: String,
}

impl Memory {
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.state.lock().unwrap().files.clone()
    }

    pub(crate) fn with(files: BTreeMap<String, Vec<u8>>) -> Self {
        let memory = Self::default();
        memory.state.lock().unwrap().files = files;
        memory
    }

    pub(crate) fn set_room(&self, room: Option<usize>) {
        self.state.lock().unwrap().room = room;
    }
}

impl Volume for Memory {
    type File = MemoryFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files().into_keys().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.files().remove(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(&self, name: &str) -> io::Result<MemoryFile> {
        self.state.lock().unwrap().files.insert(name.to_owned(), Vec::new());
        self.open(name)
    }

    fn open(&self, name: &str) -> io::Result<MemoryFile> {
        Ok(MemoryFile { memory: self.clone(), name: name.to_owned() })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.state.lock().unwrap().files.remove(name);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl VolumeFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.memory.state.lock().unwrap();
        // A full disk takes the first part of a write.
        let fits = state.room.unwrap_or(usize::MAX).min(bytes.len());
        state.files.get_mut(&self.name).unwrap().extend_from_slice(&bytes[..fits]);
        state.room = state.room.map(|room| room - fits);
        if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.memory.state.lock().unwrap().syncs_fail { Err(io::Error::other("sync failed")) } else { Ok(()) }
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut state = self.memory.state.lock().unwrap();
        if state.cuts_fail {
            return Err(io::Error::other("cut failed"));
        }
        state.files.get_mut(&self.name).unwrap().truncate(length as usize);
        Ok(())
    }
}

fn id(sequence: u64) -> TrajectoryId {
    TrajectoryId { actor: 3, epoch: 1, sequence }
}

fn entry(sequence: u64) -> Entry {
    let content = format!("the content of trajectory {sequence}").into_bytes();
    Entry::Trajectory { id: id(sequence), items: 10, content }
}

fn settings(segment_bytes: u64) -> LogSettings {
    LogSettings { game: "test".into(), segment_bytes }
}

type Opened = (Log<Memory>, Vec<Entry>, Vec<Repair>);

fn open(memory: &Memory, segment_bytes: u64) -> Result<Opened, OpenError> {
    let mut entries = Vec::new();
    let (log, repairs) = Log::open(memory.clone(), settings(segment_bytes), |_, entry| {
        entries.push(entry);
        Ok(())
    })?;
    Ok((log, entries, repairs))
}

/// A log of `commits` commits of one trajectory each.
fn written(commits: u64, segment_bytes: u64) -> Memory {
    let memory = Memory::default();
    let (mut log, _, _) = open(&memory, segment_bytes).unwrap();
    for sequence in 0..commits {
        log.commit(&[entry(sequence)], sequence).unwrap();
    }
    memory
}

#[test]
fn what_was_committed_is_read_back_with_its_totals() {
    let memory = Memory::default();
    let (mut log, _, _) = open(&memory, 1 << 20).unwrap();
    log.commit(&[entry(0), entry(1)], 5).unwrap();
    log.commit(&[Entry::Quarantine(id(1)), entry(2)], 9).unwrap();
    let (again, entries, repairs) = open(&memory, 1 << 20).unwrap();
    assert_eq!(entries, [entry(0), entry(1), Entry::Quarantine(id(1)), entry(2)]);
    assert_eq!(again.state().counters, Counters { trajectories: 3, items: 30, samples: 9 });
    assert_eq!((again.state(), repairs), (log.state(), Vec::new()));
}

#[test]
fn a_reopened_log_grows_on() {
    let memory = written(3, 1 << 20);
    open(&memory, 1 << 20).unwrap().0.commit(&[entry(3)], 0).unwrap();
    assert_eq!(memory.files().len(), 1);
    assert_eq!(open(&memory, 1 << 20).unwrap().1.len(), 4);
}

/// A kill at any moment of a commit leaves a prefix of the file: everything acknowledged before survives.
#[test]
fn a_log_cut_anywhere_keeps_what_was_committed_before_the_cut() {
    let memory = written(4, 1 << 20);
    let (name, bytes) = memory.files().pop_first().unwrap();
    let ends: Vec<usize> =
        frame::scan(&bytes).frames.iter().map(|(at, payload)| at + frame::HEADER_BYTES + payload.len()).collect();
    for length in 0..bytes.len() {
        let torn = Memory::with([(name.clone(), bytes[..length].to_vec())].into());
        let (mut log, entries, repairs) = open(&torn, 1 << 20).unwrap();
        // Frames: the head, then a trajectory and the counters for each commit.
        let whole = ends.iter().filter(|&&end| end <= length).count();
        assert_eq!(entries, (0..whole as u64 / 2).map(entry).collect::<Vec<_>>(), "cut at {length}");
        let expected = (!ends.contains(&length) && length > 0).then_some(true);
        assert_eq!(repairs.first().map(|repair| repair.cut), expected, "cut at {length}");
        // And it grows on as if nothing had been.
        log.commit(&[entry(99)], 0).unwrap();
        let (_, again, repairs) = open(&torn, 1 << 20).unwrap();
        assert_eq!((again.len(), repairs.len()), (entries.len() + 1, 0), "cut at {length}");
    }
}

#[test]
fn a_flipped_byte_anywhere_costs_at_most_its_own_record_and_is_named() {
    let memory = written(4, 1 << 20);
    let (name, bytes) = memory.files().pop_first().unwrap();
    let starts: Vec<usize> = frame::scan(&bytes).frames.iter().map(|(offset, _)| *offset).collect();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x04;
        let damaged = Memory::with([(name.clone(), flipped)].into());
        let (_, entries, repairs) = open(&damaged, 1 << 20).unwrap();
        let hit = starts.iter().rposition(|&start| start <= at).unwrap();
        // Odd frames are the trajectories.
        let lost = (hit % 2 == 1).then_some(hit as u64 / 2);
        let expected: Vec<Entry> = (0..4).filter(|&sequence| Some(sequence) != lost).map(entry).collect();
        assert_eq!(entries, expected, "flipped {at}");
        let named: Vec<_> = repairs.iter().map(|repair| (repair.name.as_str(), repair.offset)).collect();
        assert_eq!(named, [(name.as_str(), starts[hit])], "flipped {at}");
    }
}

#[test]
fn totals_survive_a_damaged_trajectory() {
    let memory = written(4, 1 << 20);
    let (name, mut bytes) = memory.files().pop_first().unwrap();
    let (offset, _) = frame::scan(&bytes).frames[3];
    bytes[offset + frame::HEADER_BYTES + 30] ^= 1;
    let (log, entries, _) = open(&Memory::with([(name, bytes)].into()), 1 << 20).unwrap();
    assert_eq!((entries.len(), log.state().counters.items), (3, 40));
}

#[test]
fn dropped_segments_are_remembered_by_the_heads_of_later_ones() {
    let memory = written(40, 600);
    assert!(memory.files().len() > 4, "{} segments", memory.files().len());
    let (mut log, entries, _) = open(&memory, 600).unwrap();
    assert_eq!(entries, (0..40).map(entry).collect::<Vec<_>>());
    let newest = log.segments.back().unwrap().0;
    assert!(log.drop_before(newest).unwrap() > 2);
    let (again, entries, repairs) = open(&memory, 600).unwrap();
    assert!(entries.len() < 10, "{}", entries.len());
    assert_eq!((again.state(), repairs), (log.state(), Vec::new()));
    let mut seen = SeenIds::new();
    seen.insert_interval(3, 1, 0..=39);
    assert_eq!(again.state().seen, seen);
}

#[test]
fn the_newest_segment_is_never_dropped() {
    let memory = written(40, 600);
    let (mut log, _, _) = open(&memory, 600).unwrap();
    log.drop_before(SegmentNumber(u64::MAX)).unwrap();
    assert_eq!(memory.files().len(), 1);
}

/// A disk may be full at any byte of a commit, the head of a new segment included.
#[test]
fn on_a_full_disk_a_commit_fails_whole_and_succeeds_once_there_is_room() {
    for room in 0..400 {
        let memory = Memory::default();
        let (mut log, _, _) = open(&memory, 300).unwrap();
        memory.set_room(Some(room));
        let mut committed = 0;
        let refused = loop {
            match log.commit(&[entry(committed)], 0) {
                Ok(_) => committed += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        let (_, entries, _) = open(&Memory::with(memory.files()), 300).unwrap();
        assert_eq!(entries, (0..committed).map(entry).collect::<Vec<_>>(), "room {room}");
        memory.set_room(None);
        log.commit(&[entry(committed)], 0).unwrap();
        let (_, entries, repairs) = open(&memory, 300).unwrap();
        assert_eq!(entries, (0..=committed).map(entry).collect::<Vec<_>>(), "room {room}");
        assert_eq!(repairs, [], "room {room}");
    }
}

#[test]
fn a_commit_that_can_neither_be_synced_nor_cut_back_counts_once_when_it_is_repeated() {
    let memory = written(1, 1 << 20);
    let (mut log, _, _) = open(&memory, 1 << 20).unwrap();
    memory.state.lock().unwrap().syncs_fail = true;
    memory.state.lock().unwrap().cuts_fail = true;
    log.commit(&[entry(1)], 0).unwrap_err();
    memory.state.lock().unwrap().syncs_fail = false;
    log.commit(&[entry(1)], 0).unwrap();
    let (again, entries, _) = open(&memory, 1 << 20).unwrap();
    assert_eq!(entries, [entry(0), entry(1)]);
    assert_eq!(again.state().counters, Counters { trajectories: 2, items: 20, samples: 0 });
}

#[test]
fn a_log_of_another_game_or_format_is_refused_and_left_alone() {
    let memory = written(2, 1 << 20);
    let files = memory.files();
    let other = LogSettings { game: "hex11".into(), segment_bytes: 1 << 20 };
    let error = Log::open(memory.clone(), other, |_, _| Ok(())).unwrap_err();
    assert_eq!(error.to_string(), "the replay log holds trajectories of test, this run plays hex11: use another run");
    assert_eq!(memory.files(), files);

    let mut bytes = Vec::new();
    frame::append(&mut bytes, &[1, 77]).unwrap();
    let error = open(&Memory::with([("00000000000000000001.log".into(), bytes)].into()), 1 << 20).unwrap_err();
    assert!(error.to_string().contains("is of format 77, this program reads format 1"), "{error}");
}

#[test]
fn files_of_other_names_are_no_segments() {
    let memory = written(2, 1 << 20);
    let mut files = memory.files();
    for name in ["7.log", "+0000000000000000009.log", "00000000000000000002.log.old", "notes"] {
        files.insert(name.into(), b"not a segment".to_vec());
    }
    let (_, entries, repairs) = open(&Memory::with(files), 1 << 20).unwrap();
    assert_eq!((entries.len(), repairs), (2, Vec::new()));
}

#[test]
fn a_log_whose_numbers_have_run_out_refuses_to_grow() {
    let memory = written(1, 1 << 20);
    let (_, bytes) = memory.files().pop_first().unwrap();
    let last = Memory::with([(SegmentNumber(u64::MAX).file_name(), bytes)].into());
    let (mut log, entries, _) = open(&last, 1).unwrap();
    assert_eq!(entries, [entry(0)]);
    log.commit(&[entry(1)], 0).unwrap_err();
    assert_eq!(last.files().len(), 1);
}

#[test]
fn a_record_that_cannot_be_used_is_named_and_the_others_are_kept() {
    let memory = written(3, 1 << 20);
    let mut kept = Vec::new();
    let (_, repairs) = Log::open(memory, settings(1 << 20), |_, entry| match entry {
        Entry::Trajectory { id, .. } if id.sequence == 1 => Err("steps: is empty".into()),
        entry => {
            kept.push(entry);
            Ok(())
        }
    })
    .unwrap();
    assert_eq!(kept, [entry(0), entry(2)]);
    assert_eq!(repairs[0].what, "a record that cannot be used: steps: is empty");
}

mod group_commit {
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use super::super::committer::{COMMIT_ENTRIES_MAX, LogCommand, LogEvent, run};
    use super::*;

    fn events(memory: &Memory, commands: impl IntoIterator<Item = LogCommand>) -> Vec<LogEvent> {
        let (log, _, _) = open(memory, 600).unwrap();
        let (sender, receiver) = sync_channel(10_000);
        commands.into_iter().for_each(|command| sender.send(command).unwrap());
        drop(sender);
        let mut events = Vec::new();
        run(log, &receiver, Duration::ZERO, |event| events.push(event));
        events
    }

    #[test]
    fn everything_sent_before_the_end_is_durable_and_told_in_order() {
        let memory = Memory::default();
        let total = COMMIT_ENTRIES_MAX as u64 + 10;
        let events = events(&memory, (0..total).map(|sequence| LogCommand::Append(entry(sequence))));
        let told: Vec<Entry> = events
            .into_iter()
            .flat_map(|event| match event {
                LogEvent::Committed { entries, .. } => entries,
                LogEvent::Failed { .. } => panic!("{event:?}"),
            })
            .collect();
        assert_eq!(told, (0..total).map(entry).collect::<Vec<_>>());
        assert_eq!(open(&memory, 600).unwrap().1, told);
    }

    #[test]
    fn a_full_disk_is_told_for_every_entry() {
        let memory = Memory::default();
        memory.set_room(Some(0));
        let events = events(&memory, (0..3).map(|sequence| LogCommand::Append(entry(sequence))));
        let failed = |event: &LogEvent| matches!(event, LogEvent::Failed { error, .. } if error.contains("storage"));
        assert!(events.iter().all(failed), "{events:?}");
    }

    #[test]
    fn samples_drawn_are_durable_even_when_nothing_comes_in() {
        let memory = Memory::default();
        events(&memory, [LogCommand::Samples(77)]);
        assert_eq!(open(&memory, 600).unwrap().0.state().counters.samples, 77);
    }
}
