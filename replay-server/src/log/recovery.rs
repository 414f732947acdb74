//! Reads a log back: one segment in memory at a time, decoded by as many threads as there are cores, passed on in
//! order.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use experience::TrajectoryId;

use super::fields::UnreadableRecord;
use super::frame::{self, Unreadable};
use super::operator_record::OperatorRecord;
use super::record::{Record, UnixMillis};
use super::volume::{Volume, VolumeFile};
use super::{Log, LogSettings, OpenSegment, SegmentNumber};

/// Frames that a thread decodes before it hands them over.
const CHUNK_FRAMES: usize = 256;

/// The reason for which a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk failed.
    #[error("cannot {action} the replay log's file {name}")]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// With which file.
        name: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It was written by an older or a newer program.
    #[error(
        "the replay log's file {name} is of format {found}, this program reads format {}: use the program that wrote it, \
         or another run",
        frame::FORMAT
    )]
    Format {
        /// The file.
        name: String,
        /// Its format.
        found: u32,
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

/// Damage found while a log was opened, and the repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// The file.
    pub name: String,
    /// The offset of the damage.
    pub offset: usize,
    /// The number of bytes lost.
    pub length: usize,
    /// The fault.
    pub what: String,
    /// True if the bytes were truncated, so that the file can grow again; otherwise they were skipped.
    pub cut: bool,
}

/// The content of a log, passed on in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Recovered<T> {
    /// A trajectory, once.
    Trajectory {
        /// Its id.
        id: TrajectoryId,
        /// The time of the insert.
        inserted: UnixMillis,
        /// It, decoded.
        content: T,
    },
    /// Anything else.
    Operator(OperatorRecord),
}

/// A record whose content is decoded, or the reason for which it cannot be.
type Decoded<T> = Record<Result<T, String>>;

/// Reads all segments, oldest first; cuts a torn tail, skips damage.
///
/// All records read are durable when this returns: they are answered as stored from now on, and a process may have died
/// between its write and its sync.
///
/// # Errors
/// [`OpenError`]: nothing was changed but a torn tail.
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
    for (index, &number) in numbers.iter().enumerate() {
        let name = number.file_name();
        let bytes = log.volume.read(&name).map_err(io("read", &name))?;
        let is_last = index + 1 == numbers.len();
        let scan = match frame::scan(number, &bytes) {
            Ok(scan) => scan,
            Err(Unreadable::Format(found)) => return Err(OpenError::Format { name, found }),
            Err(fault @ (Unreadable::Torn | Unreadable::Prologue)) => {
                // A file whose creation was cut short holds nothing. Any other is left alone, for a person to look at.
                let cut = is_last && fault == Unreadable::Torn;
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
        let mut size = bytes.len();
        let mut has_head = false;
        decode_all(&scan.frames, threads, &decode, |(offset, payload), decoded| {
            let length = frame::HEADER_BYTES + payload.len();
            let used = match decoded {
                // What earlier segments knew is believed only where the log writes it.
                Ok(Decoded::Head(_)) if offset != frame::PROLOGUE_BYTES => Err("a head inside a file".to_owned()),
                Ok(decoded) => {
                    has_head |= matches!(decoded, Decoded::Head(_));
                    replay(&mut log, number, decoded, &mut apply)?
                }
                Err(error) => Err(format!("a record that cannot be read: {error}")),
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
        // Only the newest segment grows again; in the others a bad tail is damage like any other.
        let mut file = log.volume.open(&name).map_err(io("open", &name))?;
        if let Some(tail) = scan.tail.as_ref().filter(|_| is_last) {
            size = tail.offset;
            file.truncate(tail.offset as u64).map_err(io("cut", &name))?;
        }
        file.sync().map_err(io("sync", &name))?;
        // Without its head a segment is not worth to grow: the next one begins with another.
        if is_last && (size as u64) < log.settings.segment_bytes && has_head {
            log.open = Some(OpenSegment { file, prologue: scan.prologue });
        }
        repairs.extend(scan.tail.map(|tail| damaged(tail, is_last)));
        repairs.extend(scan.damage.into_iter().map(|damage| damaged(damage, false)));
        // The creation of the file was cut short behind its prologue.
        if size == frame::PROLOGUE_BYTES {
            log.open = None;
            log.volume.remove(&name).map_err(io("remove", &name))?;
            continue;
        }
        log.segments.push_back((number, size as u64));
    }
    log.volume.sync().map_err(io("sync", "."))?;
    log.synced = log.state.counters;
    Ok((log, repairs))
}

/// Takes one record in. The inner error is a record that cannot be used, in words.
fn replay<V: Volume, T>(
    log: &mut Log<V>,
    number: SegmentNumber,
    decoded: Decoded<T>,
    apply: &mut impl FnMut(SegmentNumber, Recovered<T>),
) -> Result<Result<(), String>, OpenError> {
    match decoded {
        Decoded::Head(head) => {
            if head.game != log.settings.game {
                return Err(OpenError::Game { found: head.game, expected: log.settings.game.clone() });
            }
            log.state.merge(head);
        }
        // Written twice only if a commit failed, could not be cut back and was tried again: it counts once.
        Decoded::Trajectory { id, .. } if log.state.seen.contains(id) => {}
        Decoded::Trajectory { id, items, inserted, content } => {
            log.state.seen.insert(id);
            log.state.counters.count(items);
            match content {
                Ok(content) => apply(number, Recovered::Trajectory { id, inserted, content }),
                Err(error) => return Ok(Err(format!("a record that cannot be used: {error}"))),
            }
        }
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

/// Decodes frames on `threads` threads and passes them on in order on this one.
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
            // The receiver is gone once a record has made the log unreadable.
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

/// Yields items in the order of their index. Early items wait; they are at most the content of one segment.
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
