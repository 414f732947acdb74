//! Reads a log when the server starts: loads one segment at a time, decodes the records on several threads and passes
//! them on in order.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use experience::TrajectoryId;
use replay::{SeenIds, SeenLimits};
use run_file::replay::DamagedHead;
use service::file_faults::is_full;

use super::fields::UnreadableRecord;
use super::frame::{self, Unreadable};
use super::head::Head;
use super::operator_record::OperatorRecord;
use super::record::{Record, UnixMillis};
use super::volume::{Volume, VolumeFile as _};
use super::{Log, LogSettings, OpenSegment, SegmentNumber, cut_off};
use crate::defect::Defect;

/// Number of frames that a thread decodes before it passes them on.
const CHUNK_FRAMES: usize = 256;

/// The reason why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk failed.
    #[error("cannot {action} the replay log's file {name}")]
    Io {
        /// The operation that failed, as a verb.
        action: &'static str,
        /// The file of the operation.
        name: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The disk has no space for a copy of the newest segment, and cannot write the segment in place.
    #[error(
        "no space left on the disk of the replay log, and a start rewrites the latest segment ({name}, {bytes} \
         bytes); free that much space, or move the log directory to a larger disk"
    )]
    Full {
        /// Name of the file.
        name: String,
        /// Number of bytes to rewrite.
        bytes: usize,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file was written by an older or a newer program.
    #[error(
        "the replay log's file {name} has format {found}, this program reads format {}; use the program version that \
         wrote the file, or another run",
        frame::FORMAT
    )]
    Format {
        /// Name of the file.
        name: String,
        /// Format of the file.
        found: u32,
    },
    /// No head of the log can be read.
    #[error(
        "no head of the replay log can be read (the first is in {name}); restore the log from a copy, or accept the \
         loss of ids, quarantines and settings with replay.damaged_head=accept"
    )]
    Head {
        /// Name of the first file with a damaged head.
        name: String,
    },
    /// The trajectories in the log exceed the memory.
    #[error(
        "the trajectories of the replay log need {needed_bytes} bytes of memory, and this machine or the limit of the \
         container leaves {bytes_max}; give the replay server more memory (mem_limit, resources.limits.memory), or \
         start it once with enough of it and a lower replay.capacity_items, which shortens the log"
    )]
    Memory {
        /// Memory of all trajectories in the log, in bytes.
        needed_bytes: u64,
        /// Memory available to the tables, in bytes.
        bytes_max: u64,
    },
    /// The log holds trajectories of another game.
    #[error("the replay log holds trajectories of {found}, this run plays {expected}; use another run")]
    Game {
        /// Game in the log.
        found: String,
        /// Game of the run.
        expected: String,
    },
}

/// Damage found while opening a log, and the repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Name of the file.
    pub name: String,
    /// Offset of the damage.
    pub offset: usize,
    /// Number of bytes lost.
    pub length: usize,
    /// Human-readable fault.
    pub what: String,
    /// True if the bytes were cut off to allow appends; false if they were skipped.
    pub cut: bool,
}

impl Repair {
    /// Returns the name of the file with the bytes that were cut off, if any.
    #[must_use]
    pub fn kept_in(&self) -> Option<String> {
        self.cut.then(|| cut_off::file_name(&self.name, self.offset))
    }
}

/// A recovered record, passed on in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Recovered<T> {
    /// A trajectory, passed on once.
    Trajectory {
        /// Id of the trajectory.
        id: TrajectoryId,
        /// Time of the insert.
        inserted: UnixMillis,
        /// Decoded trajectory.
        content: T,
    },
    /// New searches of a trajectory. The trajectory may be removed by now, or the record may be lost.
    Revision {
        /// Id of the trajectory.
        id: TrajectoryId,
        /// Revision of the searches.
        revision: u64,
        /// Time of the revision.
        revised: UnixMillis,
        /// Decoded trajectory with the new searches, without observations.
        content: T,
    },
    /// An operator's change or a table's counters.
    Operator(OperatorRecord),
}

