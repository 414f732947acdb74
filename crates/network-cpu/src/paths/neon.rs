//! NEON: thirty-two registers of four float32. Every 64-bit Arm has it.

use std::arch::aarch64::{float32x4_t, vdupq_n_f32, vfmaq_f32, vld1q_f32, vst1q_f32};

use crate::multiply::{lanes, leaf};
use crate::paths::transform::transforms;

/// Four float32.
pub(crate) struct Neon;

lanes! {
    Neon: 4 of float32x4_t, F32, 6 rows, 0 paired;
    zero() = vdupq_n_f32(0.0);
    broadcast(word) = vdupq_n_f32(word.cast::<f32>().read());
    load(words) = vld1q_f32(words.cast());
    multiply_add(sums, input, weights) = vfmaq_f32(sums, input, weights);
    keep(sums) = sums;
    store(sums, to) = vst1q_f32(to, sums);
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
