//! The log: every trajectory that was acknowledged, in append-only segment files.
//!
//! A segment is a row of checksummed [`frame`]s; the first is a [`Head`] that carries over what earlier segments knew
//! (ids seen, totals), so old segments are dropped by unlinking them. A commit is one write and one fsync for many
//! records. It knows nothing of the table nor of what a trajectory's content means. Start with [`Log::open`].

pub mod committer;
pub mod frame;
pub mod record;
pub mod volume;

use std::collections::VecDeque;
use std::io;

use experience::TrajectoryId;

pub use record::{Counters, Head, Record, UnreadableRecord};
pub use volume::{Disk, Volume, VolumeFile};

/// What the log is made with.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// The name of the game whose trajectories it holds.
    pub game: String,
    /// A segment that reached this size is closed.
    pub segment_bytes: u64,
}

/// Which segment; they count up from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNumber(pub u64);

impl SegmentNumber {
    const SUFFIX: &str = ".log";

    /// The name of its file.
    pub fn file_name(self) -> String {
        format!("{:020}{}", self.0, Self::SUFFIX)
    }

    /// The other way around; `None` for a file of any other name.
    fn from_file_name(name: &str) -> Option<Self> {
        let number = name.strip_suffix(Self::SUFFIX)?.parse().ok().map(Self)?;
        (number.file_name() == name).then_some(number)
    }
}

/// One thing to be made durable.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// A trajectory came in.
    Trajectory {
        /// Its id.
        id: TrajectoryId,
        /// Its items.
        items: u32,
        /// It, encoded.
        content: Vec<u8>,
    },
    /// A trajectory was taken out of sampling.
    Quarantine(TrajectoryId),
}

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk failed.
    #[error("cannot {action} the replay log's file {name}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        name: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// It was written by a newer or older program.
    #[error(
        "the replay log's file {name} is of format {found}, this program reads format {}: use another run",
        record::FORMAT
    )]
    Format {
        /// The file.
        name: String,
        /// Its format.
        found: u8,
    },
    /// It holds another game.
    #[error("the replay log holds trajectories of {found}, this run plays {expected}: use another run")]
    Game {
        /// The game in the log.
        found: String,
        /// The game of the run.
        expected: String,
    },
}

/// What opening a log found wrong, and what it did about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// The file.
    pub name: String,
    /// Where the damage begins.
    pub offset: usize,
    /// How many bytes are lost.
    pub length: usize,
    /// What was wrong.
    pub what: String,
    /// Whether the bytes were cut off, so that the file can grow again; otherwise they were skipped.
    pub cut: bool,
}

/// An open log.
#[derive(Debug)]
pub struct Log<V: Volume> {
    volume: V,
    settings: LogSettings,
    /// What a new segment's head would say.
    state: Head,
    /// Oldest first, with their sizes; the last one may be open.
    segments: VecDeque<(SegmentNumber, u64)>,
    open: Option<V::File>,
}

impl<V: Volume> Log<V> {
    /// Reads all segments, oldest first, and tells every record that is whole; cuts a torn tail, skips damage.
    ///
    /// # Errors
    /// [`OpenError`]: nothing was changed but a torn tail.
    pub fn open(
        volume: V,
        settings: LogSettings,
        mut on_entry: impl FnMut(SegmentNumber, Entry) -> Result<(), String>,
    ) -> Result<(Self, Vec<Repair>), OpenError> {
        let io = |action, name: &str| {
            let name = name.to_owned();
            move |source| OpenError::Io { action, name, source }
        };
        let names = volume.list().map_err(io("list", "."))?;
        let mut numbers: Vec<SegmentNumber> =
            names.iter().filter_map(|name| SegmentNumber::from_file_name(name)).collect();
        numbers.sort_unstable();
        let state = Head { game: settings.game.clone(), ..Head::default() };
        let mut log = Self { volume, settings, state, segments: VecDeque::new(), open: None };
        let mut repairs = Vec::new();
        for (index, &number) in numbers.iter().enumerate() {
            let name = number.file_name();
            let bytes = log.volume.read(&name).map_err(io("read", &name))?;
            let scan = frame::scan(&bytes);
            let mut lost = scan.damage;
            let mut size = bytes.len();
            for (offset, payload) in scan.frames {
                let length = frame::HEADER_BYTES + payload.len();
                if let Err(what) = log.replay(number, payload, &mut on_entry)? {
                    repairs.push(Repair { name: name.clone(), offset, length, what, cut: false });
                }
            }
            // Only the newest segment grows again; in the others a bad tail is damage like any other.
            let is_last = index + 1 == numbers.len();
            if let Some(tail) = scan.tail {
                if is_last {
                    let mut file = log.volume.open(&name).map_err(io("open", &name))?;
                    file.truncate(tail.offset as u64).map_err(io("cut", &name))?;
                    size = tail.offset;
                    let frame::Damage { offset, length, fault } = tail;
                    repairs.push(Repair { name: name.clone(), offset, length, what: fault.to_string(), cut: true });
                } else {
                    lost.push(tail);
                }
            }
            repairs.extend(lost.into_iter().map(|frame::Damage { offset, length, fault }| Repair {
                name: name.clone(),
                offset,
                length,
                what: fault.to_string(),
                cut: false,
            }));
            if size == 0 {
                log.volume.remove(&name).map_err(io("remove", &name))?;
                continue;
            }
            if is_last && (size as u64) < log.settings.segment_bytes {
                log.open = Some(log.volume.open(&name).map_err(io("open", &name))?);
            }
            log.segments.push_back((number, size as u64));
        }
        Ok((log, repairs))
    }

