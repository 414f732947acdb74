use std::arch::x86_64::{
    __m256bh, __m256i, __m512, __m512bh, __m512i, _CMP_LE_OQ, _mm256_loadu_si256, _mm256_storeu_si256,
    _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_cvtepu16_epi32, _mm512_cvtne2ps_pbh, _mm512_cvtneps_pbh,
    _mm512_dpbf16_ps, _mm512_mask_mov_ps, _mm512_or_si512, _mm512_setzero_ps, _mm512_slli_epi32,
};
use std::mem::transmute;

use half::bf16;

use super::avx512::Avx512;
use super::{Task, Vector, inlined};

/// AVX-512 with bfloat16 products and float32 sums. Everything except products is as in [`Avx512`].
pub(crate) struct Avx512Bf16;

impl Vector for Avx512Bf16 {
    type Register = __m512;
    const WIDTH: usize = Avx512::WIDTH;
    const FACTORS: usize = 2;
    const ROWS_MAX: usize = Avx512::ROWS_MAX;

    inlined! {
        fn zero() -> __m512 = Avx512::zero();
        fn broadcast(value: *const f32) -> __m512 = Avx512::broadcast(value);
        fn load(values: *const f32) -> __m512 = Avx512::load(values);
        fn store(register: __m512, to: *mut f32) = Avx512::store(register, to);
        fn add(a: __m512, b: __m512) -> __m512 = Avx512::add(a, b);
        fn subtract(a: __m512, b: __m512) -> __m512 = Avx512::subtract(a, b);
        fn multiply_add(sums: __m512, a: __m512, b: __m512) -> __m512 = Avx512::multiply_add(sums, a, b);
        // Both types of a `transmute` have equally many bits.
        fn multiply(sums: __m512, a: __m512, b: __m512) -> __m512
            = _mm512_dpbf16_ps(sums, transmute::<__m512, __m512bh>(a), transmute::<__m512, __m512bh>(b));
        fn pair_adjacent(low: __m512, high: __m512) -> __m512
            = transmute::<__m512bh, __m512>(_mm512_cvtne2ps_pbh(high, low));
        fn store_bf16(register: __m512, to: *mut bf16)
            = _mm256_storeu_si256(to.cast(), transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(register)));
    }

    #[inline(always)]
    unsafe fn pair_lanes(first: __m512, second: __m512) -> __m512 {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe {
            let second = _mm512_slli_epi32::<16>(widened(second));
            _mm512_castsi512_ps(_mm512_or_si512(widened(first), second))
        }
    }

    #[inline(always)]
    unsafe fn passed(values: __m512, by: __m512) -> __m512 {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe {
            let zero = _mm512_setzero_ps();
            _mm512_mask_mov_ps(values, _mm512_cmp_ps_mask::<_CMP_LE_OQ>(by, zero), zero)
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(values: *const bf16) -> __m512 {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe {
            let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(values.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits))
        }
    }
}

/// Rounds each value to the nearest bfloat16, in the lower half of the lane.
///
/// # Safety
/// The CPU must have the path's instructions.
#[inline(always)]
unsafe fn widened(values: __m512) -> __m512i {
    // SAFETY: the caller fulfils the contract of this function; both types are 256 bits.
    unsafe { _mm512_cvtepu16_epi32(transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(values))) }
}

/// Runs `task` with these instructions.
///
/// # Safety
/// The CPU must have AVX-512 F, BW, VL, DQ and BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")]
pub(crate) unsafe fn run<T: Task>(task: T) -> T::Output {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe { task.run::<Avx512Bf16>() }
}
