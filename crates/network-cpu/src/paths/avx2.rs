//! AVX2 with FMA: sixteen registers of eight float32.

use std::arch::x86_64::{
    __m256, _MM_HINT_T0, _mm_prefetch, _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps,
    _mm256_storeu_ps,
};

use crate::line::Format;
use crate::multiply::{Lanes, leaf};
use crate::paths::transform::transforms;
use crate::pooling::passes;

/// Eight float32.
pub(crate) struct Avx2;

impl Lanes for Avx2 {
    type Register = __m256;
    const WIDTH: usize = 8;
    const FORMAT: Format = Format::F32;
    const ROWS_MAX: usize = 6;
    const PAIRED_MAX: usize = 0;

    #[inline(always)]
    unsafe fn zero() -> __m256 {
        // SAFETY: the caller's.
        unsafe { _mm256_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn broadcast(word: *const u32) -> __m256 {
        // SAFETY: the caller's.
        unsafe { _mm256_broadcast_ss(&*word.cast()) }
    }

    #[inline(always)]
    unsafe fn load(words: *const u32) -> __m256 {
        // SAFETY: the caller's.
        unsafe { _mm256_loadu_ps(words.cast()) }
    }

    #[inline(always)]
    unsafe fn multiply_add(sums: __m256, input: __m256, weights: __m256) -> __m256 {
        // SAFETY: the caller's.
        unsafe { _mm256_fmadd_ps(input, weights, sums) }
    }

    #[inline(always)]
    unsafe fn keep(sums: __m256) -> __m256 {
        // SAFETY: the caller's.
        unsafe { keep(sums) }
    }

    #[inline(always)]
    unsafe fn fetch(word: *const u32) {
        // SAFETY: nothing is read.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(word.cast()) }
    }

    #[inline(always)]
    unsafe fn store(sums: __m256, to: *mut f32) {
        // SAFETY: the caller's.
        unsafe { _mm256_storeu_ps(to, sums) }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn keep(mut sums: __m256) -> __m256 {
    // SAFETY: nothing is done.
    unsafe { std::arch::asm!("/* {0} */", inout(ymm_reg) sums, options(pure, nomem, nostack, preserves_flags)) };
    sums
}

leaf! {
    #[target_feature(enable = "avx2,fma")]
    Avx2, 12;
    1 groups in 2 registers: 1 2 3 4 5 6;
}

passes! {
    #[target_feature(enable = "avx2,fma")]
}

transforms! {
    #[target_feature(enable = "avx2,fma")]
    Avx2
}
