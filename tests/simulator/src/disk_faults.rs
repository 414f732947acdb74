//! Faults of the server's disk.

use proto::replay::Suspect;
use rand::RngExt;
use replay_server::log::power_disk::Faults;
use replay_server::log::{OperatorRecord, Record, SegmentNumber, frame};

use crate::checks::table_of;
use crate::oracle::Checked;
use crate::plan::Kind;
use crate::world::World;

/// Description of a damaged head.
const HEAD: &str = "a head";
/// Description of bytes outside all readable records.
const NO_RECORD: &str = "no record";

impl World {
    /// Changes the failing operations from now on.
    pub(crate) fn change_faults(&mut self, kind: Kind) {
        let none = Faults::default();
        self.is_slow = false;
        (self.faults, self.is_slow) = match kind {
            Kind::FillDisk => {
                let room = self.rng.random_range(0..2_000);
                self.note("disk fills", format!("the disk has room for {room} bytes"));
                (Faults { room: Some(room), ..none }, false)
            }
            Kind::FailSyncs => {
                self.note("syncs fail", "half of all syncs fail");
                (Faults { sync: 0.5, cut: 0.3, ..none }, false)
            }
            Kind::FailDisk => {
                self.note("disk fails", "a fifth of all operations of the disk fail");
                (Faults { io: 0.2, ..none }, self.rng.random_bool(0.5))
            }
            _ => {
                self.note("disk recovers", "the disk works again");
                (none, false)
            }
        };
        self.disk.set_faults(self.faults);
    }

    /// Flips a bit of the log while the process is down, and starts it again.
    pub(crate) fn rot(&mut self) -> Checked {
        let files: Vec<(String, Vec<u8>)> =
            self.disk.files().into_iter().filter(|(_, file)| !file.is_empty()).collect();
        if files.is_empty() {
            return Ok(());
        }
        let is_whole = !files.iter().any(|(name, bytes)| is_damaged(name, bytes));
        let is_begun = files.iter().any(|(name, _)| *name == SegmentNumber::FIRST.file_name());
        if is_whole && !is_begun && self.rng.random_bool(0.8) {
            return self.rot_all_heads();
        }
        let (name, bytes) = &files[self.rng.random_range(0..files.len())];
        // Heads are a small but the most valuable part of the log.
        let in_head = self.rng.random_bool(0.3);
        let upper = if in_head { bytes.len().min(400) } else { bytes.len() };
        let (offset, bit) = (self.rng.random_range(0..upper), self.rng.random_range(0..8));
        let (first, second) = bytes.split_at(bytes.len().min(frame::PROLOGUE_BYTES / 2));
        if offset < frame::PROLOGUE_BYTES && !second.starts_with(first) {
            // Two copies survive one damage, not two.
            return Ok(());
        }
        if is_in_head(name, bytes, offset) && !is_whole {
            // A head and the records before it are copies, too.
            return Ok(());
        }
        self.down("the process of the server ends before its disk rots");
        self.archive_differs();
        self.disk.end_process();
        let mut what = self.exempt(name, bytes, offset);
        self.disk.rot(name, offset, 1 << bit);
        if what == NO_RECORD {
            // If the flip repairs a damaged record, a later start reads a record that an earlier start did not.
            let mut flipped = bytes.clone();
            flipped[offset] ^= 1 << bit;
            what = self.exempt(name, &flipped, offset);
        }
        self.note("rot", format!("bit {bit} of byte {offset} of {name} flips, in {what}"));
        if what == HEAD {
            self.head_damage.push((name.clone(), offset, 1 << bit));
        }
        self.disk.set_faults(Faults::default());
        self.faults = Faults::default();
        self.start()
    }

    /// Damages the heads of all segments while the process is down, as a fault of a controller might.
    fn rot_all_heads(&mut self) -> Checked {
        self.down("the process of the server ends before all heads rot");
        self.archive_differs();
        self.disk.end_process();
        self.head_damage.clear();
        for (name, bytes) in self.disk.files() {
            let offset = frame::PROLOGUE_BYTES + frame::HEADER_BYTES + 1;
            if is_in_head(&name, &bytes, offset) {
                self.disk.rot(&name, offset, 1);
                self.head_damage.push((name, offset, 1));
            }
        }
        self.note("all heads rot", "a bit of the head of every segment flips");
        self.disk.set_faults(Faults::default());
        self.faults = Faults::default();
        self.start()
    }

