//! Defines records, the payloads of frames. The first byte is the kind; integers, ids and text follow.

use std::cell::RefCell;
use std::io;
use std::time::{Duration, SystemTime};

use experience::TrajectoryId;

use super::fields::{COMPRESSION_LEVEL, Fields, UnreadableRecord, put_id, put_words};
use super::head::{Counters, Head};
use super::operator_record::OperatorRecord;

const KIND_HEAD: u8 = 1;
const KIND_COUNTERS: u8 = 4;
const KIND_TRAJECTORY: u8 = 5;
/// The kind of revision records; operator records use the kinds up to 11.
const KIND_REVISION: u8 = 12;

/// Maximum size of a decompressed trajectory, equal to the maximum size of a wire message; a record with a larger
/// claim is damaged.
const CONTENT_BYTES_MAX: usize = transport::limits::MESSAGE_BYTES_MAX;

/// Milliseconds since 1970 in UTC, by the clock of the accepting server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// Reads the clock of the machine.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// Returns the time since 1970 as a duration.
    pub fn since_1970(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

/// A decoded record, where `C` is the content of trajectories: encoded bytes, or a decoded form.
#[derive(Debug, Clone, PartialEq)]
pub enum Record<C = Vec<u8>> {
    /// The first record of every segment: state of earlier segments that must remain after these are removed.
    Head(Head),
    /// An inserted trajectory.
    Trajectory {
        /// Id of the trajectory, which can be counted without decoding the content.
        id: TrajectoryId,
        /// Number of items in the trajectory.
        items: u32,
        /// Time of the insert.
        inserted: UnixMillis,
        /// Content of the trajectory; compressed in the file.
        content: C,
    },
    /// New searches of a trajectory. The record of the trajectory precedes it, unchanged.
    Revision {
        /// Id of the trajectory.
        id: TrajectoryId,
        /// Revision of the searches, above zero. Among the records of one trajectory, the last with the highest
        /// revision applies.
        revision: u64,
        /// Time of the revision.
        revised: UnixMillis,
        /// The trajectory with the new searches, without observations; compressed in the file.
        content: C,
    },
    /// An operator's change or a table's counters.
    Operator(OperatorRecord),
    /// Totals that were durable when the record was written.
    Counters(Counters),
}

/// The compressed record of a trajectory or revision with a checksum, ready to be framed.
///
/// Compression and checksum are the costly parts: the task of the connection computes them, in parallel on all cores,
/// rather than the log thread. The frame itself depends on segment and offset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EncodedTrajectory {
    payload: Vec<u8>,
    checksum: u32,
}

