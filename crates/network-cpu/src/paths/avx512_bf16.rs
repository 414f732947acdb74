//! AVX-512 bf16: pairs of bfloat16 products, summed in float32.

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, _mm512_add_ps, _mm512_castsi512_ps, _mm512_castsi512_si256, _mm512_cvtepu16_epi32,
    _mm512_cvtne2ps_pbh, _mm512_dpbf16_ps, _mm512_extracti64x4_epi64, _mm512_loadu_ps, _mm512_loadu_si512,
    _mm512_max_ps, _mm512_set1_epi32, _mm512_setzero_ps, _mm512_slli_epi32, _mm512_storeu_ps, _mm512_storeu_si512,
};
use std::mem::transmute;

use crate::multiply::{lanes, leaf};
use crate::planes::Line;

/// Sixteen float32 sums of pairs of products.
pub(crate) struct Avx512Bf16;

/// Reinterprets a register as pairs of bfloat16.
#[inline(always)]
fn pairs(words: __m512) -> __m512bh {
    // SAFETY: both types are registers of 64 bytes without padding, and every bit pattern is a valid value.
    unsafe { transmute::<__m512, __m512bh>(words) }
}

lanes! {
    Avx512Bf16: 16 of __m512, Bf16, 14 rows, 7 paired;
    zero() = _mm512_setzero_ps();
    broadcast(word) = _mm512_castsi512_ps(_mm512_set1_epi32(word.read().cast_signed()));
    load(words) = _mm512_castsi512_ps(_mm512_loadu_si512(words.cast()));
    multiply_add(sums, input, weights) = _mm512_dpbf16_ps(sums, pairs(input), pairs(weights));
    keep(sums) = super::avx512::keep(sums);
    store(sums, to) = _mm512_storeu_ps(to, sums);
}

/// Applies bias, addition, ReLU and rounding to 32 sums and writes them to a line.
///
/// # Safety
/// The CPU must have the path's instructions; sums and bias are 32 numbers each.
#[inline(always)]
pub(super) unsafe fn finish_line<const ADD: bool, const RELU: bool>(
    sums: *const f32,
    bias: *const f32,
    line: *mut Line,
) {
    // SAFETY: the caller fulfils the contract of this function; a bfloat16 is the upper half of a float32.
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
            // The instruction returns the second operand if one is NaN, so that broken weights are detected.
            low = _mm512_max_ps(_mm512_setzero_ps(), low);
            high = _mm512_max_ps(_mm512_setzero_ps(), high);
        }
        let rounded = _mm512_cvtne2ps_pbh(high, low);
        _mm512_storeu_si512(line.cast(), transmute::<__m512bh, __m512i>(rounded));
    }
}

leaf! {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
    Avx512Bf16, 24;
    1 groups in 1 registers: 1 2 3 4 5 6 7 8 9 10 11 12 13 14, twice 1 2 3 4 5 6 7;
    2 groups in 2 registers: 1 2 3 4 5 6 7 8 9 10 11 12 13 14, twice 1 2 3 4 5 6 7;
}
