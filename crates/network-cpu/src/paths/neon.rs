//! NEON: thirty-two registers of four float32. Every 64-bit Arm has it.

use std::arch::aarch64::{float32x4_t, vdupq_n_f32, vfmaq_f32, vld1q_f32, vst1q_f32};

use crate::multiply::{Lanes, leaf};
use crate::paths::transform::transforms;
use crate::planes::Format;

/// Four float32.
pub(crate) struct Neon;

impl Lanes for Neon {
    type Register = float32x4_t;
    const WIDTH: usize = 4;
    const FORMAT: Format = Format::F32;
    const ROWS_MAX: usize = 6;
    const PAIRED_MAX: usize = 0;

    #[inline(always)]
    unsafe fn zero() -> float32x4_t {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe { vdupq_n_f32(0.0) }
    }

    #[inline(always)]
    unsafe fn broadcast(word: *const u32) -> float32x4_t {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe { vdupq_n_f32(word.cast::<f32>().read()) }
    }

    #[inline(always)]
    unsafe fn load(words: *const u32) -> float32x4_t {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe { vld1q_f32(words.cast()) }
    }

    #[inline(always)]
    unsafe fn multiply_add(sums: float32x4_t, input: float32x4_t, weights: float32x4_t) -> float32x4_t {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe { vfmaq_f32(sums, input, weights) }
    }

    #[inline(always)]
    unsafe fn keep(sums: float32x4_t) -> float32x4_t {
        sums
    }

    #[inline(always)]
    unsafe fn store(sums: float32x4_t, to: *mut f32) {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe { vst1q_f32(to, sums) }
    }
}

leaf! {
    #[target_feature(enable = "neon")]
    Neon, 24;
    1 groups in 4 registers: 1 2 3 4 5 6;
}

transforms! {
    #[target_feature(enable = "neon")]
    Neon
}
