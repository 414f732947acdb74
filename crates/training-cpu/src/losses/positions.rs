//! Losses of AlphaZero: policies over legal actions, and win, draw and loss.

use std::ops::Range;

use training::{Losses, Observations, TrainingBatch};

use super::{cross_entropy, greatest, log_sum};

/// Logit of an illegal action: the prior is exactly zero, and zero times the log prior is zero and not NaN.
const ILLEGAL: f32 = -1e9;
/// Win, draw and loss.
const RESULTS: usize = 3;

/// Targets of a whole batch of positions.
///
/// `policy = Σᵢ rᵢ wᵢ Σₐ −πᵢₐ ln pᵢₐ / max(1, Σᵢ wᵢ)` with p the softmax over legal actions and r the importance, 1
/// without; `value = mean over i of rᵢ Σₖ −zᵢₖ ln vᵢₖ` with v the softmax over win, draw and loss.
#[derive(Debug)]
pub(crate) struct PositionTargets<'a> {
    batch: &'a TrainingBatch,
    /// `max(1, Σᵢ wᵢ)`.
    policy_weight: f64,
    weights: Losses,
}

impl<'a> PositionTargets<'a> {
    /// Returns the targets of the checked `batch`.
    pub(crate) fn new(batch: &'a TrainingBatch, weights: Losses) -> Self {
        let policy_weight: f64 = batch.policy_weights.iter().map(|&weight| f64::from(weight)).sum();
        Self { batch, policy_weight: policy_weight.max(1.0), weights }
    }

    /// Returns the observations of all rows.
    pub(crate) fn observations(&self) -> &'a Observations {
        &self.batch.observations
    }

    /// Adds the policy losses of rows, and overwrites the logits `[rows, A]` with their gradient.
    pub(crate) fn policy(&self, rows: Range<usize>, logits: &mut [f32], sums: &mut Losses) {
        let TrainingBatch { policies, legal, policy_weights, .. } = self.batch;
        let actions = policies.len() / policy_weights.len();
        for (row, logits) in rows.zip(logits.chunks_exact_mut(actions)) {
            let of_row = row * actions..(row + 1) * actions;
            let (policies, legal) = (&policies[of_row.clone()], &legal[of_row]);
            for (logit, _) in logits.iter_mut().zip(legal).filter(|(_, legal)| **legal == 0) {
                *logit = ILLEGAL;
            }
            let factor = self.importance(row) * f64::from(policy_weights[row]) / self.policy_weight;
            let of_row = cross_entropy(logits, policies, factor * self.weights.policy);
            for (gradient, _) in logits.iter_mut().zip(legal).filter(|(_, legal)| **legal == 0) {
                *gradient = 0.0;
            }
            sums.policy += factor * of_row.cross;
            sums.policy_entropy += of_row.entropy / policy_weights.len() as f64;
        }
    }

    /// Adds the value losses of rows, and overwrites the logits `[rows, 3]` with their gradient. Appends the distance
    /// of each win − loss from the target to `errors`.
    pub(crate) fn value(&self, rows: Range<usize>, logits: &mut [f32], sums: &mut Losses, errors: &mut Vec<f32>) {
        let positions = self.batch.policy_weights.len() as f64;
        for (row, logits) in rows.zip(logits.chunks_exact_mut(RESULTS)) {
            let wdl = &self.batch.wdl[row * RESULTS..(row + 1) * RESULTS];
            let is_right = greatest(logits) == greatest(wdl);
            sums.value_accuracy += f64::from(u8::from(is_right)) / positions;
            errors.push(value_error(logits, wdl));
            let factor = self.importance(row) / positions;
            sums.value += factor * cross_entropy(logits, wdl, factor * self.weights.value).cross;
        }
    }

    fn importance(&self, row: usize) -> f64 {
        self.batch.importance.get(row).map_or(1.0, |&importance| f64::from(importance))
    }
}

/// Returns the distance of win − loss from the target, from 0 to 2.
fn value_error(logits: &[f32], wdl: &[f32]) -> f32 {
    let normaliser = log_sum(logits);
    let apart = |result: usize| (f64::from(logits[result]) - normaliser).exp() - f64::from(wdl[result]);
    (apart(0) - apart(2)).abs() as f32
}

#[cfg(test)]
mod tests {
    use training::{Losses, TrainingBatch};

