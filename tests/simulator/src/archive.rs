//! The archive of the first server: complete and interrupted passes, restores of lost disks, disks that were set back,
//! and passes of a process with a log that no longer owns the archive.

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use rand::RngExt;
use replay_server::archive::{Archive, ArchiveError};
use replay_server::defect::Planted;
use replay_server::log::frame::{self, Unreadable};
use replay_server::log::power_disk::{Faults, PowerDisk};
use replay_server::log::{Record, SegmentNumber};

use crate::archive_folder::ArchiveFolder;
use crate::archive_store::{ArchiveStore, Effect, Failing};
use crate::oracle::{Checked, Oracle, Promise, Violation, broken};
use crate::world::World;

/// Maximum interrupted attempts to restore a lost disk.
const INTERRUPTED_MAX: u32 = 3;

/// Steps of a pass, restore or start from which the first failing step is chosen.
const STEPS_MAX: u32 = 24;

type Opened = Archive<ArchiveStore, ArchiveFolder>;

/// Archive configured for the first server.
#[derive(Debug, Default)]
pub(crate) struct Archived {
    store: ArchiveStore,
    /// False until an operator configures an archive.
    is_configured: bool,
    /// Archive state of the running process.
    running: Option<Opened>,
    /// Archive state of the old process, which still runs on the disk from before the last restore.
    before: Option<Opened>,
    copies: Copies,
}

/// Promises at the time of the copies.
#[derive(Debug, Default)]
struct Copies {
    /// Promises at the last complete pass.
    complete: Oracle,
    /// Promises at the last later pass that was interrupted after it had changed the store.
    interrupted: Option<Oracle>,
    /// True if a copy may hold other records than the log: from a commit that failed after the copy, or with a bit that
    /// has flipped on the disk since.
    may_differ: bool,
}

impl Copies {
    /// Returns the promises for a log restored from the copies.
    fn promised(&self) -> Oracle {
        match &self.interrupted {
            Some(later) => self.complete.clone().between(later),
            None => self.complete.clone(),
        }
    }
}

/// Result of opening the archive at a start.
enum Begun {
    /// The log can be opened.
    Ready,
    /// The process stops, since the disk or the store has failed.
    Down,
    /// The archive belongs to another log.
    Refused(String),
}

/// Runs a future of the archive; store and directory respond at once.
fn finished<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("neither the store nor the folder waits"),
    }
}

/// Returns the segments among files or objects.
fn segments(files: BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    files.into_iter().filter(|(name, _)| SegmentNumber::from_file_name(name).is_some()).collect()
}

/// Returns true if a bit of a segment has flipped. Remains of an interrupted write at the log's end are no damage.
fn is_rotten(name: &str, bytes: &[u8]) -> bool {
    let Some(number) = SegmentNumber::from_file_name(name) else { return false };
    match frame::scan(number, bytes) {
        Ok(scan) => !scan.damage.is_empty(),
        Err(fault) => fault != Unreadable::Torn,
    }
}

impl World {
    /// Runs a pass, which may be interrupted or belong to the log that owned the archive before.
    pub(crate) fn archive(&mut self) -> Checked {
        if self.server.is_none() {
            return Ok(());
        }
        if self.archive.before.is_some() && self.rng.random_bool(0.3) {
            return self.pass_of_another_log();
        }
        self.archive.is_configured = true;
        if self.rng.random_bool(0.6) {
            return self.archive_pass(Failing::default());
        }
        let failing = self.any_failing();
        self.archive_pass(failing)?;
        if self.rng.random_bool(0.5) { self.crash("the process of the server ends inside a pass") } else { Ok(()) }
    }

    fn any_failing(&mut self) -> Failing {
        let effect = if self.rng.random() { Effect::Full } else { Effect::None };
        Failing { after: Some(self.rng.random_range(0..STEPS_MAX)), effect }
    }

