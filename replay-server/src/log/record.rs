//! Records: what the payload of a frame says.

use std::io;

use experience::TrajectoryId;
use replay::SeenIds;
use serde::{Deserialize, Serialize};

/// The format this code writes; the first byte of every payload is the kind, and a head names its format.
pub const FORMAT: u8 = 1;

const KIND_HEAD: u8 = 1;
const KIND_TRAJECTORY: u8 = 2;
const KIND_QUARANTINE: u8 = 3;
const KIND_COUNTERS: u8 = 4;

/// Trajectories are bounded by the message limit of the wire; a record that claims more is damage.
const CONTENT_BYTES_MAX: usize = proto::limits::MESSAGE_BYTES_MAX;
/// Room for the intervals of millions of gaps; a head that claims more is damage, and is not written.
const HEAD_BYTES_MAX: usize = 256 << 20;
/// Level 3 is zstd's own default: about a third of the size at a few tens of microseconds.
const COMPRESSION_LEVEL: i32 = 3;

/// What a record of the log says.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// First in every segment: everything that the segments before it had to say about what is gone.
    Head(Head),
    /// A trajectory came in.
    Trajectory {
        /// Its id, so that it can be counted without being decoded.
        id: TrajectoryId,
        /// Its items.
        items: u32,
        /// It, in the encoding of its owner; compressed in the file.
        content: Vec<u8>,
    },
    /// A trajectory was taken out of sampling.
    Quarantine(TrajectoryId),
    /// The totals so far.
    Counters(Counters),
}

/// What was counted since the run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Trajectories that came in.
    pub trajectories: u64,
    /// Their items.
    pub items: u64,
    /// Items drawn.
    pub samples: u64,
}

/// The state of the log before a segment: it makes each segment independent of the dropped ones.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Head {
    /// The name of the game that all trajectories are of.
    pub game: String,
    /// The totals.
    pub counters: Counters,
    /// Every id that came in.
    pub seen: SeenIds,
}

/// Why a payload with a good checksum cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableRecord {
    /// Written by other code.
    #[error("its format is {0}, this program reads format {FORMAT}")]
    Format(u8),
    /// Its content makes no sense.
    #[error("{0}")]
    Content(String),
}

/// The head as it lies in the file: JSON, because it is rare, small and read by people.
#[derive(Serialize, Deserialize)]
struct HeadText {
    game: String,
    counters: Counters,
    /// Actor, epoch, first and last sequence.
    seen: Vec<[u64; 4]>,
}

impl Record {
    /// The payload of a frame.
    ///
    /// # Errors
    /// A head that has grown too large to be read back.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        match self {
            Self::Head(head) => {
                out.extend_from_slice(&[KIND_HEAD, FORMAT]);
                let seen =
                    head.seen.intervals().map(|(actor, epoch, s)| [actor, epoch, *s.start(), *s.end()]).collect();
                let text = serde_json::to_vec(&HeadText { game: head.game.clone(), counters: head.counters, seen })?;
                if text.len() > HEAD_BYTES_MAX {
                    return Err(io::Error::other(format!("the ids seen take {} bytes", text.len())));
                }
                out.extend_from_slice(&zstd::bulk::compress(&text, COMPRESSION_LEVEL)?);
            }
            Self::Trajectory { id, items, content } => {
                out.push(KIND_TRAJECTORY);
                push_id(&mut out, *id);
                out.extend_from_slice(&items.to_le_bytes());
                out.extend_from_slice(&zstd::bulk::compress(content, COMPRESSION_LEVEL)?);
            }
            Self::Quarantine(id) => {
                out.push(KIND_QUARANTINE);
                push_id(&mut out, *id);
            }
            Self::Counters(Counters { trajectories, items, samples }) => {
                out.push(KIND_COUNTERS);
                [trajectories, items, samples].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
            }
        }
        Ok(out)
    }

    /// Reads a payload back.
    ///
    /// # Errors
    /// [`UnreadableRecord`]: a bug or other code wrote it, since its checksum was good.
    pub fn decode(payload: &[u8]) -> Result<Self, UnreadableRecord> {
        let short = || UnreadableRecord::Content("it is too short".to_owned());
        let (&kind, mut rest) = payload.split_first().ok_or_else(short)?;
        let mut word = || {
            let (word, after) = rest.split_first_chunk::<8>().ok_or_else(short)?;
            rest = after;
            Ok::<u64, UnreadableRecord>(u64::from_le_bytes(*word))
        };
        match kind {
            KIND_HEAD => Self::decode_head(&payload[1..]),
            KIND_TRAJECTORY => {
                let id = TrajectoryId { actor: word()?, epoch: word()?, sequence: word()? };
                let (items, compressed) = rest.split_first_chunk::<4>().ok_or_else(short)?;
                let content = decompress(compressed, CONTENT_BYTES_MAX)?;
                Ok(Self::Trajectory { id, items: u32::from_le_bytes(*items), content })
            }
            KIND_QUARANTINE => Ok(Self::Quarantine(TrajectoryId { actor: word()?, epoch: word()?, sequence: word()? })),
            KIND_COUNTERS => Ok(Self::Counters(Counters { trajectories: word()?, items: word()?, samples: word()? })),
            kind => Err(UnreadableRecord::Content(format!("kind {kind} is unknown"))),
        }
    }

    fn decode_head(rest: &[u8]) -> Result<Self, UnreadableRecord> {
        let content = |error: String| UnreadableRecord::Content(error);
        let (&format, compressed) = rest.split_first().ok_or_else(|| content("it is too short".to_owned()))?;
        if format != FORMAT {
            return Err(UnreadableRecord::Format(format));
        }
        let HeadText { game, counters, seen: intervals } =
            serde_json::from_slice(&decompress(compressed, HEAD_BYTES_MAX)?)
                .map_err(|error| content(error.to_string()))?;
        let mut seen = SeenIds::new();
        for [actor, epoch, first, last] in intervals {
            seen.insert_interval(actor, epoch, first..=last);
        }
        Ok(Self::Head(Head { game, counters, seen }))
    }
}

impl Counters {
    /// Counts a trajectory of so many items.
    pub fn count(&mut self, items: u32) {
        // Saturates: what a file says may be damaged.
        self.trajectories = self.trajectories.saturating_add(1);
        self.items = self.items.saturating_add(items.into());
    }

    /// The larger of each: totals only grow.
    pub fn max(self, other: Self) -> Self {
        Self {
            trajectories: self.trajectories.max(other.trajectories),
            items: self.items.max(other.items),
            samples: self.samples.max(other.samples),
        }
    }
}

fn decompress(compressed: &[u8], bytes_max: usize) -> Result<Vec<u8>, UnreadableRecord> {
    // Bounded before anything is allocated: the size in a frame's header is not trusted beyond the limit.
    let size = zstd::bulk::Decompressor::upper_bound(compressed).unwrap_or(bytes_max);
    zstd::bulk::decompress(compressed, size.min(bytes_max))
        .map_err(|error| UnreadableRecord::Content(error.to_string()))
}

fn push_id(out: &mut Vec<u8>, TrajectoryId { actor, epoch, sequence }: TrajectoryId) {
    [actor, epoch, sequence].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
}
