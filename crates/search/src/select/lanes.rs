//! Arithmetic on eight edges at a time.

use crate::edges::LANES;

/// Replaces `values` with `of` each lane.
///
/// They are in memory on purpose. With an address that escapes, the compiler computes four lanes with each instruction;
/// what it could keep to itself it would compute lane by lane.
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
    /// The index of the octet within the node.
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
mod tests {
    use super::*;

    #[test]
    fn every_lane_is_computed_and_summed() {
        let mut values = [0.0; LANES];
        fill(&mut values, |lane| lane as f32 + 0.5);
        assert_eq!(values, [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5]);
        assert_eq!(sum(&values), 32.0);
    }

    #[test]
    fn the_greatest_is_found_in_every_lane() {
        for lane in 0..LANES {
            let mut scores = [-1.0; LANES];
            scores[lane] = -0.5;
            assert_eq!((greatest(&scores), first_lane(&scores, -0.5)), (-0.5, lane));
        }
    }

    #[test]
    fn the_first_of_equals_counts() {
        for bits in 1..1_u32 << LANES {
            let mut scores = [f32::NEG_INFINITY; LANES];
            (0..LANES).filter(|lane| bits >> lane & 1 == 1).for_each(|lane| scores[lane] = 0.5);
            assert_eq!((greatest(&scores), first_lane(&scores, 0.5)), (0.5, bits.trailing_zeros() as usize));
        }
    }
}
