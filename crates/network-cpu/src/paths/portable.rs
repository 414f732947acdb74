//! Plain Rust: sixteen lanes in an array, which the compiler spreads over whatever registers there are.

use crate::line::Format;
use crate::multiply::{Lanes, leaf};
use crate::paths::transform::transforms;
use crate::pooling::passes;

/// Sixteen float32 in an array.
pub(crate) struct Portable;

impl Lanes for Portable {
    type Register = [f32; 16];
    const WIDTH: usize = 16;
    const FORMAT: Format = Format::F32;
    const ROWS_MAX: usize = 2;
    const PAIRED_MAX: usize = 0;

    #[inline(always)]
    unsafe fn zero() -> Self::Register {
        [0.0; 16]
    }

    #[inline(always)]
    unsafe fn broadcast(word: *const u32) -> Self::Register {
        // SAFETY: the caller's.
        [unsafe { word.cast::<f32>().read() }; 16]
    }

    #[inline(always)]
    unsafe fn load(words: *const u32) -> Self::Register {
        // SAFETY: the caller's.
        unsafe { words.cast::<[f32; 16]>().read() }
    }

    #[inline(always)]
    unsafe fn multiply_add(sums: Self::Register, input: Self::Register, weights: Self::Register) -> Self::Register {
        // Not `mul_add`: without the instruction that would be a call of a function for each lane.
        std::array::from_fn(|lane| sums[lane] + input[lane] * weights[lane])
    }

    #[inline(always)]
    unsafe fn keep(sums: [f32; 16]) -> [f32; 16] {
        sums
    }

    #[inline(always)]
    unsafe fn store(sums: Self::Register, to: *mut f32) {
        // SAFETY: the caller's.
        unsafe { to.cast::<[f32; 16]>().write(sums) }
    }
}

leaf! {
    Portable, 2;
    1 groups in 1 registers: 1 2;
}

passes! {}

transforms! {
    Portable
}