/// A record with decoded content, or with the reason why the content cannot be decoded.
type Decoded<T> = Record<Result<T, String>>;

/// Reads all segments, oldest first; cuts off a torn tail and skips damage.
///
/// All records read are durable when this returns. From now on, inserts of the same ids count as duplicates, although
/// an earlier process may have died between write and sync, or after a failed sync.
///
/// # Errors
/// [`OpenError`]: no record was lost; a torn tail may have been moved to a separate file.
pub(super) fn open<V: Volume, T: Send>(
    volume: V,
    settings: LogSettings,
    decode: impl Fn(TrajectoryId, &[u8]) -> Result<T, String> + Sync,
    mut apply: impl FnMut(SegmentNumber, Recovered<T>),
) -> Result<(Log<V>, Vec<Repair>), OpenError> {
    let io = |action, name: &str| {
        let name = name.to_owned();
        move |source| OpenError::Io { action, name, source }
    };
    let names = volume.list().map_err(io("list", "."))?;
    let mut numbers: Vec<SegmentNumber> = names.iter().filter_map(|name| SegmentNumber::from_file_name(name)).collect();
    numbers.sort_unstable();
    let threads = settings.threads;
    let mut log = Log::empty(volume, settings);
    let mut repairs = Vec::new();
    let (mut heads, mut is_begun) = (0, false);
    // The ids of records are exact, the ids in heads are not: a gap may close over a trajectory in flight.
    let mut read = SeenIds::new(SeenLimits::UNBOUNDED);
    for (index, &number) in numbers.iter().enumerate() {
        let name = number.file_name();
        let bytes = log.volume.read(&name).map_err(io("read", &name))?;
        let is_last = index + 1 == numbers.len();
        let scan = match frame::scan_with(number, &bytes, log.settings.planted) {
            Ok(scan) => scan,
            Err(Unreadable::Format(found)) => return Err(OpenError::Format { name, found }),
            Err(fault @ (Unreadable::Torn | Unreadable::Prologue)) => {
                // A file with an interrupted creation holds no records. Any other file is kept unchanged, for an
                // operator to examine.
                let cut = is_last && fault == Unreadable::Torn && keep_tail(&log.volume, &name, &bytes, 0)?;
                if cut {
                    log.volume.remove(&name).map_err(io("remove", &name))?;
                } else {
                    log.segments.push_back((number, bytes.len() as u64));
                }
                if !bytes.is_empty() {
                    repairs.push(Repair { name, offset: 0, length: bytes.len(), what: fault.to_string(), cut });
                }
                continue;
            }
        };
        // Only the newest segment is appended to; a bad tail of another segment counts as damage.
        let tail = scan.tail.as_ref().filter(|_| is_last);
        let kept = tail.map_or(bytes.len(), |tail| tail.offset);
        let mut has_head = false;
        is_begun |= number == SegmentNumber::FIRST;
        decode_all(&scan.frames, threads, &decode, |(offset, payload), decoded| {
            let length = frame::HEADER_BYTES + payload.len();
            let used = match decoded {
                // A head is valid only as the first frame, since the log writes it there.
                Ok(Decoded::Head(_)) if offset != frame::PROLOGUE_BYTES => Err("a head inside a file".to_owned()),
                Ok(decoded) => {
                    has_head |= matches!(decoded, Decoded::Head(_));
                    replay(&mut log, number, decoded, &mut read, &mut apply)?
                }
                Err(error) => Err(format!("an unreadable record: {error}")),
            };
            if let Err(what) = used {
                repairs.push(Repair { name: name.clone(), offset, length, what, cut: false });
            }
            Ok(())
        })?;
        let damaged = |frame::Damage { offset, length, fault }, cut| {
            let what = fault.to_string();
            Repair { name: name.clone(), offset, length, what, cut }
        };
        // A bad tail that cannot be kept elsewhere stays, and the next record opens a new segment.
        let is_closed = !keep_tail(&log.volume, &name, &bytes, kept)?;
        let kept = if is_closed { bytes.len() } else { kept };
        repairs.extend(scan.tail.map(|tail| damaged(tail, is_last && !is_closed)));
        repairs.extend(scan.damage.into_iter().map(|damage| damaged(damage, false)));
        // The creation of the file was interrupted after the prologue.
        if kept == frame::PROLOGUE_BYTES {
            log.volume.remove(&name).map_err(io("remove", &name))?;
            continue;
        }
        if is_last && !log.settings.planted.is(Defect::PageCacheTrusted) {
            write_anew(&log.volume, &name, &bytes[..kept])?;
        } else {
            // An older segment is durable already, unless the directory was copied.
            let mut file = log.volume.open(&name).map_err(io("open", &name))?;
            let cut = if kept < bytes.len() { file.truncate(kept as u64) } else { Ok(()) };
            cut.and_then(|()| file.sync()).map_err(io("sync", &name))?;
        }
        // A segment without a head is not appended to: the next segment has a new head.
        heads += usize::from(has_head);
        if is_last && !is_closed && (kept as u64) < log.settings.segment_bytes && has_head {
            let file = log.volume.open(&name).map_err(io("open", &name))?;
            log.open = Some(OpenSegment { file, prologue: scan.prologue });
        }
        log.segments.push_back((number, kept as u64));
    }
    // A head includes the state of all earlier heads; records after the head restore the state of later heads. The
    // head of the first segment is empty.
    let may_lose = log.settings.damaged_head == DamagedHead::Accept || heads > 0 || is_begun;
    // A file no longer than an empty first segment was being created, and holds no records.
    let empty = Head { game: log.settings.game.clone(), ..Head::default() };
    let beginning =
        frame::PROLOGUE_BYTES + frame::HEADER_BYTES + Record::encode_head(&empty).map_or(0, |head| head.len());
    if let Some((first, _)) = log.segments.iter().find(|(_, bytes)| *bytes > beginning as u64)
        && !may_lose
        && !log.settings.planted.is(Defect::DamagedHeadIgnored)
    {
        return Err(OpenError::Head { name: first.file_name() });
    }
    log.state.seen.bound(log.settings.seen);
    log.volume.sync().map_err(io("sync", "."))?;
    log.synced = log.state.counters;
    Ok((log, repairs))
}

