//! AVX-512 bf16: pairs of bfloat16 products, summed in float32.

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, _mm512_add_ps, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_castsi512_si256,
    _mm512_cvtepu16_epi32, _mm512_cvtne2ps_pbh, _mm512_dpbf16_ps, _mm512_extracti64x4_epi64, _mm512_loadu_ps,
    _mm512_loadu_si512, _mm512_max_ps, _mm512_set1_epi32, _mm512_setzero_ps, _mm512_slli_epi32, _mm512_storeu_ps,
    _mm512_storeu_si512,
};
use std::mem::transmute;

use crate::line::{Format, Line};
use crate::multiply::{Lanes, leaf};
use crate::pooling::passes;

/// Sixteen float32, each the sum of pairs of products.
pub(crate) struct Avx512Bf16;

impl Lanes for Avx512Bf16 {
    type Register = __m512;
    const WIDTH: usize = 16;
    const FORMAT: Format = Format::Bf16;
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
        unsafe { _mm512_castsi512_ps(_mm512_set1_epi32(word.read().cast_signed())) }
    }

    #[inline(always)]
    unsafe fn load(words: *const u32) -> __m512 {
        // SAFETY: the caller's.
        unsafe { _mm512_castsi512_ps(_mm512_loadu_si512(words.cast())) }
    }

    #[inline(always)]
    unsafe fn multiply_add(sums: __m512, input: __m512, weights: __m512) -> __m512 {
        // SAFETY: the caller's; registers of 64 bytes without padding, of which every bit pattern is a value.
        unsafe {
            let pairs = |words: __m512| transmute::<__m512i, __m512bh>(_mm512_castps_si512(words));
            _mm512_dpbf16_ps(sums, pairs(input), pairs(weights))
        }
    }

    #[inline(always)]
    unsafe fn keep(sums: __m512) -> __m512 {
        // SAFETY: the caller's.
        unsafe { keep(sums) }
    }

    #[inline(always)]
    unsafe fn store(sums: __m512, to: *mut f32) {
        // SAFETY: the caller's.
        unsafe { _mm512_storeu_ps(to, sums) }
    }
}

/// Bias, addition, ReLU and rounding of 32 sums, on their way into a line.
///
/// # Safety
/// The CPU must have the path's instructions; sums and bias are 32 numbers each.
#[inline(always)]
pub(super) unsafe fn finish_line<const ADD: bool, const RELU: bool>(
    sums: *const f32,
    bias: *const f32,
    line: *mut Line,
) {
    // SAFETY: the caller's; a bfloat16 is the upper half of a float32.
    unsafe {
        let mut low = _mm512_add_ps(_mm512_loadu_ps(sums), _mm512_loadu_ps(bias));
        let mut high = _mm512_add_ps(_mm512_loadu_ps(sums.add(16)), _mm512_loadu_ps(bias.add(16)));
        if ADD {
            let there = _mm512_loadu_si512(line.cast());
            let float = |half| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half)));
            low = _mm512_add_ps(low, float(_mm512_castsi512_si256(there)));
            high = _mm512_add_ps(high, float(_mm512_extracti64x4_epi64::<1>(there)));
        }
        if RELU {
            // The second number is taken where one is NaN, so that broken weights are noticed.
            low = _mm512_max_ps(_mm512_setzero_ps(), low);
            high = _mm512_max_ps(_mm512_setzero_ps(), high);
        }
        let rounded = _mm512_cvtne2ps_pbh(high, low);
        _mm512_storeu_si512(line.cast(), transmute::<__m512bh, __m512i>(rounded));
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
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
    Avx512Bf16, 24;
    1 groups in 1 registers: 1 2 3 4 5 6 7 8 9 10 11 12 13 14, twice 1 2 3 4 5 6 7;
    2 groups in 2 registers: 1 2 3 4 5 6 7 8 9 10 11 12 13 14, twice 1 2 3 4 5 6 7;
}

passes! {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
}
