//! The log stores every acknowledged trajectory in append-only segment files.
//!
//! A segment is a sequence of [`frame`]s, which only the process can produce (clients cannot forge them). The first
//! frame holds a [`Head`] with the state of earlier segments (ids of inserted trajectories, totals), so that old
//! segments can be dropped by deleting the files. A commit is one write and one fsync for many records. The log depends
//! neither on the table nor on the content of a trajectory. Start with [`Log::open`].

pub mod committer;
mod cut_off;
mod fields;
pub mod frame;
pub mod head;
pub mod operator_record;
#[cfg(any(test, feature = "simulation"))]
#[path = "log/tests/power_disk.rs"]
pub mod power_disk;
pub mod record;
mod recovery;
pub mod volume;

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;

use experience::TrajectoryId;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use replay::{SeenIds, SeenLimits};
use run_file::replay::DamagedHead;

use crate::defect::{Defect, Planted};
pub use fields::UnreadableRecord;
use frame::{Prologue, Salt};
pub use head::{Counters, Head, LoggedTable};
pub use operator_record::{OperatorRecord, TableCounters};
pub use record::{EncodedTrajectory, Record, UnixMillis};
pub use recovery::{OpenError, Recovered, Repair};
pub use volume::{Disk, Volume, VolumeFile};

/// Buffer capacity that is kept between commits, in bytes. After a rare larger commit, the excess is freed.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// Settings of the log.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// Name of the game of all trajectories in the log.
    pub game: String,
    /// Size at which a segment is closed, in bytes.
    pub segment_bytes: u64,
    /// Number of threads that read the log when the server starts.
    pub threads: NonZeroUsize,
    /// Seed of the salts for new segments; only real entropy keeps clients from forging records.
    pub salt_seed: [u8; 32],
    /// Memory bounds for the ids of inserted trajectories.
    pub seen: SeenLimits,
    /// Reaction to a log without a readable head.
    pub damaged_head: DamagedHead,
    /// A defect planted by a simulation.
    pub planted: Planted,
}

/// Number of a segment, counted from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNumber(pub u64);

impl SegmentNumber {
    /// Number of the first segment in a log.
    pub const FIRST: Self = Self(1);

    const SUFFIX: &str = ".log";

    /// Returns the file name of the segment.
    pub fn file_name(self) -> String {
        format!("{:020}{}", self.0, Self::SUFFIX)
    }

    /// Parses the file name of a segment; `None` for any other name.
    pub fn from_file_name(name: &str) -> Option<Self> {
        let number = name.strip_suffix(Self::SUFFIX)?.parse().ok().map(Self)?;
        (number.file_name() == name).then_some(number)
    }
}

/// A record to make durable.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// An inserted trajectory.
    Trajectory {
        /// Id of the trajectory.
        id: TrajectoryId,
        /// Number of items in the trajectory.
        items: u32,
        /// The encoded record.
        content: EncodedTrajectory,
    },
    /// New searches of a trajectory.
    Revision {
        /// Id of the trajectory.
        id: TrajectoryId,
        /// The encoded record.
        content: EncodedTrajectory,
    },
    /// Any other record.
    Operator(OperatorRecord),
}

impl Entry {
    /// Returns the approximate size of the entry in the log, in bytes; operator records other than priorities are
    /// small.
    fn bytes(&self) -> usize {
        match self {
            Self::Trajectory { content, .. } | Self::Revision { content, .. } => {
                frame::HEADER_BYTES + content.payload().len()
            }
            Self::Operator(OperatorRecord::Priorities { updates, .. }) => size_of_val(updates.as_slice()),
            Self::Operator(_) => frame::HEADER_BYTES,
        }
    }
}

/// An open log.
#[derive(Debug)]
pub struct Log<V: Volume> {
    volume: V,
    settings: LogSettings,
    /// The state to write as the head of the next segment.
    state: Head,
    /// Totals of the durable records.
    synced: Counters,
    /// Segments with sizes, oldest first; the last may be open.
    segments: VecDeque<(SegmentNumber, u64)>,
    open: Option<OpenSegment<V::File>>,
    salts: ChaCha8Rng,
    /// True if the open file has unsynced writes.
    is_dirty: bool,
    /// Length to which the open file must be truncated before it grows again, because a failed commit may have left
    /// complete records.
    cut_due: Option<u64>,
    /// True after a failed sync of written records; the segment is then rewritten before the next segment starts.
    is_unsynced: bool,
    buffer: Vec<u8>,
}

/// The segment that is open for appending.
#[derive(Debug)]
struct OpenSegment<F> {
    file: F,
    prologue: Prologue,
}

/// The range of one write at the end of a segment.
#[derive(Debug, Clone, Copy)]
struct Written {
    number: SegmentNumber,
    start: u64,
    end: u64,
}

