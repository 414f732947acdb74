//! Categorical values and rewards on the device, as defined by [`inference::Support`]: over the integers from −n to
//! n, after the invertible transform.
//!
//! Differences of nearly equal numbers are rewritten as quotients, because float32 would lose small values to them.

use inference::categorical::EPSILON;
use tch::{Kind, Tensor};

use crate::Error;

/// Returns the cross-entropy of `logits` `[…, 2n + 1]` against the two-hot distributions of `values` `[…]`, in nats.
///
/// A value that is not finite gives NaN.
pub(crate) fn cross_entropy(logits: &Tensor, values: &Tensor) -> Result<Tensor, Error> {
    let bound = bound(logits);
    let position = transform(values)?.f_clamp(-bound, bound)?.f_add_scalar(bound)?;
    // An index that is out of range would stop an accelerator for good, so NaN gets index 0. The highest atom is the
    // upper one of the last pair.
    let lower = position.f_nan_to_num(0.0, 0.0, 0.0)?.f_floor()?.f_clamp(0.0, 2.0 * bound - 1.0)?;
    let upper_probability = position.f_sub(&lower)?;
    let lower = lower.f_to_kind(Kind::Int64)?;
    let pair = Tensor::f_stack(&[&lower, &lower.f_add_scalar(1)?], -1)?;
    let log_probabilities = logits.f_log_softmax(-1, None::<Kind>)?.f_gather(-1, &pair, false)?;
    let [of_lower, of_upper] = [0, 1].map(|atom| log_probabilities.f_select(-1, atom));
    // (1 − p) l + p u, negated.
    let of_lower = of_lower?;
    let apart = of_upper?.f_sub(&of_lower)?;
    Ok(of_lower.f_add(&apart.f_mul(&upper_probability)?)?.f_neg()?)
}

/// Returns the values `[…]` that `logits` `[…, 2n + 1]` predict: the inverse transform of the softmax mean.
pub(crate) fn value(logits: &Tensor) -> Result<Tensor, Error> {
    let bound = bound(logits);
    let atoms = Tensor::f_arange_start(-bound, bound + 1.0, (logits.f_kind()?, logits.device()))?;
    inverse_transform(&logits.f_softmax(-1, None::<Kind>)?.f_matmul(&atoms)?)
}

/// Returns `h(x) = x / (√(|x| + 1) + 1) + εx`, which is `sign(x) (√(|x| + 1) − 1) + εx`.
pub(crate) fn transform(x: &Tensor) -> Result<Tensor, Error> {
    let root = x.f_abs()?.f_add_scalar(1.0)?.f_sqrt()?.f_add_scalar(1.0)?;
    Ok(x.f_div(&root)?.f_add(&x.f_multiply_scalar(EPSILON)?)?)
}

/// Returns the inverse of [`transform`]. With `c = 1 + 2ε`, `s = √(c² + 4ε|x|)` and
/// `d = |x| (2 − 4ε / (c + s)) / (s + 1)` it is `sign(x) d (d + 2)`; d + 1 is the quotient that the usual form
/// squares.
fn inverse_transform(x: &Tensor) -> Result<Tensor, Error> {
    let c = 1.0 + 2.0 * EPSILON;
    let s = x.f_abs()?.f_multiply_scalar(4.0 * EPSILON)?.f_add_scalar(c * c)?.f_sqrt()?;
    let slope = s.f_add_scalar(c)?.f_reciprocal()?.f_multiply_scalar(-4.0 * EPSILON)?.f_add_scalar(2.0)?;
    let d = x.f_mul(&slope)?.f_div(&s.f_add_scalar(1.0)?)?;
    // d has the sign of x here.
    Ok(d.f_mul(&d.f_abs()?.f_add_scalar(2.0)?)?)
}

/// Returns n for logits `[…, 2n + 1]`.
fn bound(logits: &Tensor) -> f64 {
    let atoms = *logits.size().last().expect("logits have a dimension");
    ((atoms - 1) / 2) as f64
}

#[cfg(test)]
mod tests {
    use inference::{Support, categorical};
    use tch::Tensor;

    use super::{cross_entropy, inverse_transform, transform, value};
    use crate::{
        Error,
        tests::networks::{assert_close, numbers},
    };

    const SUPPORT: Support = Support { bound: 20 };
    const VALUES: [f32; 13] = [-1e9, -430.0, -10.25, -1.0, -1e-4, 0.0, 1e-6, 0.1, 1.0, 3.0, 42.0, 430.0, 1e9];

    /// Logits that differ in every atom and every row.
    fn logits(rows: usize) -> Vec<f32> {
        (0..rows * SUPPORT.atoms()).map(|i| 3.0 * (i as f32 * 0.7).sin()).collect()
    }

    #[test]
    fn the_cross_entropy_is_that_of_the_two_hot_distribution_of_the_support() {
        let logits = logits(VALUES.len());
        let expected: Vec<f64> = VALUES
            .iter()
            .zip(logits.chunks(SUPPORT.atoms()))
            .map(|(&value, row)| {
                let total = row.iter().map(|&logit| f64::from(logit).exp()).sum::<f64>().ln();
                // Between −20 and 20, counted from the lowest atom.
                let position = categorical::transform(f64::from(value)).clamp(-20.0, 20.0) + 20.0;
                let lower = position.floor().min(39.0);
                let upper = position - lower;
                let [l, u] = [0, 1].map(|above| f64::from(row[lower as usize + above]) - total);
                -((1.0 - upper) * l + upper * u)
            })
            .collect();
        let rows = VALUES.len() as i64;
        let got = cross_entropy(&Tensor::from_slice(&logits).view([rows, -1]), &Tensor::from_slice(&VALUES)).unwrap();
        assert_close(&numbers(&got), &expected, 2e-5);
    }

    #[test]
    fn predicted_values_are_those_of_the_support() {
        let logits = logits(50);
        let expected: Vec<f64> = logits.chunks(SUPPORT.atoms()).map(|row| f64::from(SUPPORT.value(row))).collect();
        let got = value(&Tensor::from_slice(&logits).view([50, -1])).unwrap();
        assert_close(&numbers(&got), &expected, 1e-4);
    }

    #[test]
    fn the_transform_and_its_inverse_in_float32_agree_with_float64_also_near_zero() {
        let values: Vec<f32> = [1e-7, 1e-3, 0.3, 1.0, 17.0, 5e3].into_iter().flat_map(|x| [x, -x]).collect();
        let agree = |got: Result<Tensor, Error>, expected: fn(f64) -> f64| {
            for (got, &x) in numbers(&got.unwrap()).into_iter().zip(&values) {
                let expected = expected(f64::from(x));
                // The usual form of the inverse is off by 1e-13 itself.
                assert!((got - expected).abs() <= 1e-6 * expected.abs() + 1e-12, "{x}: {got} instead of {expected}");
            }
        };
        agree(transform(&Tensor::from_slice(&values)), categorical::transform);
        agree(inverse_transform(&Tensor::from_slice(&values)), categorical::inverse_transform);
    }

    #[test]
    fn a_target_that_is_not_finite_gives_nan_and_no_index_out_of_range() {
        for target in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let logits = Tensor::from_slice(&logits(1)).view([1, -1]);
            let got = numbers(&cross_entropy(&logits, &Tensor::from_slice(&[target])).unwrap());
            assert!(got[0].is_nan(), "{target} gave {got:?}");
        }
    }
}
