//! The matrix unit in software, for machines without one.

use super::*;
use crate::line::from_bf16;

/// The unit by the letter of its manual, for machines without one; for bfloat16 or for integers, whose sums are kept as
/// bits.
#[derive(Default)]
pub(crate) struct Emulated<const INTEGERS: bool> {
    sums: [[[f32; 16]; 16]; 4],
}

/// `sum + Σ input[h] · weight[h]` over the halves of a word.
fn halves(sum: f32, input: u32, weight: u32) -> f32 {
    let halves = |word: u32| [from_bf16(word as u16), from_bf16((word >> 16) as u16)];
    let (input, weight) = (halves(input), halves(weight));
    sum + input[0] * weight[0] + input[1] * weight[1]
}

/// The same over the quarters: unsigned inputs, signed weights.
fn quarters(sum: f32, input: u32, weight: u32) -> f32 {
    let (input, weight) = (input.to_le_bytes(), weight.to_le_bytes());
    let products = (0..4).map(|i| i32::from(input[i]) * i32::from(weight[i].cast_signed()));
    f32::from_bits(products.fold(sum.to_bits(), u32::wrapping_add_signed))
}

/// `sums[m][n] += Σ input[m][k] · weights[k][n]` over the words k and their parts.
unsafe fn product<const INTEGERS: bool>(sums: &mut [[f32; 16]; 16], input: *const Line, weights: *const Line) {
    for (m, sums) in sums.iter_mut().enumerate() {
        for (n, sum) in sums.iter_mut().enumerate() {
            for k in 0..WORDS {
                // SAFETY: the caller's.
                let (input, weight) = unsafe { ((*input.add(m)).0[k], (*weights.add(GROUPS * k)).0[n]) };
                *sum = if INTEGERS { quarters(*sum, input, weight) } else { halves(*sum, input, weight) };
            }
        }
    }
}

impl<const INTEGERS: bool> Unit for Emulated<INTEGERS> {
    unsafe fn configure(&mut self) {}

    unsafe fn release(&mut self) {}

    unsafe fn zero(&mut self) {
        self.sums = Default::default();
    }

    unsafe fn multiply_two(&mut self, upper: *const Line, lower: *const Line, weights: *const Line) {
        // SAFETY: the caller's.
        unsafe {
            self.multiply_one(upper, weights);
            product::<INTEGERS>(&mut self.sums[2], lower, weights);
            product::<INTEGERS>(&mut self.sums[3], lower, weights.add(1));
        }
    }

    unsafe fn multiply_one(&mut self, upper: *const Line, weights: *const Line) {
        // SAFETY: the caller's.
        unsafe {
            product::<INTEGERS>(&mut self.sums[0], upper, weights);
            product::<INTEGERS>(&mut self.sums[1], upper, weights.add(1));
        }
    }

    unsafe fn store(&mut self, to: *mut f32) {
        for (tile, sums) in self.sums.iter().enumerate() {
            for (row, sums) in sums.iter().enumerate() {
                let at = ((tile / 2 * ROWS + row) * GROUPS + tile % 2) * GROUP;
                // SAFETY: the caller's.
                unsafe { to.add(at).cast::<[f32; 16]>().write_unaligned(*sums) };
            }
        }
    }
}