impl<V: Volume> Log<V> {
    /// Reads all segments, oldest first, and passes every complete record to `apply`; cuts off a torn tail and skips
    /// damaged records.
    ///
    /// `decode` reads the content of a trajectory, on several threads at once; `apply` receives every record in the
    /// order of insertion. All records read are durable when this returns.
    ///
    /// # Errors
    /// [`OpenError`]: no record was lost; a torn tail may have been moved to a separate file.
    pub fn open<T: Send>(
        volume: V,
        settings: LogSettings,
        decode: impl Fn(TrajectoryId, &[u8]) -> Result<T, String> + Sync,
        apply: impl FnMut(SegmentNumber, Recovered<T>),
    ) -> Result<(Self, Vec<Repair>), OpenError> {
        recovery::open(volume, settings, decode, apply)
    }

    fn empty(volume: V, settings: LogSettings) -> Self {
        let salts = ChaCha8Rng::from_seed(settings.salt_seed);
        let seen = SeenIds::new(settings.seen);
        let state = Head { game: settings.game.clone(), seen, ..Head::default() };
        Self {
            volume,
            settings,
            state,
            synced: Counters::default(),
            segments: VecDeque::new(),
            open: None,
            salts,
            is_dirty: false,
            cut_due: None,
            is_unsynced: false,
            buffer: Vec::new(),
        }
    }

    /// Makes `entries` durable with one write and one fsync, together with the number of samples drawn so far.
    ///
    /// # Errors
    /// No entry was recorded; the log is unchanged and the call may be retried.
    pub fn commit(&mut self, entries: &[Entry], samples: u64) -> io::Result<SegmentNumber> {
        let written = self.append(entries, samples)?;
        let open = self.open.as_mut().expect("the segment that grew is open");
        let planted = self.settings.planted;
        let synced = if planted.is(Defect::AcknowledgedBeforeSync) { Ok(()) } else { open.file.sync() };
        if let Err(error) = synced {
            // After a failed fsync the disk content is unknown: earlier records stay, later records are truncated.
            self.cut_back(written.start);
            return Err(error);
        }
        self.count(entries, samples, written);
        self.synced = self.state.counters;
        self.is_dirty = false;
        self.close_if_full();
        Ok(written.number)
    }

    /// Writes `entries` to the file, so that they survive the exit of this process; [`Log::sync`] makes them durable.
    ///
    /// # Errors
    /// No entry was recorded; the log is unchanged and the call may be retried.
    pub fn write(&mut self, entries: &[Entry], samples: u64) -> io::Result<SegmentNumber> {
        let written = self.append(entries, samples)?;
        self.count(entries, samples, written);
        self.is_dirty = true;
        Ok(written.number)
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// The records written since the last sync may be lost if the machine stops before the next write, which rewrites
    /// the segment.
    pub fn sync(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.is_dirty) {
            return Ok(());
        }
        let synced = self.open.as_mut().map_or(Ok(()), |open| open.file.sync());
        match synced {
            Ok(()) => {
                self.synced = self.state.counters;
                self.close_if_full();
            }
            // A second fsync would succeed without writing the data: after a failed fsync the kernel marks the pages
            // as clean.
            Err(_) => {
                let _ = self.cut();
                self.open = None;
                self.is_unsynced = true;
            }
        }
        synced
    }

    /// Returns true if some written records have not been synced.
    pub fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// Unlinks every closed segment before `number`.
    ///
    /// # Errors
    /// The disk failed; the remaining segments may be dropped later.
    pub fn drop_before(&mut self, number: SegmentNumber) -> io::Result<usize> {
        let mut dropped = 0;
        let number = if self.settings.planted.is(Defect::SegmentsDroppedEarly) {
            SegmentNumber(number.0.saturating_add(1))
        } else {
            number
        };
        while self.segments.len() > 1 && self.segments[0].0 < number {
            match self.volume.remove(&self.segments[0].0.file_name()) {
                // The file was already removed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
            // Each removal is durable before the next. Otherwise a power loss could undo the removal of a
            // trajectory's segment but not of a later segment with the trajectory's quarantine or revisions.
            self.volume.sync()?;
            self.segments.pop_front();
            dropped += 1;
        }
        Ok(dropped)
    }

    /// Returns the state at the end of the log.
    pub fn state(&self) -> &Head {
        &self.state
    }

    /// Returns the totals that survive a crash.
    pub fn synced(&self) -> Counters {
        self.synced
    }

    /// Returns the total size of all segments, in bytes.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|(_, size)| size).sum()
    }

    /// Returns the number of segments.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Returns a lower bound for the segment of the next entry: the current segment, which is closed before the next
    /// entry if it is full.
    pub fn segment(&self) -> SegmentNumber {
        let last = self.segments.back().map_or(SegmentNumber(0), |(number, _)| *number);
        if self.open.is_some() { last } else { SegmentNumber(last.0.saturating_add(1)) }
    }