/// Rewrites the bytes read from the newest segment durably in a new file; on a full disk in place, so that samples are
/// served.
///
/// A sync of the file itself would prove nothing: after a failed sync, the kernel marks the pages as clean. Later
/// processes can read them, but a sync succeeds without writing them. Only the newest segment may hold such pages,
/// since a new segment starts only once everything before it is durable. Bytes written again make the pages dirty. A
/// new file is safer, since a disk may damage a block that it is writing when the power fails.
fn write_anew<V: Volume>(volume: &V, name: &str, bytes: &[u8]) -> Result<(), OpenError> {
    let in_place = |error: io::Error| if is_full(&error) { volume.rewrite(name, bytes) } else { Err(error) };
    volume.replace(name, bytes).or_else(in_place).map_err(|source| failed("rewrite", name, bytes.len(), source))
}

/// Copies the bytes of a file from `offset` on, if any, to a separate file. Returns false if the disk has no room.
fn keep_tail<V: Volume>(volume: &V, name: &str, bytes: &[u8], offset: usize) -> Result<bool, OpenError> {
    if offset == bytes.len() {
        return Ok(true);
    }
    match cut_off::keep(volume, name, offset, &bytes[offset..]) {
        Err(error) if is_full(&error) => Ok(false),
        kept => kept.map(|()| true).map_err(|source| failed("save the end of", name, bytes.len(), source)),
    }
}

fn failed(action: &'static str, name: &str, bytes: usize, source: io::Error) -> OpenError {
    let name = name.to_owned();
    if is_full(&source) { OpenError::Full { name, bytes, source } } else { OpenError::Io { action, name, source } }
}

