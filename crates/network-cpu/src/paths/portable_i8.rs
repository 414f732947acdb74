//! 8-bit integer products in plain Rust: the reference for the other integer paths.

use crate::multiply::{lanes, leaf};

/// Sixteen 32-bit integers in an array.
pub(crate) struct PortableI8;

/// Adds the products of two words by quarters: unsigned inputs, signed weights.
#[inline(always)]
fn add_products(sum: u32, input: u32, weights: u32) -> u32 {
    let product = |shift: u32| i32::from((input >> shift) as u8) * i32::from(((weights >> shift) as u8).cast_signed());
    [0, 8, 16, 24].map(product).iter().fold(sum, |sum, product| sum.wrapping_add_signed(*product))
}

lanes! {
    PortableI8: 16 of [u32; 16], I8, 2 rows, 0 paired;
    zero() = [0; 16];
    broadcast(word) = [word.read(); 16];
    load(words) = words.cast::<[u32; 16]>().read();
    multiply_add(sums, input, weights) =
        std::array::from_fn(|lane| add_products(sums[lane], input[lane], weights[lane]));
    keep(sums) = sums;
    store(sums, to) = to.cast::<[u32; 16]>().write(sums);
}

leaf! {
    PortableI8, 2;
    1 groups in 1 registers: 1 2;
}