    /// Appends the entries, preceded by the durable totals: any part of the unsynced records may be lost, and no
    /// total may count a lost record.
    fn append(&mut self, entries: &[Entry], samples: u64) -> io::Result<Written> {
        let (number, start) = self.segment_to_grow()?;
        let OpenSegment { file, prologue } = self.open.as_mut().expect("the segment to grow is open");
        let counters = Counters { samples: self.synced.samples.max(samples), ..self.synced };
        self.buffer.clear();
        encode(&mut self.buffer, prologue, start, entries, counters)?;
        let (written, end) = (file.append(&self.buffer), start + self.buffer.len() as u64);
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT);
        if let Err(error) = written {
            self.cut_back(start);
            return Err(error);
        }
        Ok(Written { number, start, end })
    }

    /// Truncates the remains of a failed write or sync after `start`, now or before the next write.
    fn cut_back(&mut self, start: u64) {
        if self.settings.planted.is(Defect::FailedCommitNotCut) {
            return;
        }
        self.cut_due = Some(start);
        // The next write retries this.
        let _ = self.cut();
    }

    fn cut(&mut self) -> io::Result<()> {
        if let (Some(start), Some(open)) = (self.cut_due, &mut self.open) {
            open.file.truncate(start)?;
        }
        self.cut_due = None;
        Ok(())
    }

    /// Updates the state and the segment size with the written entries.
    fn count(&mut self, entries: &[Entry], samples: u64, written: Written) {
        self.state.counters.samples = self.state.counters.samples.max(samples);
        for entry in entries {
            match entry {
                Entry::Trajectory { id, items, .. } => {
                    // The id is new even if the gap around it has closed since the admission.
                    self.state.seen.insert(*id);
                    self.state.counters.count(*items);
                }
                // The head needs nothing from a revision: a segment is dropped once no trajectory in it or in an
                // earlier segment is held, and a revision follows the trajectory.
                Entry::Revision { .. } => {}
                Entry::Operator(record) => self.state.record(record),
            }
        }
        self.segments.back_mut().expect("the segment that grew is listed").1 = written.end;
    }

    /// Closes a full segment. Only a durable segment may be closed: the next head counts its records.
    fn close_if_full(&mut self) {
        if self.segments.back().is_some_and(|(_, size)| *size >= self.settings.segment_bytes) {
            self.open = None;
        }
    }

    /// Makes the last segment durable in a new file after a failed sync. This is needed because recovery trusts every
    /// segment but the last.
    fn write_anew(&mut self) -> io::Result<()> {
        if let (true, Some(&(number, size))) = (self.is_unsynced, self.segments.back()) {
            let name = number.file_name();
            let mut bytes = self.volume.read(&name)?;
            // The remains of a failed write after them are no record of this log.
            bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX));
            self.volume.replace(&name, &bytes)?;
            self.synced = self.state.counters;
        }
        self.is_unsynced = false;
        Ok(())
    }

    fn segment_to_grow(&mut self) -> io::Result<(SegmentNumber, u64)> {
        self.cut()?;
        if self.is_dirty && self.segments.back().is_some_and(|(_, size)| *size >= self.settings.segment_bytes) {
            self.sync()?;
        }
        if let (Some(_), Some(&(number, size))) = (&self.open, self.segments.back()) {
            return Ok((number, size));
        }
        self.write_anew()?;
        let last = self.segments.back().map_or(0, |(number, _)| number.0);
        let number = last.checked_add(1).ok_or_else(|| io::Error::other("all segment numbers are used"))?;
        let number = SegmentNumber(number);
        let name = number.file_name();
        let mut salt = Salt::default();
        self.salts.fill_bytes(&mut salt);
        let prologue = Prologue::new(number, salt);
        let mut bytes = prologue.encode();
        prologue.append(&mut bytes, 0, &Record::encode_head(&self.state)?)?;
        let mut file = self.volume.create(&name)?;
        let is_name_synced = !self.settings.planted.is(Defect::DirectoryNotSynced);
        let sync_name = || if is_name_synced { self.volume.sync() } else { Ok(()) };
        if let Err(error) = file.append(&bytes).and_then(|()| file.sync()).and_then(|()| sync_name()) {
            // Best effort: a head without records is harmless, but the next attempt creates a file with the same name.
            let _ = self.volume.remove(&name);
            return Err(error);
        }
        let size = bytes.len() as u64;
        self.segments.push_back((number, size));
        self.open = Some(OpenSegment { file, prologue });
        self.synced = self.state.counters;
        Ok((number, size))
    }
}

/// Encodes the frames of one commit, for offset `base` in the segment with this prologue.
fn encode(out: &mut Vec<u8>, prologue: &Prologue, base: u64, entries: &[Entry], counters: Counters) -> io::Result<()> {
    prologue.append(out, base, &Record::encode_counters(counters))?;
    for entry in entries {
        match entry {
            Entry::Trajectory { content, .. } | Entry::Revision { content, .. } => {
                prologue.append_checked(out, base, content.payload(), content.checksum())?;
            }
            Entry::Operator(record) => prologue.append(out, base, &record.encode()?)?,
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