    /// Runs a pass of the running process.
    pub(crate) fn archive_pass(&mut self, failing: Failing) -> Checked {
        let Some(server) = &self.server else { return Ok(()) };
        let here = segments(self.disk.files());
        // As with snapshots: no promise about a copy of damage has an exact model.
        if !self.archive.is_configured || here.iter().any(|(name, bytes)| is_rotten(name, bytes)) {
            return Ok(());
        }
        let is_ahead = server.committer.log().bytes() != here.values().map(|bytes| bytes.len() as u64).sum::<u64>();
        let mut archive = self.archive.running.take().unwrap_or_else(|| self.opened());
        let (store, failures) = (self.archive.store.clone(), self.disk.failures());
        let before = segments(store.objects());
        store.set_failing(failing);
        let passed = finished(archive.keep_up());
        store.set_failing(Failing::default());
        self.archive.running = Some(archive);
        let there = segments(store.objects());
        // An empty directory is no log: a pass over it does nothing.
        let is_same = |(name, bytes): (&String, &Vec<u8>)| there.get(name) == Some(bytes);
        let is_complete = !here.is_empty() && (passed.is_ok() || there != before && here.iter().all(is_same));
        let is_ahead =
            is_ahead || there.last_key_value().map(|(name, _)| name) > here.last_key_value().map(|(name, _)| name);
        if let Err(ArchiveError::Foreign { .. } | ArchiveError::Owned { .. }) = &passed
            && !self.archive.copies.may_differ
        {
            return broken(Promise::Archive, format!("a pass of the owner is refused: {passed:?}"));
        }
        match &passed {
            Ok(pass) => self.note("pass", format!("{} copied, {} dropped", pass.copied, pass.dropped)),
            Err(error) => self.note("pass interrupted", format!("the pass ends: {error}")),
        }
        let is_failure = failing.after.is_some() || self.disk.failures() > failures;
        if let Err(ArchiveError::Store { .. } | ArchiveError::Disk { .. }) = &passed
            && !is_failure
        {
            return broken(Promise::Archive, format!("nothing fails, and a pass does: {passed:?}"));
        }
        if is_complete {
            self.archive.copies = Copies { complete: self.oracle.clone(), interrupted: None, may_differ: is_ahead };
        } else if there != before {
            self.archive.copies.interrupted = Some(self.oracle.clone());
            self.archive.copies.may_differ |= is_ahead;
        }
        Ok(())
    }

    /// Runs a pass of the process with the replaced log, which must change nothing.
    fn pass_of_another_log(&mut self) -> Checked {
        let before = self.archive.store.objects();
        let Some(archive) = &mut self.archive.before else { return Ok(()) };
        let passed = finished(archive.keep_up());
        self.note("pass of another log", format!("a log that owned the archive before passes: {passed:?}"));
        if self.archive.store.objects() == before {
            return Ok(());
        }
        broken(Promise::Archive, "a log that does not own the archive changes it".to_owned())
    }

    /// Opens the archive for the log on the disk.
    fn opened(&mut self) -> Opened {
        let (store, folder) = (self.archive.store.clone(), ArchiveFolder(self.disk.clone()));
        Archive::of(store, folder, self.rng.random(), Planted::new(self.defect))
    }

    /// Opens the archive at a start, if there is one, and fills a disk without a log from it. Returns false if the
    /// server stays down.
    pub(crate) fn start_archive(&mut self) -> Result<bool, Violation> {
        match self.begin_archive()? {
            Begun::Ready => Ok(true),
            Begun::Down => Ok(false),
            Begun::Refused(_) if self.archive.copies.may_differ => {
                self.name_another_archive();
                self.start_archive()
            }
            Begun::Refused(what) => broken(Promise::Archive, what).map(|()| false),
        }
    }

    /// Does the work that the program does with the archive before it opens the log.
    fn begin_archive(&mut self) -> Result<Begun, Violation> {
        if !self.archive.is_configured {
            return Ok(Begun::Ready);
        }
        let before = self.disk.files();
        let mut archive = self.opened();
        let restored = finished(archive.restore());
        let has_log = matches!(&restored, Err(ArchiveError::Store { .. })).then(|| finished(archive.has_log()));
        let after = self.disk.files();
        // A segment that was replaced by the copy has no flipped bits.
        self.head_damage.retain(|(name, ..)| before.get(name) == after.get(name));
        match restored {
            Ok(0) => self.went_on_from_copy(&segments(before), &segments(after))?,
            Ok(count) => self.note("restored", format!("{count} segments come from the archive")),
            Err(ArchiveError::Store { .. }) if matches!(has_log, Some(Ok(true))) => {
                self.note("archive away", "the server starts without its archive");
            }
            Err(error @ (ArchiveError::Store { .. } | ArchiveError::Disk { .. })) => {
                self.disk.end_process();
                self.note("restore failed", format!("{error}: the server stays down"));
                return Ok(Begun::Down);
            }
            Err(error) => {
                self.disk.end_process();
                self.note("archive refused", format!("{error}"));
                return Ok(Begun::Refused(error.to_string()));
            }
        }
        self.archive.running = Some(archive);
        Ok(Begun::Ready)
    }