    use super::PositionTargets;

    const E: f64 = std::f64::consts::E;
    const POLICY: [f32; 6] = [0.0, 1.0, 9.0, 5.0, -5.0, 0.0];
    const VALUE: [f32; 6] = [2.0, 0.0, 0.0, 0.0, 0.0, 1.0];

    /// Two positions with three actions; the second has no policy target, and action 2 is illegal in the first.
    fn batch() -> TrainingBatch {
        TrainingBatch {
            policies: vec![0.25, 0.75, 0.0, 0.0, 0.0, 0.0],
            legal: vec![1, 1, 0, 1, 1, 1],
            wdl: vec![1.0, 0.0, 0.0, 0.5, 0.5, 0.0],
            policy_weights: vec![1.0, 0.0],
            ..TrainingBatch::default()
        }
    }

    /// Returns the losses for these logits, the gradients, and the value errors.
    fn losses(batch: &TrainingBatch, policy: [f32; 6], value: [f32; 6]) -> (Losses, Vec<f32>, Vec<f32>) {
        let (mut policy, mut value) = (policy, value);
        let (mut sums, mut errors) = (Losses::ZERO, Vec::new());
        let targets = PositionTargets::new(batch, Losses { policy: 2.0, value: 0.5, ..Losses::WEIGHTS });
        targets.policy(0..2, &mut policy, &mut sums);
        targets.value(0..2, &mut value, &mut sums, &mut errors);
        (sums, [policy, value].concat(), errors)
    }

    fn close(got: f64, expected: f64) {
        assert!((got - expected).abs() < 1e-6, "{got} instead of {expected}");
    }

    #[test]
    fn losses_are_cross_entropies_over_legal_actions_and_results() {
        let (sums, ..) = losses(&batch(), POLICY, VALUE);
        close(sums.policy, -(0.25 * (1.0 / (1.0 + E)).ln() + 0.75 * (E / (1.0 + E)).ln()));
        close(sums.value, -((E * E / (E * E + 2.0)).ln() + (1.0 / (2.0 + E)).ln()) / 2.0);
        close(sums.value_accuracy, 0.5);
    }

    #[test]
    fn losses_are_weighted_by_importance_and_value_errors_are_returned_per_row() {
        let (sums, _, errors) = losses(&TrainingBatch { importance: vec![0.5, 0.25], ..batch() }, POLICY, VALUE);
        close(sums.policy, -0.5 * (0.25 * (1.0 / (1.0 + E)).ln() + 0.75 * (E / (1.0 + E)).ln()));
        close(sums.value, -(0.5 * (E * E / (E * E + 2.0)).ln() + 0.25 * (1.0 / (2.0 + E)).ln()) / 2.0);
        let (first, second) = ((E * E - 1.0) / (E * E + 2.0), (1.0 - E) / (2.0 + E));
        close(f64::from(errors[0]), 1.0 - first);
        close(f64::from(errors[1]), 0.5 - second);
    }

    #[test]
    fn gradients_are_those_of_finite_differences() {
        let batch = TrainingBatch { importance: vec![0.5, 0.25], policy_weights: vec![1.0, 0.5], ..batch() };
        let batch = TrainingBatch { policies: vec![0.25, 0.75, 0.0, 0.1, 0.2, 0.7], ..batch };
        let total = |policy, value| {
            let (sums, ..) = losses(&batch, policy, value);
            2.0 * sums.policy + 0.5 * sums.value
        };
        let (_, gradient, _) = losses(&batch, POLICY, VALUE);
        for (index, gradient) in gradient.into_iter().enumerate() {
            let moved = |by: f32| {
                let (mut policy, mut value) = (POLICY, VALUE);
                if index < 6 {
                    policy[index] += by
                } else {
                    value[index - 6] += by
                }
                total(policy, value)
            };
            let difference = (moved(0.0625) - moved(-0.0625)) / 0.125;
            assert!((f64::from(gradient) - difference).abs() < 1e-3, "{index}: {gradient} instead of {difference}");
        }
    }

    #[test]
    fn a_batch_without_any_policy_target_has_a_policy_loss_of_zero() {
        let (sums, ..) = losses(&TrainingBatch { policy_weights: vec![0.0; 2], ..batch() }, POLICY, VALUE);
        assert_eq!(sums.policy.abs(), 0.0);
    }
}
