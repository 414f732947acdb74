//! Categorical values: the cross-entropy of logits over the integers from −n to n against a two-hot target, after the
//! invertible transform of [`inference::categorical`].

use inference::categorical::{inverse_transform, transform};

/// Loss and predicted value of one row.
pub(super) struct Row {
    /// In nats.
    pub(super) cross: f64,
    /// In the unit of the target.
    pub(super) value: f64,
}

/// Returns the cross-entropy of the softmax of `logits` `[2n + 1]` against the two-hot target distribution.
/// Overwrites the logits with the gradient of `factor` times the cross-entropy. A target that is not finite gives
/// NaN.
pub(super) fn cross_entropy(logits: &mut [f32], target: f32, factor: f64) -> Row {
    let bound = (logits.len() / 2) as f64;
    let target = if target.is_finite() { f64::from(target) } else { f64::NAN };
    let position = transform(target).clamp(-bound, bound) + bound;
    // The highest atom is the upper one of the last pair; the cast makes 0 of NaN.
    let lower = (position.floor() as usize).min(logits.len() - 2);
    let upper_share = position - lower as f64;
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let [of_lower, of_upper] = [0, 1].map(|above| f64::from(logits[lower + above]) - f64::from(most));
    let (mut total, mut weighted) = (0.0_f64, 0.0_f64);
    for (atom, logit) in logits.iter_mut().enumerate() {
        *logit = (*logit - most).exp();
        total += f64::from(*logit);
        weighted += f64::from(*logit) * (atom as f64 - bound);
    }
    let scale = factor / total;
    logits.iter_mut().for_each(|logit| *logit = (f64::from(*logit) * scale) as f32);
    for (atom, share) in [(lower, 1.0 - upper_share), (lower + 1, upper_share)] {
        logits[atom] -= (factor * share) as f32;
    }
    let cross = total.ln() - ((1.0 - upper_share) * of_lower + upper_share * of_upper);
    Row { cross, value: inverse_transform(weighted / total) }
}

#[cfg(test)]
mod tests {
    use inference::Support;
    use inference::categorical::transform;

    use super::cross_entropy;

    const SUPPORT: Support = Support { bound: 4 };

    fn logits() -> Vec<f32> {
        (0..SUPPORT.atoms()).map(|atom| (atom as f32 * 0.7).sin()).collect()
    }

    #[test]
    fn the_cross_entropy_is_that_of_the_two_hot_distribution_of_the_support() {
        for target in [-1e9, -430.0, -10.25, -1e-4, 0.0, 0.1, 1.0, 3.0, 42.0, 1e9] {
            let total = logits().iter().map(|&logit| f64::from(logit).exp()).sum::<f64>().ln();
            // Between −4 and 4, counted from the lowest atom.
            let position = transform(f64::from(target)).clamp(-4.0, 4.0) + 4.0;
            let lower = position.floor().min(7.0);
            let upper = position - lower;
            let [l, u] = [0, 1].map(|above| f64::from(logits()[lower as usize + above]) - total);
            let row = cross_entropy(&mut logits(), target, 1.0);
            let expected = -((1.0 - upper) * l + upper * u);
            assert!((row.cross - expected).abs() < 1e-6, "{target}: {} instead of {expected}", row.cross);
            assert!((row.value - f64::from(SUPPORT.value(&logits()))).abs() < 1e-5);
        }
    }

    #[test]
    fn gradients_are_those_of_finite_differences() {
        let mut gradient = logits();
        cross_entropy(&mut gradient, 2.5, 0.3);
        for (atom, gradient) in gradient.into_iter().enumerate() {
            let moved = |by: f32| {
                let mut logits = logits();
                logits[atom] += by;
                0.3 * cross_entropy(&mut logits, 2.5, 1.0).cross
            };
            let difference = (moved(0.0625) - moved(-0.0625)) / 0.125;
            assert!((f64::from(gradient) - difference).abs() < 1e-4, "{atom}: {gradient} instead of {difference}");
        }
    }

    #[test]
    fn a_target_that_is_not_finite_gives_nan() {
        for target in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(cross_entropy(&mut logits(), target, 1.0).cross.is_nan());
        }
    }
}
