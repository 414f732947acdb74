//! Compares the values and rewards in training targets with the support of the categorical heads. A network cannot
//! represent targets beyond the ends of the support, and learns nothing from the excess.
//!
//! Start with [`TargetRange::of`].

use inference::categorical::inverse_transform;
use training::{Examples, UnrolledBatch};
use weights::Model;

/// Counts the categorical targets in a batch, and how many of these lie beyond the support.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct TargetRange {
    /// Number of targets with a positive weight.
    pub(crate) targets: u64,
    /// Number of targets with a positive weight that are beyond the ends of the support.
    pub(crate) beyond: u64,
    /// Largest absolute target in the batch, before the invertible transform.
    pub(crate) largest: f32,
}

impl TargetRange {
    /// Counts the targets of `examples` against the support of `model`; returns `None` if `model` has no categorical
    /// heads.
    pub(crate) fn of(examples: &Examples, model: Model) -> Option<Self> {
        let Examples::Unrolled(batch) = examples else { return None };
        let end = inverse_transform(model.support()? as f64) as f32;
        let mut range = Self::default();
        let values = batch.values.iter().zip(&batch.value_weights).filter(|(_, weight)| **weight > 0.0);
        values.for_each(|(value, _)| range.add(*value, end));
        for (rewards, weights) in rows(batch) {
            let rewards = rewards.iter().zip(weights).filter(|(_, weight)| **weight > 0.0);
            rewards.for_each(|(reward, _)| range.add(*reward, end));
        }
        Some(range)
    }

    fn add(&mut self, target: f32, end: f32) {
        self.targets += 1;
        self.beyond += u64::from(target.abs() > end);
        self.largest = self.largest.max(target.abs());
    }
}

/// Returns, for each position, the rewards `[K]`, and the weights `[K + 1]` of the states in which the actions are
/// taken.
fn rows(batch: &UnrolledBatch) -> impl Iterator<Item = (&[f32], &[f32])> {
    let steps = batch.unroll_steps;
    batch.rewards.chunks(steps.max(1)).zip(batch.value_weights.chunks(steps + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(unroll_steps: usize, values: &[f32], rewards: &[f32]) -> UnrolledBatch {
        let (values, rewards) = (values.to_vec(), rewards.to_vec());
        UnrolledBatch { unroll_steps, value_weights: vec![1.0; values.len()], values, rewards, ..Default::default() }
    }

    fn range(batch: UnrolledBatch, model: Model) -> TargetRange {
        TargetRange::of(&Examples::Unrolled(batch), model).unwrap()
    }

    // A support of 25 represents values up to 642.2.
    const MUZERO: Model = Model::Muzero { support: 25 };

    #[test]
    fn values_and_rewards_beyond_either_end_of_the_support_are_counted() {
        let found = range(batch(1, &[642.0, 643.0, -643.0, 0.0], &[-1000.0, 642.0]), MUZERO);
        assert_eq!(found, TargetRange { targets: 6, beyond: 3, largest: 1000.0 });
    }

    #[test]
    fn targets_without_a_weight_are_not_counted() {
        let mut truncated = batch(1, &[1.0, 9e9, 9e9, 9e9], &[2.0, 9e9]);
        truncated.value_weights = vec![1.0, 0.0, 0.0, 0.0];
        assert_eq!(range(truncated, MUZERO), TargetRange { targets: 2, beyond: 0, largest: 2.0 });
    }

    #[test]
    fn an_alphazero_network_of_returns_has_targets_of_values_only() {
        let found = range(batch(0, &[-700.0, 3.0], &[]), Model::AlphazeroReturns { support: 25 });
        assert_eq!(found, TargetRange { targets: 2, beyond: 1, largest: 700.0 });
    }

    #[test]
    fn probabilities_of_win_draw_and_loss_have_no_support() {
        assert_eq!(TargetRange::of(&Examples::Unrolled(batch(0, &[1.0], &[])), Model::Alphazero), None);
    }
}
