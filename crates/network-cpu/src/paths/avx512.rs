//! AVX-512: thirty-two registers of sixteen float32.

use std::arch::x86_64::{
    __m512, _MM_HINT_T0, _mm_prefetch, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_storeu_ps,
};

use crate::multiply::{lanes, leaf};
use crate::paths::transform::transforms;

/// Sixteen float32.
pub(crate) struct Avx512;

lanes! {
    Avx512: 16 of __m512, F32, 14 rows, 7 paired;
    zero() = _mm512_setzero_ps();
    broadcast(word) = _mm512_set1_ps(word.cast::<f32>().read());
    load(words) = _mm512_loadu_ps(words.cast());
    multiply_add(sums, input, weights) = _mm512_fmadd_ps(input, weights, sums);
    keep(sums) = keep(sums);
    store(sums, to) = _mm512_storeu_ps(to, sums);
    fetch(word) = _mm_prefetch::<_MM_HINT_T0>(word.cast());
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn keep(mut sums: __m512) -> __m512 {
    // SAFETY: the assembly is only a comment.
    unsafe { std::arch::asm!("/* {0} */", inout(zmm_reg) sums, options(pure, nomem, nostack, preserves_flags)) };
    sums
}

leaf! {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    Avx512, 24;
    1 groups in 1 registers: 1 2 3 4 5 6 7 8 9 10 11 12 13 14, twice 1 2 3 4 5 6 7;
    2 groups in 2 registers: 1 2 3 4 5 6 7 8 9 10 11 12 13 14, twice 1 2 3 4 5 6 7;
}

transforms! {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    Avx512
}
