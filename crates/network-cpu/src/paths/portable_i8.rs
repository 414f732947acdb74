//! Products of integers of eight bits in plain Rust: what the other integer paths are held against.

use crate::line::Format;
use crate::multiply::{Lanes, leaf};

/// Sixteen integers of 32 bits in an array.
pub(crate) struct PortableI8;

impl Lanes for PortableI8 {
    type Register = [u32; 16];
    const WIDTH: usize = 16;
    const FORMAT: Format = Format::I8;
    const ROWS_MAX: usize = 2;
    const PAIRED_MAX: usize = 0;

    #[inline(always)]
    unsafe fn zero() -> Self::Register {
        [0; 16]
    }

    #[inline(always)]
    unsafe fn broadcast(word: *const u32) -> Self::Register {
        // SAFETY: the caller's.
        [unsafe { word.read() }; 16]
    }

    #[inline(always)]
    unsafe fn load(words: *const u32) -> Self::Register {
        // SAFETY: the caller's.
        unsafe { words.cast::<[u32; 16]>().read() }
    }

    #[inline(always)]
    unsafe fn multiply_add(sums: Self::Register, input: Self::Register, weights: Self::Register) -> Self::Register {
        let product = |input: u32, weights: u32, shift: u32| {
            i32::from((input >> shift) as u8) * i32::from(((weights >> shift) as u8).cast_signed())
        };
        std::array::from_fn(|lane| {
            let products = [0, 8, 16, 24].map(|shift| product(input[lane], weights[lane], shift));
            products.iter().fold(sums[lane], |sum, product| sum.wrapping_add_signed(*product))
        })
    }

    #[inline(always)]
    unsafe fn keep(sums: [u32; 16]) -> [u32; 16] {
        sums
    }

    #[inline(always)]
    unsafe fn store(sums: Self::Register, to: *mut f32) {
        // SAFETY: the caller's.
        unsafe { to.cast::<[u32; 16]>().write(sums) }
    }
}

leaf! {
    PortableI8, 2;
    1 groups in 1 registers: 1 2;
}