thread_local! {
    /// The compression context of a thread. It is reused because creating one takes longer than compressing a
    /// trajectory.
    static COMPRESSOR: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

impl EncodedTrajectory {
    /// Encodes a trajectory; compresses `content`.
    ///
    /// # Errors
    /// `content` is too large to be read back.
    pub fn new(id: TrajectoryId, items: u32, inserted: UnixMillis, content: &[u8]) -> io::Result<Self> {
        Self::compress(content, |payload| {
            payload.push(KIND_TRAJECTORY);
            put_id(payload, id);
            payload.extend_from_slice(&items.to_le_bytes());
            payload.extend_from_slice(&inserted.0.to_le_bytes());
        })
    }

    /// Encodes a revision; compresses `content`, the trajectory with the new searches and without observations.
    ///
    /// # Errors
    /// `content` is too large to be read back.
    pub fn revision(id: TrajectoryId, revision: u64, revised: UnixMillis, content: &[u8]) -> io::Result<Self> {
        Self::compress(content, |payload| {
            payload.push(KIND_REVISION);
            put_id(payload, id);
            [revision, revised.0].iter().for_each(|word| payload.extend_from_slice(&word.to_le_bytes()));
        })
    }

    /// Appends `content`, compressed, after the fields that `put` appends.
    fn compress(content: &[u8], put: impl FnOnce(&mut Vec<u8>)) -> io::Result<Self> {
        if content.len() > CONTENT_BYTES_MAX {
            let reason = format!("a trajectory of {} bytes exceeds {CONTENT_BYTES_MAX}", content.len());
            return Err(io::Error::other(reason));
        }
        let mut payload = Vec::with_capacity(64 + zstd::zstd_safe::compress_bound(content.len()));
        put(&mut payload);
        COMPRESSOR.with_borrow_mut(|compressor| {
            let compressor = match compressor {
                Some(compressor) => compressor,
                none => none.insert(zstd::bulk::Compressor::new(COMPRESSION_LEVEL)?),
            };
            payload.extend_from_slice(&compressor.compress(content)?);
            Ok::<_, io::Error>(())
        })?;
        payload.shrink_to_fit();
        Ok(Self { checksum: crc32c::crc32c(&payload), payload })
    }

    /// Returns the frame payload.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Returns the CRC-32C of the payload.
    pub fn checksum(&self) -> u32 {
        self.checksum
    }
}

impl Record {
    /// Encodes a head as a frame payload.
    ///
    /// # Errors
    /// The head is too large to be read back.
    pub fn encode_head(head: &Head) -> io::Result<Vec<u8>> {
        Ok([&[KIND_HEAD], head.encode()?.as_slice()].concat())
    }

    /// Encodes totals as a frame payload.
    pub fn encode_counters(Counters { trajectories, items, samples }: Counters) -> Vec<u8> {
        let mut out = Vec::new();
        put_words(&mut out, KIND_COUNTERS, [trajectories, items, samples]);
        out
    }

    /// Decodes a frame payload; trajectory content stays encoded.
    ///
    /// # Errors
    /// [`UnreadableRecord`]: a bug or another program wrote the payload, since the checksum is valid.
    pub fn decode(payload: &[u8]) -> Result<Self, UnreadableRecord> {
        Self::decode_with(payload, |_, content| content)
    }
}

impl<C> Record<C> {
    /// Decodes a frame payload; `content` decodes the content of a trajectory.
    pub(super) fn decode_with(
        payload: &[u8],
        content: impl FnOnce(TrajectoryId, Vec<u8>) -> C,
    ) -> Result<Self, UnreadableRecord> {
        let mut words = Fields(payload);
        let [kind] = words.take()?;
        let rest = words.0;
        match kind {
            KIND_HEAD => Head::decode(rest).map(Self::Head),
            KIND_TRAJECTORY => {
                let id = words.id()?;
                let items = u32::from_le_bytes(words.take()?);
                let inserted = UnixMillis(words.word()?);
                Ok(Self::Trajectory { id, items, inserted, content: content(id, decompress(words.0)?) })
            }
            KIND_REVISION => {
                let (id, revision) = (words.id()?, words.word()?);
                let revised = UnixMillis(words.word()?);
                if revision == 0 {
                    return Err(UnreadableRecord("the revision number is 0".to_owned()));
                }
                Ok(Self::Revision { id, revision, revised, content: content(id, decompress(words.0)?) })
            }
            KIND_COUNTERS => {
                let (trajectories, items, samples) = (words.word()?, words.word()?, words.word()?);
                words.end()?;
                Ok(Self::Counters(Counters { trajectories, items, samples }))
            }
            kind => match OperatorRecord::decode(kind, rest)? {
                Some(record) => Ok(Self::Operator(record)),
                None => Err(UnreadableRecord(format!("unknown record kind {kind}"))),
            },
        }
    }
}

fn decompress(compressed: &[u8]) -> Result<Vec<u8>, UnreadableRecord> {
    let content = |error: io::Error| UnreadableRecord(error.to_string());
    // The claimed size is checked against the limit before the allocation.
    let claimed = zstd::zstd_safe::get_frame_content_size(compressed).ok().flatten();
    let size = claimed.and_then(|size| usize::try_from(size).ok()).filter(|&size| size <= CONTENT_BYTES_MAX);
    let size = size.ok_or_else(|| UnreadableRecord(format!("the content is larger than {CONTENT_BYTES_MAX} bytes")))?;
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        let decompressor = match decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(zstd::bulk::Decompressor::new().map_err(content)?),
        };
        decompressor.decompress(compressed, size).map_err(content)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(content: &[u8]) -> EncodedTrajectory {
        EncodedTrajectory::new(TrajectoryId { actor: 1, epoch: 2, sequence: 3 }, 4, UnixMillis(5), content).unwrap()
    }

    #[test]
    fn a_trajectory_comes_back_with_its_id_items_and_time() {
        for content in [&b""[..], b"a trajectory", &[7; 100_000]] {
            let id = TrajectoryId { actor: 1, epoch: 2, sequence: 3 };
            let record = Record::Trajectory { id, items: 4, inserted: UnixMillis(5), content: content.to_vec() };
            assert_eq!(Record::decode(encoded(content).payload()), Ok(record));
        }
    }

    #[test]
    fn a_revision_comes_back_with_its_id_number_and_time() {
        let id = TrajectoryId { actor: 1, epoch: 2, sequence: 3 };
        let encoded = |revision| EncodedTrajectory::revision(id, revision, UnixMillis(5), b"searches").unwrap();
        let content = b"searches".to_vec();
        let record = Record::Revision { id, revision: 4, revised: UnixMillis(5), content };
        assert_eq!(Record::decode(encoded(4).payload()), Ok(record));
        let payload = encoded(4).payload().to_vec();
        (0..payload.len()).for_each(|length| drop(Record::decode(&payload[..length]).unwrap_err()));
        assert!(Record::decode(encoded(0).payload()).is_err(), "revision 0 is that of self-play");
        let large = vec![0; CONTENT_BYTES_MAX + 1];
        EncodedTrajectory::revision(id, 4, UnixMillis(5), &large).unwrap_err();
    }

    #[test]
    fn a_trajectory_that_could_not_be_read_back_is_not_written() {
        let content = vec![0; CONTENT_BYTES_MAX + 1];
        let id = TrajectoryId { actor: 1, epoch: 2, sequence: 3 };
        EncodedTrajectory::new(id, 4, UnixMillis(5), &content).unwrap_err();
    }

    #[test]
    fn content_that_claims_to_be_larger_than_any_is_refused_before_memory_is_taken() {
        let compressed = zstd::bulk::compress(&vec![0; CONTENT_BYTES_MAX + 1], 1).unwrap();
        let payload = [&[KIND_TRAJECTORY; 1 + 24 + 4 + 8][..], &compressed].concat();
        assert!(matches!(Record::decode(&payload), Err(UnreadableRecord(_))));
    }

    #[test]
    fn a_cut_or_unknown_payload_is_refused() {
        let encoded = encoded(b"a trajectory");
        let payload = encoded.payload();
        (0..payload.len()).for_each(|length| drop(Record::decode(&payload[..length]).unwrap_err()));
        (13..=u8::MAX).for_each(|kind| drop(Record::decode(&[&[kind], &payload[1..]].concat()).unwrap_err()));
    }
}
