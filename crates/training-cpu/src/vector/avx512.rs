use std::arch::x86_64::{
    __m512, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
    _mm512_sub_ps,
};

use super::{Task, Vector, inlined};

/// AVX-512: thirty-two registers of sixteen float32.
pub(crate) struct Avx512;

impl Vector for Avx512 {
    type Register = __m512;
    const WIDTH: usize = 16;
    const ROWS_MAX: usize = 14;

    inlined! {
        fn zero() -> __m512 = _mm512_setzero_ps();
        fn broadcast(value: *const f32) -> __m512 = _mm512_set1_ps(value.read());
        fn load(values: *const f32) -> __m512 = _mm512_loadu_ps(values);
        fn store(register: __m512, to: *mut f32) = _mm512_storeu_ps(to, register);
        fn add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        fn subtract(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        fn multiply_add(sums: __m512, a: __m512, b: __m512) -> __m512 = _mm512_fmadd_ps(a, b, sums);
    }
}

/// Runs `task` with these instructions.
///
/// # Safety
/// The CPU must have AVX-512 F, BW, VL and DQ.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
pub(crate) unsafe fn run<T: Task>(task: T) -> T::Output {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe { task.run::<Avx512>() }
}
