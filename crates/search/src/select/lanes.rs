//! Arithmetic on eight edges at a time.

use crate::edges::LANES;

/// Replaces `values` with `of` each lane.
///
/// They are in memory on purpose. Told that memory matters, the compiler computes four lanes with each instruction; what it
/// could keep to itself it would compute lane by lane.
#[inline(always)]
pub(crate) fn fill(values: &mut [f32; LANES], of: impl Fn(usize) -> f32) {
    for (lane, value) in values.iter_mut().enumerate() {
        *value = of(lane);
    }
    std::hint::black_box(values);
}

/// [`fill`], where the eight are not yet anywhere.
#[inline(always)]
pub(crate) fn lanes(of: impl Fn(usize) -> f32) -> [f32; LANES] {
    let mut values = [0.0; LANES];
    fill(&mut values, of);
    values
}

/// The sum, in pairs.
#[inline(always)]
pub(crate) fn sum(values: &[f32; LANES]) -> f32 {
    let [a, b, c, d, e, f, g, h] = *values;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// The greatest.
#[inline(always)]
pub(crate) fn greatest(values: &[f32; LANES]) -> f32 {
    let greater = |a: f32, b: f32| if b > a { b } else { a };
    let [a, b, c, d, e, f, g, h] = *values;
    greater(greater(greater(a, e), greater(c, g)), greater(greater(b, f), greater(d, h)))
}

/// One of the edges of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Which of the node's octets.
    pub(crate) octet: usize,
    pub(crate) lane: usize,
}

/// The first lane that holds `value`, which is one of them.
#[inline(always)]
pub(crate) fn first_lane(values: &[f32; LANES], value: f32) -> usize {
    let mut bits = 0_u32;
    for (lane, &other) in values.iter().enumerate() {
        bits |= if other == value { 1 << lane } else { 0 };
    }
    bits.trailing_zeros() as usize
}

#[cfg(test)]
mod tests;
