//! AVX-512: thirty-two registers of sixteen float32.

use std::arch::x86_64::{
    __m512, _MM_HINT_T0, _mm_prefetch, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_storeu_ps,
};

use crate::line::Format;
use crate::multiply::{Lanes, leaf};
use crate::paths::transform::transforms;
use crate::pooling::passes;

/// Sixteen float32.
pub(crate) struct Avx512;

impl Lanes for Avx512 {
    type Register = __m512;
    const WIDTH: usize = 16;
    const FORMAT: Format = Format::F32;
    const ROWS_MAX: usize = 14;
    const PAIRED_MAX: usize = 7;

    #[inline(always)]
    unsafe fn zero() -> __m512 {
        // SAFETY: the caller's.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn broadcast(word: *const u32) -> __m512 {
        // SAFETY: the caller's.
        unsafe { _mm512_set1_ps(word.cast::<f32>().read()) }
    }

    #[inline(always)]
    unsafe fn load(words: *const u32) -> __m512 {
        // SAFETY: the caller's.
        unsafe { _mm512_loadu_ps(words.cast()) }
    }

    #[inline(always)]
    unsafe fn multiply_add(sums: __m512, input: __m512, weights: __m512) -> __m512 {
        // SAFETY: the caller's.
        unsafe { _mm512_fmadd_ps(input, weights, sums) }
    }

    #[inline(always)]
    unsafe fn keep(sums: __m512) -> __m512 {
        // SAFETY: the caller's.
        unsafe { keep(sums) }
    }

    #[inline(always)]
    unsafe fn fetch(word: *const u32) {
        // SAFETY: nothing is read.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(word.cast()) }
    }

    #[inline(always)]
    unsafe fn store(sums: __m512, to: *mut f32) {
        // SAFETY: the caller's.
        unsafe { _mm512_storeu_ps(to, sums) }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn keep(mut sums: __m512) -> __m512 {
    // SAFETY: nothing is done.
    unsafe { std::arch::asm!("/* {0} */", inout(zmm_reg) sums, options(pure, nomem, nostack, preserves_flags)) };
    sums
}

leaf! {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    Avx512, 24;
    1 groups in 1 registers: 1 2 3 4 5 6 7 8 9 10 11 12 13 14, twice 1 2 3 4 5 6 7;
    2 groups in 2 registers: 1 2 3 4 5 6 7 8 9 10 11 12 13 14, twice 1 2 3 4 5 6 7;
}

passes! {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
}

transforms! {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    Avx512
}
