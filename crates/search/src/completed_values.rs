//! Completed action values, including values for unvisited actions, and the Gumbel functions that use them.
//!
//! Danihelka et al. 2022, "Policy improvement by planning with Gumbel", appendix D and equation 8.

use crate::settings::ValueSpan;

/// Accumulates the value assigned to unvisited actions: the network value mixed with the values of visited actions,
/// `v_mix = (v̂ + ΣN · Σ_visited(π·q) / Σ_visited(π)) / (1 + ΣN)`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MixedValue {
    visits: f32,
    prior: f32,
    prior_times_value: f32,
}

impl MixedValue {
    /// Adds a visited action to the mix.
    #[inline]
    pub(crate) fn add(&mut self, prior: f32, visits: f32, value: f32) {
        self.add_all(prior, visits, prior * value);
    }

    /// Adds several visited actions to the mix, given three sums: priors, visits, and the products `prior · value`.
    #[inline]
    pub(crate) fn add_all(&mut self, prior: f32, visits: f32, prior_times_value: f32) {
        self.visits += visits;
        self.prior += prior;
        self.prior_times_value += prior_times_value;
    }

    /// Returns `v_mix`, or the network value if no action has been visited.
    #[inline]
    pub(crate) fn mix(self, network_value: f32) -> f32 {
        if self.prior <= 0.0 {
            return network_value;
        }
        (network_value + self.visits * self.prior_times_value / self.prior) / (1.0 + self.visits)
    }
}

/// The transformation `σ(q) = (c_visit + max_b N(b)) · c_scale · q`. With more visits, values gain weight relative to
/// priors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sigma {
    pub(crate) c_visit: f32,
    pub(crate) c_scale: f32,
    /// The span of values used to rescale `q`, if values are normalised.
    pub(crate) span: ValueSpan,
}

impl Sigma {
    /// Returns `σ(q) / q` at a node where the most visited action has `visits_max` visits.
    #[inline]
    pub(crate) fn factor(self, visits_max: f32) -> f32 {
        (self.c_visit + visits_max) * self.c_scale
    }
}

/// Returns the logit of a prior. A prior of zero gets a large negative logit rather than −∞, which could produce NaN.
pub(crate) fn logit(prior: f32) -> f32 {
    prior.max(f32::MIN_POSITIVE).ln()
}

/// Converts logits to probabilities in place. An entry of −∞ becomes zero.
pub(crate) fn softmax(logits: &mut [f32]) {
    let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut total = 0.0_f64;
    for logit in logits.iter_mut() {
        *logit = (*logit - greatest).exp();
        total += f64::from(*logit);
    }
    for share in logits.iter_mut() {
        *share = (f64::from(*share) / total) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mixed_value_without_visits_is_the_network_value() {
        assert_eq!(MixedValue::default().mix(0.25), 0.25);
    }

    #[test]
    fn the_mixed_value_weighs_visited_actions_by_their_priors() {
        let mut mixed = MixedValue::default();
        mixed.add(0.5, 3.0, 1.0);
        mixed.add(0.25, 1.0, -0.5);
        // (0.25 + 4 · (0.5 − 0.125) / 0.75) / 5
        assert_eq!(mixed.mix(0.25), 0.45);
    }

    #[test]
    fn visited_actions_without_prior_do_not_divide_by_zero() {
        let mut mixed = MixedValue::default();
        mixed.add(0.0, 3.0, 1.0);
        assert_eq!(mixed.mix(0.25), 0.25);
    }

    #[test]
    fn sigma_grows_with_the_greatest_count() {
        let factor = |c_scale, visits| Sigma { c_visit: 50.0, c_scale, span: ValueSpan::Node }.factor(visits);
        assert_eq!([factor(1.0, 14.0), factor(0.1, 0.0)], [64.0, 5.0]);
    }

    #[test]
    fn softmax_is_correct_for_logits_that_overflow_exp() {
        let mut logits = [1000.0, f32::NEG_INFINITY, 1000.0, -1000.0];
        softmax(&mut logits);
        assert_eq!(logits, [0.5, 0.0, 0.5, 0.0]);
    }

    #[test]
    fn a_prior_of_zero_has_a_finite_logit() {
        assert!(logit(0.0).is_finite() && logit(0.0) < -80.0);
    }
}
