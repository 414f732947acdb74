use std::array::from_fn;

use super::{Task, Vector, inlined};

/// Plain Rust, which the compiler turns into the baseline vectors of the target.
pub(crate) struct Portable;

impl Vector for Portable {
    type Register = [f32; 4];
    const WIDTH: usize = 4;
    const ROWS_MAX: usize = 6;

    inlined! {
        fn zero() -> [f32; 4] = [0.0; 4];
        fn broadcast(value: *const f32) -> [f32; 4] = [value.read(); 4];
        fn load(values: *const f32) -> [f32; 4] = values.cast::<[f32; 4]>().read();
        fn store(register: [f32; 4], to: *mut f32) = to.cast::<[f32; 4]>().write(register);
        fn add(a: [f32; 4], b: [f32; 4]) -> [f32; 4] = from_fn(|lane| a[lane] + b[lane]);
        fn subtract(a: [f32; 4], b: [f32; 4]) -> [f32; 4] = from_fn(|lane| a[lane] - b[lane]);
        fn multiply_add(sums: [f32; 4], a: [f32; 4], b: [f32; 4]) -> [f32; 4]
            = from_fn(|lane| sums[lane] + a[lane] * b[lane]);
    }
}

/// Runs `task`.
pub(crate) fn run<T: Task>(task: T) -> T::Output {
    // SAFETY: plain Rust needs no instructions beyond the target's baseline.
    unsafe { task.run::<Portable>() }
}
