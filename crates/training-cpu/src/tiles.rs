//! Convolutions, matrices and their gradients on the matrix tiles of AMX: eight tiles of sixteen rows of 64 bytes,
//! whose products of bfloat16 are summed in float32.
//!
//! [`Tiled`] computes outputs and gradients of inputs, [`TiledGradient`] gradients of weights. Both read activations as
//! they lie in memory, `[B, H, W, C]` in bfloat16: sixteen rows of a tile are the same cell of sixteen positions. A
//! shape [suits](suits) tiles if a row of a cell is whole rows of tiles in both directions.

mod convolution;
mod gradient;

use std::marker::PhantomData;

pub(crate) use self::convolution::Tiled;
pub(crate) use self::gradient::{TiledGradient, TiledPart};
use crate::Path;
use crate::shape::Shape;

/// Rows of a tile, and its columns of float32 or of pairs of bfloat16.
const LANES: usize = 16;
/// bfloat16 of a row.
const PAIRED: usize = 2 * LANES;
/// Bytes of a row.
const ROW_BYTES: usize = PAIRED * 2;
/// Float32 of a tile.
const TILE: usize = LANES * LANES;

/// Returns whether products of this shape are computed on tiles: its channels fill rows of tiles in both directions.
pub(crate) fn suits(shape: Shape, path: Path) -> bool {
    path == Path::Amx && shape.inputs.is_multiple_of(PAIRED) && shape.outputs.is_multiple_of(PAIRED)
}

/// The configured tiles of this thread, which make this type not `Send`. They are released when it is dropped, so that
/// the system need not save them.
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
