//! The eight tiles of a thread: six of sums, `[2 tiles of outputs, kx]`, and two through which the operands stream.

use std::arch::asm;
use std::marker::PhantomData;

use super::super::SIDE;
use super::{LANES, TOGETHER};

/// Tiles of a thread.
const TILES: usize = 8;
/// Tiles of sums.
pub(super) const GROUP: usize = TOGETHER * SIDE;
/// Bytes from one row of a tile to the next.
const STRIDE: usize = LANES * size_of::<u32>();

/// Sixteen rows of sixteen words: float32, or pairs of bfloat16 of neighbouring positions.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Tile(pub(super) [[u32; LANES]; LANES]);

impl Tile {
    pub(super) const ZERO: Self = Self([[0; LANES]; LANES]);

    /// A row of sums.
    pub(super) fn row(&self, row: usize) -> [f32; LANES] {
        self.0[row].map(f32::from_bits)
    }
}

/// The configured tiles of this thread, which cannot leave it; released when dropped, so that the system need not save
/// them.
pub(super) struct Unit(PhantomData<*const ()>);

impl Unit {
    /// # Panics
    /// If the path is not available.
    pub(super) fn new() -> Self {
        assert!(super::is_available(), "no AMX");
        // SAFETY: the CPU has tiles and the system granted them.
        unsafe { cpu::configure_tiles([LANES as u8; TILES]) }
        Self(PhantomData)
    }

    /// Zeroes the sums.
    #[inline(always)]
    pub(super) fn zero(&mut self) {
        // SAFETY: the tiles are configured. Nothing else that runs before they are released touches tiles, so they keep
        // their contents from one block of assembly to the next.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "tilezero tmm4",
                "tilezero tmm5",
                options(nomem, nostack),
            );
        }
    }

    /// Fetches sums.
    #[inline(always)]
    pub(super) fn load(&mut self, sums: &[Tile; GROUP]) {
        // SAFETY: the tiles are configured; each reads one of the six.
        unsafe {
            asm!(
                "tileloadd tmm0, [{sums} + {stride}*1]",
                "tileloadd tmm1, [{sums} + {stride}*1 + 1024]",
                "tileloadd tmm2, [{sums} + {stride}*1 + 2048]",
                "tileloadd tmm3, [{sums} + {stride}*1 + 3072]",
                "tileloadd tmm4, [{sums} + {stride}*1 + 4096]",
                "tileloadd tmm5, [{sums} + {stride}*1 + 5120]",
                sums = in(reg) sums,
                stride = in(reg) STRIDE,
                options(nostack, readonly),
            );
        }
    }

    /// Puts sums back.
    #[inline(always)]
    pub(super) fn store(&mut self, sums: &mut [Tile; GROUP]) {
        // SAFETY: the tiles are configured; each writes one of the six.
        unsafe {
            asm!(
                "tilestored [{sums} + {stride}*1], tmm0",
                "tilestored [{sums} + {stride}*1 + 1024], tmm1",
                "tilestored [{sums} + {stride}*1 + 2048], tmm2",
                "tilestored [{sums} + {stride}*1 + 3072], tmm3",
                "tilestored [{sums} + {stride}*1 + 4096], tmm4",
                "tilestored [{sums} + {stride}*1 + 5120], tmm5",
                sums = in(reg) sums,
                stride = in(reg) STRIDE,
                options(nostack),
            );
        }
    }

    /// Adds the products of a row of the gradient, `[W, 1 or 2]`, and the row of the input under the kernel's row,
    /// `[W]`.
    ///
    /// # Panics
    /// If the lengths do not fit.
    #[inline(always)]
    pub(super) fn multiply_row(&mut self, gradients: &[Tile], inputs: &[Tile]) {
        if gradients.len() == inputs.len() {
            self.multiply_row_of::<1>(gradients, inputs);
        } else {
            self.multiply_row_of::<TOGETHER>(gradients, inputs);
        }
    }

    /// The same for so many tiles of outputs.
    #[inline(always)]
    fn multiply_row_of<const OUTPUTS: usize>(&mut self, gradients: &[Tile], inputs: &[Tile]) {
        let width = inputs.len();
        assert!(width > 0 && gradients.len() == width * OUTPUTS, "a row of tiles");
        // SAFETY: cells lie inside the row, and so do those to their left and right where they are used.
        unsafe {
            let at = |x: usize| (gradients.as_ptr().add(x * OUTPUTS), inputs.as_ptr().add(x));
            if width == 1 {
                return self.multiply_cell::<OUTPUTS, false, false>(at(0));
            }
            self.multiply_cell::<OUTPUTS, false, true>(at(0));
            for x in 1..width - 1 {
                self.multiply_cell::<OUTPUTS, true, true>(at(x));
            }
            self.multiply_cell::<OUTPUTS, true, false>(at(width - 1));
        }
    }

    /// One cell of the gradient and, of the input, the cell under the middle of the kernel with its neighbours on the
    /// board. With two tiles of outputs seven loads serve six products.
    ///
    /// # Safety
    /// The tiles, one or two of the gradient, and the neighbours of the input's, can be read.
    #[inline(always)]
    unsafe fn multiply_cell<const OUTPUTS: usize, const LEFT: bool, const RIGHT: bool>(
        &mut self,
        (gradients, inputs): (*const Tile, *const Tile),
    ) {
        macro_rules! gradients {
            ($offset:literal) => {
                asm!(
                    concat!("tileloadd tmm6, [{tile} + {stride}*1 + ", $offset, "]"),
                    tile = in(reg) gradients,
                    stride = in(reg) STRIDE,
                    options(nostack, readonly),
                )
            };
        }
        macro_rules! inputs {
            ($offset:literal) => {
                asm!(
                    concat!("tileloadd tmm7, [{tile} + {stride}*1 + ", $offset, "]"),
                    tile = in(reg) inputs,
                    stride = in(reg) STRIDE,
                    options(nostack, readonly),
                )
            };
        }
        macro_rules! product {
            ($sums:literal) => {
                asm!(concat!("tdpbf16ps ", $sums, ", tmm6, tmm7"), options(nomem, nostack))
            };
        }
        // SAFETY: the caller's; the tiles are configured.
        unsafe {
            gradients!("0");
            if LEFT {
                inputs!("-1024");
                product!("tmm0");
            }
            if RIGHT {
                inputs!("1024");
                product!("tmm2");
            }
            inputs!("0");
            product!("tmm1");
            if OUTPUTS == TOGETHER {
                gradients!("1024");
                product!("tmm4");
                if LEFT {
                    inputs!("-1024");
                    product!("tmm3");
                }
                if RIGHT {
                    inputs!("1024");
                    product!("tmm5");
                }
            }
        }
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // SAFETY: the CPU has tiles.
        unsafe { cpu::release_tiles() }
    }
}
