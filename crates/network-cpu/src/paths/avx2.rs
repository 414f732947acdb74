//! AVX2 with FMA: sixteen registers of eight float32.

use std::arch::x86_64::{
    __m256, _MM_HINT_T0, _mm_prefetch, _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps,
    _mm256_storeu_ps,
};

use crate::multiply::{lanes, leaf};
use crate::paths::transform::transforms;

/// Eight float32.
pub(crate) struct Avx2;

lanes! {
    Avx2: 8 of __m256, F32, 6 rows, 0 paired;
    zero() = _mm256_setzero_ps();
    broadcast(word) = _mm256_broadcast_ss(&*word.cast());
    load(words) = _mm256_loadu_ps(words.cast());
    multiply_add(sums, input, weights) = _mm256_fmadd_ps(input, weights, sums);
    keep(sums) = keep(sums);
    store(sums, to) = _mm256_storeu_ps(to, sums);
    fetch(word) = _mm_prefetch::<_MM_HINT_T0>(word.cast());
}

#[inline]
#[target_feature(enable = "avx2")]
fn keep(mut sums: __m256) -> __m256 {
    // SAFETY: the assembly is only a comment.
    unsafe { std::arch::asm!("/* {0} */", inout(ymm_reg) sums, options(pure, nomem, nostack, preserves_flags)) };
    sums
}

leaf! {
    #[target_feature(enable = "avx2,fma")]
    Avx2, 12;
    1 groups in 2 registers: 1 2 3 4 5 6;
}

transforms! {
    #[target_feature(enable = "avx2,fma")]
    Avx2
}
