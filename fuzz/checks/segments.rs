//! Whole segment files of the replay log.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use experience::TrajectoryId;
use proto::replay::Suspect;
use replay::SeenLimits;
use replay_server::defect::Planted;
use replay_server::log::{
    EncodedTrajectory, Entry, Log, LogSettings, OperatorRecord, Record, Recovered, SegmentNumber, UnixMillis, Volume,
    VolumeFile, frame,
};
use run_file::replay::DamagedHead;

/// Checks that any bytes open as a log or are rejected, that a log keeps every whole record exactly once, and that it
/// accepts further records.
///
/// The first byte gives the number of segments into which the rest is split, and selects whether the parts are segment
/// files or payloads. Payloads are framed with valid checksums, so that the fuzzer also reaches the code after the
/// checksum tests.
pub(crate) fn check(bytes: &[u8]) {
    let Some((&how, bytes)) = bytes.split_first() else { return };
    let count = usize::from(how & 3) + 1;
    let memory = Memory::default();
    for (number, part) in (1..).zip(bytes.chunks(bytes.len().div_ceil(count).max(1))) {
        let file = if how & 4 == 0 { part.to_vec() } else { segment(number, &payloads(part)) };
        memory.files().insert(SegmentNumber(number).file_name(), file);
    }
    let whole: Vec<TrajectoryId> = memory.files().iter().flat_map(|(name, bytes)| trajectories(name, bytes)).collect();
    let Some((mut log, held)) = open(&memory) else { return };
    assert!(is_each_once(&held), "one came twice");
    // The check uses `seen`, because a trajectory with an id in the head of an earlier segment is not passed to the
    // callback.
    assert!(whole.iter().all(|id| log.state().seen.contains(*id)), "a whole record was not kept");

    // The log accepts a new trajectory, unless all candidate ids are taken.
    let new = (0..u64::MAX).map(|sequence| TrajectoryId { actor: 77, epoch: 77, sequence });
    let new = new.take(4).find(|id| !log.state().seen.contains(*id));
    let Some(id) = new else { return };
    let content = EncodedTrajectory::new(id, 1, UnixMillis(0), b"more").expect("it is small");
    let entries = [
        Entry::Trajectory { id, items: 1, content },
        Entry::Operator(OperatorRecord::Quarantine(Suspect::Trajectory(id))),
    ];
    log.commit(&entries, 0).expect("memory does not fail");
    let state = log.state().clone();
    let (again, held_again) = open(&memory).expect("it was read before");
    assert_eq!(again.state(), &state);
    assert_eq!(held_again, [held.as_slice(), &[id]].concat());
}

/// Returns logs of these records: as segment files, and as payloads.
#[allow(dead_code, reason = "used by the test of the corpus alone")]
pub(crate) fn seeds(records: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let with_length = |payload: &Vec<u8>| [&(payload.len() as u16).to_le_bytes()[..], payload].concat();
    let payloads: Vec<u8> = records.iter().flat_map(with_length).collect();
    let file = segment(1, records);
    vec![
        [&[0], file.as_slice()].concat(),
        [&[2], file.as_slice(), &segment(2, records)].concat(),
        [&[4], payloads.as_slice()].concat(),
        [&[5], payloads.as_slice(), &payloads].concat(),
    ]
}

fn is_each_once(ids: &[TrajectoryId]) -> bool {
    ids.iter().collect::<BTreeSet<_>>().len() == ids.len()
}

/// Returns a segment of frames with valid checksums.
fn segment(number: u64, payloads: &[Vec<u8>]) -> Vec<u8> {
    let prologue = frame::Prologue::new(SegmentNumber(number), [7; 32]);
    let mut file = prologue.encode();
    for payload in payloads {
        prologue.append(&mut file, 0, payload).expect("it is small");
    }
    file
}

/// Splits bytes into payloads, each with a length prefix of two little-endian bytes.
fn payloads(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut out, mut rest) = (Vec::new(), bytes);
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let (payload, after) = after.split_at(after.len().min(usize::from(u16::from_le_bytes(*length))));
        rest = after;
        out.push(payload.to_vec());
    }
    out
}

/// Returns the ids of all whole trajectories in a segment file.
fn trajectories(name: &str, bytes: &[u8]) -> Vec<TrajectoryId> {
    let number = SegmentNumber::from_file_name(name).expect("it was named here");
    let Ok(scan) = frame::scan(number, bytes) else { return Vec::new() };
    let records = scan.frames.into_iter().filter_map(|(_, payload)| Record::decode(payload).ok());
    let ids = records.filter_map(|record| match record {
        Record::Trajectory { id, .. } => Some(id),
        _ => None,
    });
    ids.collect()
}

fn open(memory: &Memory) -> Option<(Log<Memory>, Vec<TrajectoryId>)> {
    let (threads, planted) = (NonZeroUsize::MIN, Planted::default());
    let settings = LogSettings {
        game: "connect_four".into(),
        segment_bytes: 400,
        threads,
        salt_seed: [0; 32],
        seen: SeenLimits::default(),
        damaged_head: DamagedHead::Accept,
        planted,
    };
    let mut held = Vec::new();
    let opened = Log::open(
        memory.clone(),
        settings,
        |_, _| Ok(()),
        |_, recovered| {
            if let Recovered::Trajectory { id, .. } = recovered {
                held.push(id);
            }
        },
    );
    opened.ok().map(|(log, _)| (log, held))
}

/// A volume in memory on which no operation fails.
#[derive(Debug, Clone, Default)]
struct Memory(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

#[derive(Debug)]
struct MemoryFile(Memory, String);

impl Memory {
    fn files(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.0.lock().expect("no holder of the lock panics")
    }
}

impl Volume for Memory {
    type File = MemoryFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files().keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.files().get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(&self, name: &str) -> io::Result<MemoryFile> {
        self.files().insert(name.to_owned(), Vec::new());
        self.open(name)
    }

    fn open(&self, name: &str) -> io::Result<MemoryFile> {
        Ok(MemoryFile(self.clone(), name.to_owned()))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files().remove(name);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl VolumeFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.files().entry(self.1.clone()).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.0.files().entry(self.1.clone()).or_default().truncate(length as usize);
        Ok(())
    }
}
