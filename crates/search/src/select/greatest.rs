//! The greatest of eight scores.

use crate::edges::LANES;

/// The greatest score.
#[inline(always)]
pub(crate) fn greatest(scores: &[f32; LANES]) -> f32 {
    let greater = |a: f32, b: f32| if b > a { b } else { a };
    let [a, b, c, d, e, f, g, h] = *scores;
    greater(greater(greater(a, e), greater(c, g)), greater(greater(b, f), greater(d, h)))
}

/// The first lane that holds `score`, which is one of the scores.
#[inline(always)]
pub(crate) fn first_lane(scores: &[f32; LANES], score: f32) -> usize {
    let mut bits = 0_u32;
    for (lane, &other) in scores.iter().enumerate() {
        bits |= if other == score { 1 << lane } else { 0 };
    }
    bits.trailing_zeros() as usize
}

#[cfg(test)]
mod tests;