    /// Checks that a copy which has replaced a segment holds all records of the segment. The copy may hold further
    /// records in between: from a failed commit that a power loss has damaged on the disk, or with a bit that has
    /// flipped.
    fn went_on_from_copy(&mut self, here: &BTreeMap<String, Vec<u8>>, there: &BTreeMap<String, Vec<u8>>) -> Checked {
        for (name, here) in here {
            let (Some(there), Some(number)) = (there.get(name), SegmentNumber::from_file_name(name)) else { continue };
            if here == there {
                continue;
            }
            self.note("longer copy", format!("the log goes on from the longer copy of {name}"));
            self.oracle = std::mem::take(&mut self.oracle).between(&self.archive.copies.promised());
            self.oracle.counts.damaged |= self.archive.copies.may_differ;
            let Ok(records) = frame::scan(number, here) else { continue };
            let copies = frame::scan(number, there).map_or(BTreeMap::new(), |scan| scan.frames.into_iter().collect());
            let same = here.iter().zip(there).take_while(|(here, there)| here == there).count();
            for (offset, payload) in records.frames {
                if copies.get(&offset) != Some(&payload) {
                    return broken(Promise::Archive, format!("a copy without the record at {offset} replaces {name}"));
                }
                if offset > same
                    && let Ok(Record::Trajectory { id, .. }) = Record::decode(payload)
                {
                    self.oracle.damage(id);
                }
            }
        }
        Ok(())
    }

    /// Records that a bit of the log has flipped.
    pub(crate) fn archive_differs(&mut self) {
        self.archive.copies.may_differ = true;
    }

    /// Stops the process that runs the archive's passes.
    pub(crate) fn end_archive(&mut self) {
        self.archive.running = None;
    }

    /// Configures the server with an empty archive.
    pub(crate) fn name_another_archive(&mut self) {
        let is_configured = self.archive.is_configured;
        self.archive = Archived { is_configured, ..Archived::default() };
        if is_configured {
            self.note("another archive", "an operator names another archive");
        }
    }

    pub(crate) fn has_copies(&self) -> bool {
        self.archive.store.has_segments()
    }

    /// Starts the server on an empty disk, which is filled from the archive.
    pub(crate) fn restore_from_archive(&mut self) -> Checked {
        self.archive.before = Some(self.opened());
        self.replace_disk(BTreeMap::new());
        self.oracle = self.archive.copies.promised().restored(&self.oracle);
        for _ in 0..self.rng.random_range(0..=INTERRUPTED_MAX) {
            self.start_interrupted()?;
            if self.server.is_some() {
                return Ok(());
            }
        }
        self.start()?;
        if self.server.is_some() { Ok(()) } else { broken(Promise::Archive, "a restore does not succeed".to_owned()) }
    }

    /// Starts the server and interrupts the start: by the store, by the disk, by a stop of the process or by a power
    /// loss.
    fn start_interrupted(&mut self) -> Checked {
        let after = self.rng.random_range(0..STEPS_MAX);
        match self.rng.random_range(0..4) {
            0 => {
                let failing = self.any_failing();
                self.archive.store.set_failing(failing);
            }
            1 => self.disk.set_faults(Faults { io: 0.1, sync: 0.2, ..Faults::default() }),
            _ => self.disk.set_faults(Faults { operations_left: Some(after), ..Faults::default() }),
        }
        let started = self.start();
        self.archive.store.set_failing(Failing::default());
        self.disk.set_faults(Faults::default());
        started?;
        if self.server.is_none() && self.rng.random() {
            self.note("power lost in a restore", "the machine loses power before the server has started");
            self.disk.lose_power();
        }
        Ok(())
    }

    /// Starts the server on an older state of the disk. The server continues from the archive, or is refused; an
    /// operator then removes the directory.
    pub(crate) fn set_back(&mut self, files: BTreeMap<String, Vec<u8>>, oracle: Oracle) -> Checked {
        let before = segments(files.clone());
        self.replace_disk(files);
        self.note("set back", "the disk is set back to an earlier state");
        match self.begin_archive()? {
            Begun::Refused(_) => return self.restore_from_archive(),
            Begun::Down => return broken(Promise::Archive, "nothing fails, and the archive does".to_owned()),
            Begun::Ready => {}
        }
        let is_longer = segments(self.disk.files()) != before;
        let oracle = if is_longer { oracle.between(&self.archive.copies.promised()) } else { oracle };
        self.oracle = oracle.restored(&self.oracle);
        self.disk.end_process();
        self.start()
    }

    /// Replaces the server's disk by a disk with these files and without faults.
    pub(crate) fn replace_disk(&mut self, files: BTreeMap<String, Vec<u8>>) {
        let seed = self.rng.random();
        self.disk = PowerDisk::with(seed, files);
        self.head_damage.clear();
        self.faults = Faults::default();
    }

    /// Restores the log from a complete archive at the end of a run.
    pub(crate) fn restore_at_the_end(&mut self) -> Checked {
        self.archive_pass(Failing::default())?;
        if !self.has_copies() {
            return Ok(());
        }
        self.down("the server loses its disk for the last time");
        self.restore_from_archive()
    }
}
