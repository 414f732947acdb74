//! The column of observations, for environments that rules cannot recompute.
//!
//! An observation is a stack of F frames, the oldest first, and consecutive observations share all but one frame. Each
//! frame is stored once. Observation k of an episode consists of the frames k to k + F − 1, and P plies have P + F
//! frames, because they have P + 1 observations. Frames are compressed in blocks of 16; the last block may have fewer.
//! All integers are little-endian, and `n` is a number in LEB128:
//!
//! | field | bytes |
//! |---|---|
//! | element | `1` u8 (multiples of 1/255), `2` bfloat16, `3` float32 |
//! | stack | `n`: F, 1 to 64 |
//! | frame | `n`: numbers per frame, at most 1 MiB in the stored type |
//! | sizes | `n` for each block: the size in bytes |
//! | blocks | each as a frame of zstd, or uncompressed if that is not shorter |
//!
//! If numbers have several bytes, the bytes of a block are transposed before compression: the first byte of every
//! frame, then the second byte, and so on, because the sign, exponent and highest digits of a measurement change little
//! from frame to frame.
//!
//! A part has every block that holds a frame of the part's observations: one observation for each step, and the final
//! one if the part reaches the end of the episode. Blocks are copied, so that cutting a part decompresses nothing; a
//! part has up to 15 frames more than it needs on either side.
//!
//! Memory is bounded by the header before anything is allocated: an episode has at most 512 MiB of frames, and a check
//! decompresses one block at a time.
//!
//! Bytes per step for observations, over 1,000 steps with random actions:
//!
//! | observation | as float32 | uncompressed, each frame once | stored |
//! |---|---|---|---|
//! | Atari, 4 × 84 × 84 u8: Breakout | 112,896 | 7,056 | 42 |
//! | Atari, 4 × 84 × 84 u8: Ms. Pac-Man | 112,896 | 7,056 | 163 |
//! | LunarLander, 8 float32 | 32 | 32 | 21 |
//! | LunarLander, 8 bfloat16 | 32 | 16 | 9 |

use std::ops::Range;

use super::block::{pack, unpack};
use super::codes::{put_number, take_number};
use super::span::Span;
use crate::{Element, Invalid, ObservationLayout};

/// Number of frames that are compressed together: enough to describe an image by the difference from another, few
/// enough that a segment of six steps has few superfluous frames. With 8 a step of Ms. Pac-Man takes 238 bytes instead
/// of 163, with 32 it takes 126.
const FRAMES_PER_BLOCK: usize = 16;
/// Maximum size of all frames in an episode or in a part, in bytes: two hours of Atari at 60 frames per second, with
/// every fourth frame kept.
const FRAMES_BYTES_MAX: usize = 512 << 20;

fn invalid(reason: impl Into<String>) -> Invalid {
    Invalid { field: "observations".to_owned(), reason: reason.into() }
}