    /// Exempts the record at an offset from all promises, and returns the kind of record. Copies of heads and prologues
    /// are not exempt: a single damage must not lose them.
    fn exempt(&mut self, name: &str, bytes: &[u8], offset: usize) -> String {
        let Some(number) = SegmentNumber::from_file_name(name) else { return "another file".to_owned() };
        let Ok(scan) = frame::scan(number, bytes) else { return "an unreadable file".to_owned() };
        let frame =
            scan.frames.iter().find(|(at, payload)| (*at..at + frame::HEADER_BYTES + payload.len()).contains(&offset));
        let Some((_, payload)) = frame else { return NO_RECORD.to_owned() };
        self.oracle.counts.damaged = true;
        let events = self.trace.events();
        match Record::decode(payload) {
            Ok(Record::Trajectory { id, .. }) => {
                self.oracle.damage(id);
                self.oracle.quarantine.entry(Suspect::Trajectory(id)).or_default().damaged(events);
                self.oracle.top = self.oracle.top.filter(|top| top.key.trajectory != id);
                self.oracle.revisions.remove(&id);
                format!("trajectory {id}")
            }
            Ok(Record::Revision { id, revision, .. }) => {
                if let Some(revised) = self.oracle.revisions.get_mut(&id) {
                    revised.certain = 0;
                }
                format!("revision {revision} of {id}")
            }
            Ok(Record::Operator(record)) => {
                self.exempt_record(&record);
                "an operator's record".to_owned()
            }
            Ok(Record::Head(_)) => {
                self.oracle.counts.damaged = false;
                HEAD.to_owned()
            }
            Ok(Record::Counters(_)) => "counters".to_owned(),
            Err(_) => "an unreadable record".to_owned(),
        }
    }

    fn exempt_record(&mut self, record: &OperatorRecord) {
        let events = self.trace.events();
        match record {
            OperatorRecord::Quarantine(suspect) | OperatorRecord::Release(suspect) => {
                self.oracle.quarantine.entry(*suspect).or_default().damaged(events);
            }
            OperatorRecord::Table { name, .. } => self.oracle.settings[table_of(name)].damaged(events),
            OperatorRecord::Priorities { .. } => self.oracle.top = None,
            OperatorRecord::TableCounters { .. } => {}
        }
    }

    /// Copies the server's files elsewhere, if none is damaged.
    pub(crate) fn take_snapshot(&mut self) {
        if self.disk.files().iter().any(|(name, bytes)| is_damaged(name, bytes)) {
            return;
        }
        self.note("snapshot", "the log is copied");
        self.snapshot = Some((self.disk.files(), self.oracle.clone()));
    }

    /// Loses the server's disk: the server starts from the archive, from the last copy, or empty.
    pub(crate) fn lose_disk(&mut self) -> Checked {
        self.down("the server loses its disk");
        let (files, oracle) = self.snapshot.clone().unwrap_or_default();
        if self.has_copies() {
            match self.rng.random_range(0..4) {
                0 | 1 => return self.restore_from_archive(),
                2 if !files.is_empty() => return self.set_back(files, oracle),
                _ => {}
            }
        }
        // The archive is ahead of the copy, or holds data that the empty disk lacks.
        self.name_another_archive();
        self.note("disk restored", format!("{} files are restored from the copy", files.len()));
        self.replace_disk(files);
        self.oracle = oracle.restored(&self.oracle);
        self.start()
    }
}

fn is_in_head(name: &str, bytes: &[u8], offset: usize) -> bool {
    let Some(Ok(scan)) = SegmentNumber::from_file_name(name).map(|number| frame::scan(number, bytes)) else {
        return false;
    };
    let end = |(at, payload): &(usize, &[u8])| at + frame::HEADER_BYTES + payload.len();
    scan.frames.first().is_some_and(|first| (frame::PROLOGUE_BYTES..end(first)).contains(&offset))
}

fn is_damaged(name: &str, bytes: &[u8]) -> bool {
    let Some(number) = SegmentNumber::from_file_name(name) else { return false };
    frame::scan(number, bytes).map_or(true, |scan| !scan.damage.is_empty() || scan.tail.is_some())
}