/// Applies one record. The inner error describes an unusable record.
fn replay<V: Volume, T>(
    log: &mut Log<V>,
    number: SegmentNumber,
    decoded: Decoded<T>,
    read: &mut SeenIds,
    apply: &mut impl FnMut(SegmentNumber, Recovered<T>),
) -> Result<Result<(), String>, OpenError> {
    match decoded {
        Decoded::Head(head) => {
            if head.game != log.settings.game {
                return Err(OpenError::Game { found: head.game, expected: log.settings.game.clone() });
            }
            log.state.merge(head);
        }
        // A trajectory is written twice only after a failed commit that could not be truncated: it counts once.
        Decoded::Trajectory { id, .. } if !read.insert(id) => {}
        Decoded::Trajectory { id, items, inserted, content } => {
            log.state.seen.insert(id);
            log.state.counters.count(items);
            match content {
                Ok(content) => apply(number, Recovered::Trajectory { id, inserted, content }),
                Err(error) => return Ok(Err(format!("an unusable record: {error}"))),
            }
        }
        Decoded::Revision { id, revision, revised, content } => match content {
            Ok(content) => apply(number, Recovered::Revision { id, revision, revised, content }),
            Err(error) => return Ok(Err(format!("an unusable revision: {error}"))),
        },
        Decoded::Operator(record) => {
            log.state.record(&record);
            apply(number, Recovered::Operator(record));
        }
        Decoded::Counters(counters) => log.state.counters = log.state.counters.max(counters),
    }
    Ok(Ok(()))
}

fn decode_frame<T>(
    payload: &[u8],
    decode: &impl Fn(TrajectoryId, &[u8]) -> Result<T, String>,
) -> Result<Decoded<T>, UnreadableRecord> {
    Record::decode_with(payload, |id, content| decode(id, &content))
}

type Frame<'a> = (usize, &'a [u8]);
type Chunk<T> = Vec<Result<Decoded<T>, UnreadableRecord>>;

/// Decodes frames on `threads` threads and calls `visit` in order on the current thread.
fn decode_all<'a, T: Send>(
    frames: &[Frame<'a>],
    threads: NonZeroUsize,
    decode: &(impl Fn(TrajectoryId, &[u8]) -> Result<T, String> + Sync),
    mut visit: impl FnMut(Frame<'a>, Result<Decoded<T>, UnreadableRecord>) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    if frames.len() <= CHUNK_FRAMES || threads.get() == 1 {
        return frames
            .iter()
            .try_for_each(|&(offset, payload)| visit((offset, payload), decode_frame(payload, decode)));
    }
    let next = AtomicUsize::new(0);
    let chunk = |index: usize| frames.chunks(CHUNK_FRAMES).nth(index);
    let work = |done: SyncSender<(usize, Chunk<T>)>| {
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(frames) = chunk(index)
        {
            let decoded = frames.iter().map(|(_, payload)| decode_frame(payload, decode)).collect();
            // The receiver is dropped after a record that makes the log unreadable.
            if done.send((index, decoded)).is_err() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        let (done, chunks) = sync_channel(threads.get());
        for _ in 0..threads.get() {
            let done = done.clone();
            scope.spawn(|| work(done));
        }
        drop(done);
        in_order(chunks).zip(frames.chunks(CHUNK_FRAMES)).try_for_each(|(decoded, frames)| {
            decoded.into_iter().zip(frames).try_for_each(|(decoded, &frame)| visit(frame, decoded))
        })
    })
}

/// Yields items in index order. Early items are buffered: at most the content of one segment.
fn in_order<T>(chunks: Receiver<(usize, T)>) -> impl Iterator<Item = T> {
    let mut early = BTreeMap::new();
    (0..).map_while(move |wanted| {
        loop {
            if let Some(chunk) = early.remove(&wanted) {
                return Some(chunk);
            }
            let (index, chunk) = chunks.recv().ok()?;
            early.insert(index, chunk);
        }
    })
}
