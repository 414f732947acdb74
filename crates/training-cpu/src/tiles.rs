//! Convolutions, matrices and gradients on the AMX matrix tiles: eight tiles of sixteen rows of 64 bytes, with
//! bfloat16 products summed in float32.
//!
//! [`Tiled`] computes outputs and input gradients, [`TiledGradient`] weight gradients. Both read activations in their
//! storage layout, `[B, H, W, C]` in bfloat16: the sixteen rows of a tile are the same cell of sixteen positions. A
//! shape [suits](suits) tiles if the channels fill whole tile rows in both directions.

mod convolution;
mod gradient;

use std::marker::PhantomData;

pub(crate) use self::convolution::Tiled;
pub(crate) use self::gradient::{TiledGradient, TiledPart};
use crate::Path;
use crate::shape::Shape;

/// Rows per tile, and columns in float32 or in pairs of bfloat16.
const LANES: usize = 16;
/// bfloat16 numbers per row.
const PAIRED: usize = 2 * LANES;
/// Bytes per row.
const ROW_BYTES: usize = PAIRED * 2;
/// float32 numbers per tile.
const TILE: usize = LANES * LANES;

/// Returns whether a shape is computed on tiles: the channels must fill tile rows in both directions.
pub(crate) fn suits(shape: Shape, path: Path) -> bool {
    path == Path::Amx && shape.inputs.is_multiple_of(PAIRED) && shape.outputs.is_multiple_of(PAIRED)
}

/// Configured tiles of this thread, which make the type not `Send`. Dropping releases the tiles, so that the system
/// need not save them.
struct Unit(PhantomData<*const ()>);

impl Unit {
    /// Configures and zeroes the tiles of this thread, tile i with `rows[i]` rows.
    ///
    /// # Safety
    /// The CPU must have AMX and the system must have granted it; no tile has more than 16 rows.
    unsafe fn new(rows: [u8; 8]) -> Self {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe { cpu::configure_tiles(rows) }
        Self(PhantomData)
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // SAFETY: the tiles were configured.
        unsafe { cpu::release_tiles() }
    }
}
