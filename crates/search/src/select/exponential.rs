//! The exponential function in arithmetic that runs in every lane at once, which a call into a library does not.

/// `e^x` for x up to 0, to within three units in the last place; what is below −87 counts as −87. Anything for NaN.
///
/// `e^x = 2^n · e^r` with whole n and |r| ≤ ln 2 / 2; the polynomial of `e^r` is that of Cephes (Moshier 1989, `expf`).
#[inline(always)]
pub(crate) fn exp_of_negative(x: f32) -> f32 {
    /// Adding it leaves the nearest whole number in the lowest bits.
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
    // The lowest bits of `shifted` are n; shifted up they are an exponent.
    let scale = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0_f32.to_bits()));
    power * scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_the_exponential_function_to_three_units_in_the_last_place() {
        let mut worst = 0.0_f64;
        for step in 0..=870_000 {
            let x = -step as f32 / 10_000.0;
            let expected = f64::from(x).exp();
            worst = worst.max((f64::from(exp_of_negative(x)) - expected).abs() / expected);
        }
        assert!(worst < 3.0 * f64::from(f32::EPSILON) / 2.0, "{worst}");
    }

    #[test]
    fn zero_is_exact_and_what_is_far_below_is_next_to_nothing() {
        assert_eq!(exp_of_negative(0.0), 1.0);
        for x in [-87.0, -1e3, -1e30, f32::NEG_INFINITY] {
            assert!((0.0..1e-37).contains(&exp_of_negative(x)), "{x}");
        }
    }
}
