use std::arch::x86_64::{
    __m256, _mm256_add_ps, _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps,
    _mm256_sub_ps,
};

use super::{Task, Vector, inlined};

/// AVX2 with FMA: sixteen registers of eight float32.
pub(crate) struct Avx2;

impl Vector for Avx2 {
    type Register = __m256;
    const WIDTH: usize = 8;
    const ROWS_MAX: usize = 6;

    inlined! {
        fn zero() -> __m256 = _mm256_setzero_ps();
        fn broadcast(value: *const f32) -> __m256 = _mm256_broadcast_ss(&*value);
        fn load(values: *const f32) -> __m256 = _mm256_loadu_ps(values);
        fn store(register: __m256, to: *mut f32) = _mm256_storeu_ps(to, register);
        fn add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        fn subtract(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        fn multiply_add(sums: __m256, a: __m256, b: __m256) -> __m256 = _mm256_fmadd_ps(a, b, sums);
    }
}

/// Runs `task` with these instructions.
///
/// # Safety
/// The CPU must have AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(crate) unsafe fn run<T: Task>(task: T) -> T::Output {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe { task.run::<Avx2>() }
}