    /// Makes `entries` durable in one write and one fsync, together with the number of samples drawn so far.
    ///
    /// # Errors
    /// None of the entries counts; the log is as it was and may be tried again.
    pub fn commit(&mut self, entries: &[Entry], samples: u64) -> io::Result<SegmentNumber> {
        let (number, start) = self.segment_to_grow()?;
        let mut counters = self.state.counters;
        let mut bytes = Vec::new();
        for entry in entries {
            let record = match entry {
                Entry::Trajectory { id, items, content } => {
                    counters.count(*items);
                    Record::Trajectory { id: *id, items: *items, content: content.clone() }
                }
                Entry::Quarantine(id) => Record::Quarantine(*id),
            };
            frame::append(&mut bytes, &record.encode()?)?;
        }
        counters.samples = counters.samples.max(samples);
        frame::append(&mut bytes, &Record::Counters(counters).encode()?)?;
        let file = self.open.as_mut().expect("the segment to grow is open");
        if let Err(error) = file.append(&bytes).and_then(|()| file.sync()) {
            // After a failed fsync nobody knows what is on the disk: cut back to what is, or leave the file alone for good.
            if file.truncate(start).is_err() {
                self.open = None;
            }
            return Err(error);
        }
        self.state.counters = counters;
        for entry in entries {
            if let Entry::Trajectory { id, .. } = entry {
                self.state.seen.insert(*id);
            }
        }
        let size = start + bytes.len() as u64;
        self.segments.back_mut().expect("the segment to grow is listed").1 = size;
        if size >= self.settings.segment_bytes {
            self.open = None;
        }
        Ok(number)
    }

    /// Unlinks every closed segment before `number`.
    ///
    /// # Errors
    /// The disk failed; what is left may be dropped later.
    pub fn drop_before(&mut self, number: SegmentNumber) -> io::Result<usize> {
        let mut dropped = 0;
        while self.segments.len() > 1 && self.segments[0].0 < number {
            self.volume.remove(&self.segments[0].0.file_name())?;
            self.segments.pop_front();
            dropped += 1;
        }
        if dropped > 0 {
            self.volume.sync()?;
        }
        Ok(dropped)
    }

    /// What the log knows at its end.
    pub fn state(&self) -> &Head {
        &self.state
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|(_, size)| size).sum()
    }

    /// How many segments there are.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Takes one record in. The inner error is a record that cannot be used, in words.
    fn replay(
        &mut self,
        number: SegmentNumber,
        payload: &[u8],
        on_entry: &mut impl FnMut(SegmentNumber, Entry) -> Result<(), String>,
    ) -> Result<Result<(), String>, OpenError> {
        let record = match Record::decode(payload) {
            Ok(record) => record,
            Err(UnreadableRecord::Format(found)) => {
                return Err(OpenError::Format { name: number.file_name(), found });
            }
            Err(error) => return Ok(Err(format!("a record that cannot be read: {error}"))),
        };
        let used = match record {
            Record::Head(Head { game, counters, seen }) => {
                if game != self.settings.game {
                    return Err(OpenError::Game { found: game, expected: self.settings.game.clone() });
                }
                self.state.counters = self.state.counters.max(counters);
                for (actor, epoch, sequences) in seen.intervals() {
                    self.state.seen.insert_interval(actor, epoch, sequences);
                }
                Ok(())
            }
            // Written twice only if a commit failed, could not be cut back and was tried again: it counts once.
            Record::Trajectory { id, .. } if self.state.seen.contains(id) => Ok(()),
            Record::Trajectory { id, items, content } => {
                self.state.seen.insert(id);
                self.state.counters.count(items);
                on_entry(number, Entry::Trajectory { id, items, content })
            }
            Record::Quarantine(id) => on_entry(number, Entry::Quarantine(id)),
            Record::Counters(counters) => {
                self.state.counters = self.state.counters.max(counters);
                Ok(())
            }
        };
        Ok(used.map_err(|error| format!("a record that cannot be used: {error}")))
    }

    fn segment_to_grow(&mut self) -> io::Result<(SegmentNumber, u64)> {
        if let (Some(_), Some(&(number, size))) = (&self.open, self.segments.back()) {
            return Ok((number, size));
        }
        let last = self.segments.back().map_or(0, |(number, _)| number.0);
        let number = last.checked_add(1).ok_or_else(|| io::Error::other("no number is left for a segment"))?;
        let number = SegmentNumber(number);
        let name = number.file_name();
        let mut bytes = Vec::new();
        frame::append(&mut bytes, &Record::Head(self.state.clone()).encode()?)?;
        let mut file = self.volume.create(&name)?;
        if let Err(error) = file.append(&bytes).and_then(|()| file.sync()).and_then(|()| self.volume.sync()) {
            // Best effort: a head without records does no harm, but its name would be in the way of the next attempt.
            let _ = self.volume.remove(&name);
            return Err(error);
        }
        let size = bytes.len() as u64;
        self.segments.push_back((number, size));
        self.open = Some(file);
        Ok((number, size))
    }
}

#[cfg(test)]
pub(crate) mod tests;
