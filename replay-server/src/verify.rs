//! Reads a whole log without changing it, and reports the content and damage that a start would find.

use std::io;

use run_file::replay::DamagedHead;
use run_file::replay::Settings;

use crate::log::{Disk, Log, LogSettings, OpenError, Recovered, Repair, Volume, VolumeFile};
use crate::storage::{Startup, decode, log_settings};

/// The content and damage of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Number of readable trajectories, including trajectories removed from the tables but still in a segment.
    pub trajectories: u64,
    /// Number of positions in these trajectories.
    pub items: u64,
    /// Number of readable revisions, including revisions of removed trajectories.
    pub revisions: u64,
    /// Number of other records, such as quarantines and priorities.
    pub others: u64,
    /// Number of segment files.
    pub segments: usize,
    /// Total size of the files, in bytes.
    pub bytes: u64,
    /// Damage that a start would truncate or skip.
    pub damage: Vec<Repair>,
}

/// Reads every record of the run's log as a start would, without changing any file.
///
/// # Errors
/// [`OpenError`]: an unreadable file, another format or another game.
pub fn verify(settings: &Settings) -> Result<Verified, OpenError> {
    let (mut trajectories, mut items, mut revisions, mut others) = (0, 0, 0, 0);
    let decode = |id, content: &[u8]| decode(id, content, settings);
    let volume = ReadOnly(Disk::new(&settings.directory));
    // Damage is reported instead.
    let damaged_head = DamagedHead::Accept;
    let log_settings = LogSettings { damaged_head, ..log_settings(settings, Startup::now([0; 32])) };
    let (log, damage) = Log::open(volume, log_settings, decode, |_, recovered| match recovered {
        Recovered::Trajectory { content, .. } => {
            trajectories += 1;
            items += content.full_steps() as u64;
        }
        Recovered::Revision { .. } => revisions += 1,
        Recovered::Operator(_) => others += 1,
    })?;
    Ok(Verified { trajectories, items, revisions, others, segments: log.segments(), bytes: log.bytes(), damage })
}

/// A read-only directory: every change is ignored.
#[derive(Debug)]
struct ReadOnly(Disk);

impl Volume for ReadOnly {
    type File = ();

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.0.read(name)
    }

    fn create(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn open(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A file in a read-only directory.
impl VolumeFile for () {
    fn append(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}
