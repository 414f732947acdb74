use training::{Examples, TrainingBatch, UnrolledBatch};

/// Temperature T of policy targets, above 0: search policies are raised to the power 1 / T and normalised. Values above
/// 1 make policies softer, so that the network learns more about moves with few visits; 1 changes nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PolicyTemperature(pub f32);

impl PolicyTemperature {
    /// Changes the policies of `examples` in place. Policies with weight 0 are unchanged.
    pub fn apply(self, examples: &mut Examples) {
        if self.0 == 1.0 {
            return;
        }
        let (Examples::Positions(TrainingBatch { policies, policy_weights, .. })
        | Examples::Unrolled(UnrolledBatch { policies, policy_weights, .. })) = examples;
        let actions = policies.len() / policy_weights.len().max(1);
        let rows = policies.chunks_exact_mut(actions.max(1)).zip(policy_weights.iter());
        for (policy, _) in rows.filter(|(_, weight)| **weight > 0.0) {
            self.raise(policy);
        }
    }

    /// Raises a policy `[A]` to the power 1 / T and normalises it.
    fn raise(self, policy: &mut [f32]) {
        // Division by the largest share prevents an underflow to 0 for all actions.
        let most = policy.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
        policy.iter_mut().for_each(|share| *share = (*share / most).powf(1.0 / self.0));
        let sum = policy.iter().sum::<f32>().max(f32::MIN_POSITIVE);
        policy.iter_mut().for_each(|share| *share /= sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn at_temperature(temperature: f32) -> TrainingBatch {
        let mut examples = Examples::Positions(batch());
        PolicyTemperature(temperature).apply(&mut examples);
        let Examples::Positions(batch) = examples else { unreachable!("the kind does not change") };
        batch
    }

    #[test]
    fn a_temperature_raises_policies_to_a_power_and_leaves_values() {
        let soft = at_temperature(2.0);
        close(&soft.policies, &[1.0 / 3.0, 2.0 / 3.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(soft.wdl, batch().wdl);
        let sharp = at_temperature(1e-3);
        close(&sharp.policies, &[0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn policies_with_a_weight_are_raised_in_unrolled_batches_too() {
        let policies = vec![0.2, 0.8, 0.2, 0.8];
        let mut examples =
            Examples::Unrolled(UnrolledBatch { policies, policy_weights: vec![1.0, 0.0], ..UnrolledBatch::default() });
        PolicyTemperature(2.0).apply(&mut examples);
        let Examples::Unrolled(batch) = examples else { unreachable!("the kind does not change") };
        close(&batch.policies, &[1.0 / 3.0, 2.0 / 3.0, 0.2, 0.8]);
    }

    #[test]
    fn the_temperature_1_changes_nothing() {
        assert_eq!(at_temperature(1.0), batch());
    }
}
