//! Matrix unit in software, for machines without one.

use std::marker::PhantomData;

use crate::multiply::Lanes;
use crate::paths::amx::{GROUPS, TOGETHER, Unit};
use crate::planes::{Format, Line, TILE_ROWS, WORDS, from_bf16};
use crate::product::GROUP;

/// The unit exactly as in the manual, for machines without one; for bfloat16, or for integers with sums kept as bits.
pub(crate) struct Emulated<L> {
    sums: [[[f32; 16]; 16]; TOGETHER * GROUPS],
    /// Rows per tile.
    rows: usize,
    /// Lines between rows.
    stride: usize,
    lanes: PhantomData<L>,
}

impl<L> Emulated<L> {
    pub(crate) fn new() -> Self {
        Self { sums: Default::default(), rows: TILE_ROWS, stride: 1, lanes: PhantomData }
    }
}

impl<L: Lanes> Emulated<L> {
    unsafe fn multiply_tile(&mut self, tile: usize, input: *const Line, weights: *const Line) {
        for group in 0..GROUPS {
            let sums = &mut self.sums[tile * GROUPS + group][..self.rows];
            // SAFETY: the caller fulfils the contract of this function.
            unsafe { product::<L>(sums, input, self.stride, weights.add(group * WORDS)) };
        }
    }
}

/// Returns `sum + Σ input[h] · weight[h]` over the halves of a word.
fn halves(sum: f32, input: u32, weight: u32) -> f32 {
    let halves = |word: u32| [from_bf16(word as u16), from_bf16((word >> 16) as u16)];
    let (input, weight) = (halves(input), halves(weight));
    sum + input[0] * weight[0] + input[1] * weight[1]
}

/// Returns `sum + Σ input[q] · weight[q]` over the quarters of a word: unsigned inputs, signed weights.
fn quarters(sum: f32, input: u32, weight: u32) -> f32 {
    let (input, weight) = (input.to_le_bytes(), weight.to_le_bytes());
    let products = (0..4).map(|i| i32::from(input[i]) * i32::from(weight[i].cast_signed()));
    f32::from_bits(products.fold(sum.to_bits(), u32::wrapping_add_signed))
}

/// Adds `Σ input[m][k] · weights[k][n]` to `sums[m][n]`, over the words k and their parts.
unsafe fn product<L: Lanes>(sums: &mut [[f32; 16]], input: *const Line, stride: usize, weights: *const Line) {
    for (m, sums) in sums.iter_mut().enumerate() {
        for (n, sum) in sums.iter_mut().enumerate() {
            for k in 0..WORDS {
                // SAFETY: the caller fulfils the contract of this function.
                let (input, weight) = unsafe { ((*input.add(m * stride)).0[k], (*weights.add(k)).0[n]) };
                *sum =
                    if L::FORMAT == Format::I8 { quarters(*sum, input, weight) } else { halves(*sum, input, weight) };
            }
        }
    }
}

impl<L: Lanes> Unit for Emulated<L> {
    unsafe fn configure(&mut self, rows: usize, stride: usize) {
        (self.rows, self.stride) = (rows, stride / size_of::<Line>());
    }

    unsafe fn zero(&mut self) {
        self.sums = Default::default();
    }

    unsafe fn multiply<const TILES: usize>(&mut self, rows: [*const Line; TILES], weights: *const Line) {
        for (tile, input) in rows.into_iter().enumerate() {
            // SAFETY: the caller fulfils the contract of this function.
            unsafe { self.multiply_tile(tile, input, weights) };
        }
    }

    unsafe fn multiply_strand<const STRAND: usize>(&mut self, rows: *const Line, weights: *const Line) {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe { self.multiply_tile(STRAND, rows, weights) };
    }

    unsafe fn store<const TILES: usize>(&mut self, to: *mut f32) {
        for (tile, sums) in self.sums[..TILES * GROUPS].iter().enumerate() {
            for (row, sums) in sums.iter().enumerate() {
                let at = ((tile / GROUPS * TILE_ROWS + row) * GROUPS + tile % GROUPS) * GROUP;
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { to.add(at).cast::<[f32; 16]>().write_unaligned(*sums) };
            }
        }
    }
}
