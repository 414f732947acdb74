use game::Outcome;
use training::Examples;

/// Changes of targets against certainty, which noisy searches and outcomes do not deserve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Smoothing {
    /// ε of label smoothing (Szegedy et al. 2016), from 0 to below 1: a target p becomes `(1 − ε) p + ε u`, where u is
    /// uniform over legal actions, or over all actions for a model without rules, and over win, draw and loss.
    pub label_smoothing: f32,
    /// T, above 0: search policies are first raised to the power 1 / T and normalised. Above 1 they are softer, and the
    /// network learns more of the moves that the search neglected; 1 changes nothing.
    pub policy_temperature: f32,
}

impl Default for Smoothing {
    /// Leaves targets as they are.
    fn default() -> Self {
        Self { label_smoothing: 0.0, policy_temperature: 1.0 }
    }
}

impl Smoothing {
    /// Changes the targets of `examples`. Policies without a weight stay as they are.
    pub fn apply(self, examples: &mut Examples) {
        if self == Self::default() {
            return;
        }
        match examples {
            Examples::Positions(batch) => {
                let actions = batch.policies.len() / batch.policy_weights.len().max(1);
                let rows =
                    batch.policies.chunks_exact_mut(actions.max(1)).zip(batch.legal.chunks_exact(actions.max(1)));
                for ((policy, legal), _) in rows.zip(&batch.policy_weights).filter(|(_, weight)| **weight > 0.0) {
                    let share = 1.0 / legal.iter().map(|&legal| f32::from(legal)).sum::<f32>().max(1.0);
                    self.soften(policy, |action| f32::from(legal[action]) * share);
                }
                for wdl in batch.wdl.chunks_exact_mut(Outcome::RESULTS) {
                    self.smooth(wdl, |_| 1.0 / Outcome::RESULTS as f32);
                }
            }
            Examples::Unrolled(batch) => {
                let actions = batch.policies.len() / batch.policy_weights.len().max(1);
                let rows = batch.policies.chunks_exact_mut(actions.max(1)).zip(&batch.policy_weights);
                for (policy, _) in rows.filter(|(_, weight)| **weight > 0.0) {
                    self.soften(policy, |_| 1.0 / actions as f32);
                }
            }
        }
    }

    /// Changes a policy `[A]`: first by temperature, then by label smoothing.
    fn soften(self, policy: &mut [f32], uniform: impl Fn(usize) -> f32) {
        if self.policy_temperature != 1.0 {
            // Relative to the largest share, the power does not become zero for all actions.
            let most = policy.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
            policy.iter_mut().for_each(|share| *share = (*share / most).powf(1.0 / self.policy_temperature));
            let sum = policy.iter().sum::<f32>().max(f32::MIN_POSITIVE);
            policy.iter_mut().for_each(|share| *share /= sum);
        }
        self.smooth(policy, uniform);
    }

    fn smooth(self, target: &mut [f32], uniform: impl Fn(usize) -> f32) {
        for (index, share) in target.iter_mut().enumerate() {
            *share = (1.0 - self.label_smoothing) * *share + self.label_smoothing * uniform(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use training::{Examples, TrainingBatch, UnrolledBatch};

    use super::Smoothing;

    fn close(got: &[f32], expected: &[f32]) {
        let apart = got.iter().zip(expected).map(|(got, expected)| (got - expected).abs()).fold(0.0, f32::max);
        assert!(got.len() == expected.len() && apart < 1e-6, "{got:?} instead of {expected:?}");
    }

    /// Two positions of three actions; in the first the last one is illegal, the second has no policy target.
    fn batch() -> TrainingBatch {
        TrainingBatch {
            policies: vec![0.2, 0.8, 0.0, 0.0, 0.0, 0.0],
            legal: vec![1, 1, 0, 1, 1, 1],
            wdl: vec![1.0, 0.0, 0.0, 0.0, 0.5, 0.5],
            policy_weights: vec![1.0, 0.0],
            ..TrainingBatch::default()
        }
    }

    fn smoothed(smoothing: Smoothing) -> TrainingBatch {
        let mut examples = Examples::Positions(batch());
        smoothing.apply(&mut examples);
        let Examples::Positions(batch) = examples else { unreachable!("the kind does not change") };
        batch
    }

    #[test]
    fn label_smoothing_mixes_in_legal_actions_and_all_results() {
        let batch = smoothed(Smoothing { label_smoothing: 0.3, ..Smoothing::default() });
        close(&batch.policies, &[0.29, 0.71, 0.0, 0.0, 0.0, 0.0]);
        close(&batch.wdl, &[0.8, 0.1, 0.1, 0.1, 0.45, 0.45]);
    }

    #[test]
    fn a_temperature_raises_policies_to_a_power_and_leaves_values() {
        let soft = smoothed(Smoothing { policy_temperature: 2.0, ..Smoothing::default() });
        close(&soft.policies, &[1.0 / 3.0, 2.0 / 3.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(soft.wdl, batch().wdl);
        let sharp = smoothed(Smoothing { policy_temperature: 1e-3, ..Smoothing::default() });
        close(&sharp.policies, &[0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn policies_of_states_without_rules_are_mixed_with_all_actions() {
        let policies = vec![1.0, 0.0, 0.0, 0.0];
        let mut examples =
            Examples::Unrolled(UnrolledBatch { policies, policy_weights: vec![1.0, 0.0], ..UnrolledBatch::default() });
        Smoothing { label_smoothing: 0.5, ..Smoothing::default() }.apply(&mut examples);
        let Examples::Unrolled(batch) = examples else { unreachable!("the kind does not change") };
        close(&batch.policies, &[0.75, 0.25, 0.0, 0.0]);
    }

    #[test]
    fn the_default_changes_nothing() {
        assert_eq!(smoothed(Smoothing::default()), batch());
    }
}
