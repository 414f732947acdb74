//! Values as categorical distributions: the invertible transform and the inverse.
//!
//! MuZero predicts values and rewards as distributions over integers, after a transform that compresses large numbers
//! (Schrittwieser et al. 2020, appendix F; Pohlen et al. 2018).

/// ε of the transform: keeps the transform invertible with a bounded slope.
pub const EPSILON: f64 = 0.001;

/// The integers from −n to n, the atoms of categorical values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Support {
    /// n, at least 1.
    pub bound: usize,
}

impl Support {
    /// Returns the number of atoms, 2n + 1.
    #[must_use]
    pub fn atoms(self) -> usize {
        2 * self.bound + 1
    }

    /// Returns the value for logits `[2n + 1]`: the inverse transform of the softmax mean.
    #[must_use]
    pub fn value(self, logits: &[f32]) -> f32 {
        debug_assert_eq!(logits.len(), self.atoms());
        let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let (mut total, mut weighted) = (0.0, 0.0);
        for (atom, &logit) in logits.iter().enumerate() {
            let share = (logit - greatest).exp();
            total += share;
            weighted += share * (atom as f32 - self.bound as f32);
        }
        inverse_transform(f64::from(weighted / total)) as f32
    }
}

/// Returns `h(x) = sign(x) (√(|x| + 1) − 1) + εx`.
#[must_use]
pub fn transform(x: f64) -> f64 {
    x.signum() * ((x.abs() + 1.0).sqrt() - 1.0) + EPSILON * x
}

/// Returns the inverse of [`transform`], `sign(x) (((√(1 + 4ε(|x| + 1 + ε)) − 1) / 2ε)² − 1)`.
#[must_use]
pub fn inverse_transform(x: f64) -> f64 {
    let root = ((1.0 + 4.0 * EPSILON * (x.abs() + 1.0 + EPSILON)).sqrt() - 1.0) / (2.0 * EPSILON);
    x.signum() * (root * root - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUPPORT: Support = Support { bound: 20 };

    /// Returns the predicted value of the two-hot distribution with this mean, in atoms from the lowest one.
    fn predicted(position: f64) -> f32 {
        let lower = (position.floor() as usize).min(2 * SUPPORT.bound - 1);
        let upper_share = (position - lower as f64) as f32;
        let mut logits = vec![f32::NEG_INFINITY; SUPPORT.atoms()];
        (logits[lower], logits[lower + 1]) = ((1.0 - upper_share).ln(), upper_share.ln());
        SUPPORT.value(&logits)
    }

    #[test]
    fn the_inverse_transform_undoes_the_transform() {
        for x in [-1e5, -300.0, -1.0, -1e-6, 0.0, 0.5, 1.0, 17.0, 500.0, 1e6] {
            let back = inverse_transform(transform(x));
            assert!((back - x).abs() <= 1e-9 * (1.0 + x.abs()), "{x} became {back}");
        }
    }

    #[test]
    fn the_transform_has_the_published_values() {
        // h(3) = √4 − 1 + 0.003.
        assert!((transform(3.0) - 1.003).abs() < 1e-12);
        assert!((transform(-8.0) + 2.008).abs() < 1e-12);
        assert_eq!(transform(0.0), 0.0);
    }

    #[test]
    fn the_value_of_a_two_hot_distribution_is_the_value_it_was_made_of() {
        for value in [-400.0_f32, -10.25, -0.5, 0.0, 0.1, 1.0, 3.0, 42.0, 400.0] {
            let back = predicted(transform(f64::from(value)) + SUPPORT.bound as f64);
            assert!((back - value).abs() <= 1e-3 * (1.0 + value.abs()), "{value} became {back}");
        }
    }
}
