//! AVX-512 VNNI: four 8-bit integer products, summed in 32 bits.

use std::arch::x86_64::{
    __m128i, __m512i, _mm_storeu_si128, _mm512_cvtps_epi32, _mm512_cvtusepi32_epi8, _mm512_dpbusd_epi32,
    _mm512_loadu_ps, _mm512_loadu_si512, _mm512_max_epi32, _mm512_min_ps, _mm512_mul_ps, _mm512_set1_epi32,
    _mm512_set1_ps, _mm512_setzero_si512, _mm512_storeu_si512,
};

use crate::multiply::{lanes, leaf};
use crate::planes::{INTEGERS, Line, WORDS};
use crate::quantise::INPUT_MAX;

/// Sixteen 32-bit integer sums of four products.
pub(crate) struct Avx512I8;

lanes! {
    Avx512I8: 16 of __m512i, I8, 14 rows, 7 paired;
    zero() = _mm512_setzero_si512();
    broadcast(word) = _mm512_set1_epi32(word.read().cast_signed());
    load(words) = _mm512_loadu_si512(words.cast());
    multiply_add(sums, input, weights) = _mm512_dpbusd_epi32(sums, input, weights);
    keep(sums) = keep(sums);
    store(sums, to) = _mm512_storeu_si512(to.cast(), sums);
}

#[inline]
#[target_feature(enable = "avx512f")]
fn keep(mut sums: __m512i) -> __m512i {
    // SAFETY: the assembly is only a comment.
    unsafe { std::arch::asm!("/* {0} */", inout(zmm_reg) sums, options(pure, nomem, nostack, preserves_flags)) };
    sums
}

leaf! {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    Avx512I8, 24;
    1 groups in 1 registers: 1 2 3 4 5 6 7 8 9 10 11 12 13 14, twice 1 2 3 4 5 6 7;
    2 groups in 2 registers: 1 2 3 4 5 6 7 8 9 10 11 12 13 14, twice 1 2 3 4 5 6 7;
}

/// [`quantise_pixels`](crate::quantise::quantise_pixels) in wide registers.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(crate) fn quantise(inputs: [&[Line]; 4], inverse: &[f32; INTEGERS], outputs: &mut [Line]) {
    for (part, input) in inputs.iter().enumerate() {
        // SAFETY: the load reads sixteen of the 64 numbers.
        let inverse = unsafe { _mm512_loadu_ps(inverse.as_ptr().add(part * WORDS)) };
        for (input, output) in input.iter().zip(&mut *outputs) {
            // SAFETY: a line is sixteen float32, or four times sixteen bytes.
            unsafe {
                let scaled = _mm512_mul_ps(_mm512_loadu_ps(input.0.as_ptr().cast()), inverse);
                let bounded = _mm512_min_ps(scaled, _mm512_set1_ps(INPUT_MAX));
                let positive = _mm512_max_epi32(_mm512_cvtps_epi32(bounded), _mm512_setzero_si512());
                let bytes = output.0.as_mut_ptr().cast::<__m128i>().add(part);
                _mm_storeu_si128(bytes, _mm512_cvtusepi32_epi8(positive));
            }
        }
    }
}
