//! Plain Rust: sixteen lanes in an array, which the compiler maps to the available registers.

use crate::multiply::{lanes, leaf};
use crate::paths::transform::transforms;

/// Sixteen float32 in an array.
pub(crate) struct Portable;

lanes! {
    Portable: 16 of [f32; 16], F32, 2 rows, 0 paired;
    zero() = [0.0; 16];
    broadcast(word) = [word.cast::<f32>().read(); 16];
    load(words) = words.cast::<[f32; 16]>().read();
    // `mul_add` is not used: without the instruction it would be a function call per lane.
    multiply_add(sums, input, weights) = std::array::from_fn(|lane| sums[lane] + input[lane] * weights[lane]);
    keep(sums) = sums;
    store(sums, to) = to.cast::<[f32; 16]>().write(sums);
}

leaf! {
    Portable, 2;
    1 groups in 1 registers: 1 2;
}

transforms! {
    Portable
}