/// The compressed frames of an episode, or of a part.
#[derive(Debug, Clone)]
pub(crate) struct Frames<'a> {
    pub(crate) layout: ObservationLayout,
    /// All frames of the episode.
    total: usize,
    /// The frames of the observations described; the blocks of these frames are present.
    needed: Range<usize>,
    /// The fields before the sizes.
    header: &'a [u8],
    sizes: &'a [u8],
    blocks: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Reads the header and the sizes of all blocks, without decompressing any.
    pub(super) fn parse(column: &'a [u8], span: Span) -> Result<Self, Invalid> {
        let mut rest = column;
        let &[element] =
            rest.split_off(..1).and_then(|byte| byte.as_array()).ok_or_else(|| invalid("are truncated"))?;
        let element = element.checked_sub(1).and_then(|code| Element::ALL.get(usize::from(code)).copied());
        let element = element.ok_or_else(|| invalid("have an unknown element type"))?;
        let mut number = || take_number(&mut rest).and_then(|number| usize::try_from(number).ok());
        let [stack, frame_values] = [number(), number()].map(|number| number.ok_or_else(|| invalid("are truncated")));
        let layout = ObservationLayout { element, frame_values: frame_values?, stack: stack? }.check()?;
        let header = &column[..column.len() - rest.len()];
        let total = span.plies.saturating_add(layout.stack);
        let needed = needed(span, layout);
        if needed.len().saturating_mul(layout.frame_bytes()) > FRAMES_BYTES_MAX {
            let reason = format!("have {} frames of {} bytes", needed.len(), layout.frame_bytes());
            return Err(invalid(format!("{reason}, the limit is {FRAMES_BYTES_MAX} bytes")));
        }
        let mut frames = Self { layout, total, needed, header, sizes: rest, blocks: rest };
        let mut blocks_bytes = 0_usize;
        for block in frames.block_numbers() {
            let size = take_number(&mut rest).and_then(|size| usize::try_from(size).ok());
            let size = size.ok_or_else(|| invalid("lack the size of a block"))?;
            let most = frames.block_bytes(block);
            if size == 0 || size > most {
                return Err(invalid(format!("have a block of {size} bytes, expected 1 to {most}")));
            }
            blocks_bytes += size;
        }
        if blocks_bytes != rest.len() {
            return Err(invalid(format!("have {} bytes of blocks, expected {blocks_bytes}", rest.len())));
        }
        (frames.sizes, frames.blocks) = (&frames.sizes[..frames.sizes.len() - rest.len()], rest);
        Ok(frames)
    }

    /// Decompresses every block, one at a time, and checks the numbers.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        self.each_block(|_, _| {})
    }

    /// Decompresses the needed frames, one after another, and checks the numbers.
    pub(crate) fn decode(&self) -> Result<Vec<u8>, Invalid> {
        let frame_bytes = self.layout.frame_bytes();
        let mut out = Vec::with_capacity(self.needed.len() * frame_bytes);
        self.each_block(|block, bytes| {
            let held = self.frames_of(block);
            let wanted = held.start.max(self.needed.start)..held.end.min(self.needed.end);
            let from = (wanted.start - held.start) * frame_bytes;
            out.extend_from_slice(&bytes[from..from + wanted.len() * frame_bytes]);
        })?;
        Ok(out)
    }

    /// Returns the column of a part of the steps, which must be described here.
    pub(super) fn part(&self, span: Span) -> Vec<u8> {
        let wanted = block_numbers(&needed(span, self.layout));
        let (mut sizes, mut blocks) = (Vec::new(), Vec::new());
        let stored = self.stored().filter(|(block, _)| wanted.contains(block));
        for bytes in stored.map(|(_, bytes)| bytes) {
            put_number(&mut sizes, bytes.len() as u64);
            blocks.extend_from_slice(bytes);
        }
        [self.header, &sizes, &blocks].concat()
    }

    /// Returns the number of observations described.
    pub(crate) fn observations(&self) -> usize {
        self.needed.len() + 1 - self.layout.stack
    }

    fn block_numbers(&self) -> Range<usize> {
        block_numbers(&self.needed)
    }

    /// Returns the frames of a block.
    fn frames_of(&self, block: usize) -> Range<usize> {
        let first = block * FRAMES_PER_BLOCK;
        first..(first + FRAMES_PER_BLOCK).min(self.total)
    }

    fn block_bytes(&self, block: usize) -> usize {
        self.frames_of(block).len() * self.layout.frame_bytes()
    }

    /// Returns the number of each block with the stored bytes.
    fn stored(&self) -> impl Iterator<Item = (usize, &'a [u8])> {
        let (mut sizes, mut blocks) = (self.sizes, self.blocks);
        self.block_numbers().map_while(move |block| {
            let size = usize::try_from(take_number(&mut sizes)?).ok()?;
            Some((block, blocks.split_off(..size)?))
        })
    }

    /// Calls `visit` with the number and the frames of each block.
    fn each_block(&self, mut visit: impl FnMut(usize, &[u8])) -> Result<(), Invalid> {
        let mut frames = Vec::new();
        for (block, stored) in self.stored() {
            frames.resize(self.block_bytes(block), 0);
            unpack(stored, self.layout, &mut frames)
                .map_err(|reason| invalid(format!("have an unreadable block: {reason}")))?;
            if !self.layout.element.are_finite(&frames) {
                return Err(invalid("have a number that is not finite"));
            }
            visit(block, &frames);
        }
        Ok(())
    }
}

/// Returns the frames needed to observe each step, and the final position if the steps reach the end.
fn needed(span: Span, layout: ObservationLayout) -> Range<usize> {
    let observations = span.steps + usize::from(span.reaches_end());
    span.ply..span.ply + observations - 1 + layout.stack
}

fn block_numbers(frames: &Range<usize>) -> Range<usize> {
    frames.start / FRAMES_PER_BLOCK..frames.end.div_ceil(FRAMES_PER_BLOCK)
}

/// Builds the column frame by frame.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FramesBuilder {
    layout: ObservationLayout,
    /// The frames of the block that is not full.
    open: Vec<u8>,
    sizes: Vec<u8>,
    blocks: Vec<u8>,
}

impl FramesBuilder {
    pub(crate) fn new(layout: ObservationLayout) -> Self {
        Self { layout, open: Vec::new(), sizes: Vec::new(), blocks: Vec::new() }
    }

    /// Appends the encoded numbers of a frame.
    pub(crate) fn push(&mut self, frame: &[u8]) {
        self.open.extend_from_slice(frame);
        if self.open.len() == FRAMES_PER_BLOCK * self.layout.frame_bytes() {
            self.close_block();
        }
    }

    /// Returns the column of the whole episode.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        if !self.open.is_empty() {
            self.close_block();
        }
        let ObservationLayout { element, frame_values, stack } = self.layout;
        let code = match element {
            Element::U8 => 1,
            Element::Bf16 => 2,
            Element::F32 => 3,
        };
        let mut column = vec![code];
        put_number(&mut column, stack as u64);
        put_number(&mut column, frame_values as u64);
        [column, self.sizes, self.blocks].concat()
    }

    fn close_block(&mut self) {
        let at = self.blocks.len();
        pack(&self.open, self.layout, &mut self.blocks);
        put_number(&mut self.sizes, (self.blocks.len() - at) as u64);
        self.open.clear();
    }
}

#[cfg(test)]
mod tests;
