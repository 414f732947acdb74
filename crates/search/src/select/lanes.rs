//! Vectorised arithmetic on eight edges. The exponential function is implemented here to run in all lanes at once,
//! unlike the library function.

use crate::edges::LANES;

/// Sets each element of `values` to `of(lane)`.
///
/// `black_box` forces the values into memory. The compiler then computes four lanes with each instruction. With the
/// values in registers, it would compute lane by lane.
#[inline(always)]
pub(crate) fn fill(values: &mut [f32; LANES], of: impl Fn(usize) -> f32) {
    for (lane, value) in values.iter_mut().enumerate() {
        *value = of(lane);
    }
    std::hint::black_box(values);
}

/// Returns a new array with the value `of(lane)` in each lane.
#[inline(always)]
pub(crate) fn lanes(of: impl Fn(usize) -> f32) -> [f32; LANES] {
    let mut values = [0.0; LANES];
    fill(&mut values, of);
    values
}

/// Returns the sum of the values, added pairwise.
#[inline(always)]
pub(crate) fn sum(values: &[f32; LANES]) -> f32 {
    let [a, b, c, d, e, f, g, h] = *values;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// Returns the greatest value. The result is unspecified if a value is NaN.
#[inline(always)]
pub(crate) fn greatest(values: &[f32; LANES]) -> f32 {
    let greater = |a: f32, b: f32| if b > a { b } else { a };
    let [a, b, c, d, e, f, g, h] = *values;
    greater(greater(greater(a, e), greater(c, g)), greater(greater(b, f), greater(d, h)))
}

/// The position of an edge within a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The index of the octet within the node.
    pub(crate) octet: usize,
    pub(crate) lane: usize,
}

/// Returns the first lane with the value `value`, which must occur in `values`.
#[inline(always)]
pub(crate) fn first_lane(values: &[f32; LANES], value: f32) -> usize {
    let mut bits = 0_u32;
    for (lane, &other) in values.iter().enumerate() {
        bits |= if other == value { 1 << lane } else { 0 };
    }
    bits.trailing_zeros() as usize
}

/// Returns `e^x` for x ≤ 0, accurate to three units in the last place. An x below −87 is treated as −87. The result
/// for NaN is unspecified.
///
/// `e^x = 2^n · e^r` with integer n and |r| ≤ ln 2 / 2. The polynomial for `e^r` is from Cephes (Moshier 1989, `expf`).
#[inline(always)]
pub(crate) fn exp_of_negative(x: f32) -> f32 {
    /// Adding this constant (1.5 · 2^23) to a float rounds it to the nearest integer, stored in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = if x > -87.0 { x } else { -87.0 };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN_2_HIGH - n * LN_2_LOW;
    let p = 1.987_569_2e-4;
    let p = p * r + 1.398_2e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let power = p * r * r + r + 1.0;
    // The lowest bits of `shifted` are n. Shifted left by 23 bits, n becomes the exponent.
    let scale = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0_f32.to_bits()));
    power * scale
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
    fn the_first_of_equal_lanes_is_found() {
        for bits in 1..1_u32 << LANES {
            let mut scores = [f32::NEG_INFINITY; LANES];
            (0..LANES).filter(|lane| bits >> lane & 1 == 1).for_each(|lane| scores[lane] = 0.5);
            assert_eq!((greatest(&scores), first_lane(&scores, 0.5)), (0.5, bits.trailing_zeros() as usize));
        }
    }

    #[test]
    fn exp_of_negative_agrees_with_exp_to_three_units_in_the_last_place() {
        let mut worst = 0.0_f64;
        for step in 0..=870_000 {
            let x = -step as f32 / 10_000.0;
            let expected = f64::from(x).exp();
            worst = worst.max((f64::from(exp_of_negative(x)) - expected).abs() / expected);
        }
        assert!(worst < 3.0 * f64::from(f32::EPSILON) / 2.0, "{worst}");
    }

    #[test]
    fn exp_of_negative_is_one_at_zero_and_almost_zero_far_below() {
        assert_eq!(exp_of_negative(0.0), 1.0);
        for x in [-87.0, -1e3, -1e30, f32::NEG_INFINITY] {
            assert!((0.0..1e-37).contains(&exp_of_negative(x)), "{x}");
        }
    }
}
