//! The matrix unit in software, for machines without one.

use super::*;
use crate::line::from_bf16;

/// The unit by the letter of its manual, for machines without one.
#[derive(Default)]
pub(crate) struct Emulated {
    sums: [[[f32; 16]; 16]; 4],
}

/// `sums[m][n] += Σ input[m][2k + h] · weights[k][2n + h]` over k and h.
unsafe fn product(sums: &mut [[f32; 16]; 16], input: *const Line, weights: *const Line) {
    let halves = |word: u32| [from_bf16(word as u16), from_bf16((word >> 16) as u16)];
    for (m, sums) in sums.iter_mut().enumerate() {
        for (n, sum) in sums.iter_mut().enumerate() {
            for k in 0..WORDS {
                // SAFETY: the caller's.
                let (input, weight) = unsafe { ((*input.add(m)).0[k], (*weights.add(GROUPS * k)).0[n]) };
                let (input, weight) = (halves(input), halves(weight));
                *sum += input[0] * weight[0] + input[1] * weight[1];
            }
        }
    }
}

impl Unit for Emulated {
    unsafe fn configure(&mut self) {}

    unsafe fn release(&mut self) {}

    unsafe fn zero(&mut self) {
        self.sums = Default::default();
    }

    unsafe fn multiply_two(&mut self, upper: *const Line, lower: *const Line, weights: *const Line) {
        // SAFETY: the caller's.
        unsafe {
            self.multiply_one(upper, weights);
            product(&mut self.sums[2], lower, weights);
            product(&mut self.sums[3], lower, weights.add(1));
        }
    }

    unsafe fn multiply_one(&mut self, upper: *const Line, weights: *const Line) {
        // SAFETY: the caller's.
        unsafe {
            product(&mut self.sums[0], upper, weights);
            product(&mut self.sums[1], upper, weights.add(1));
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
