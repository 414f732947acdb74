use experience::Sample;

/// Returns the importance weight of each sample: `(1 / (N·p))^exponent`, divided by the largest weight in the batch. N
/// is the number of items in the table, p the sampling probability of the item.
#[must_use]
pub fn importance(samples: &[Sample], exponent: f64) -> Vec<f32> {
    let weight = |sample: &Sample| {
        let expected = sample.probability * sample.table_items as f64;
        // A sample with probability 0 is impossible. Without this check, a non-finite weight would corrupt the batch.
        if expected > 0.0 { expected.powf(-exponent) } else { 1.0 }
    };
    let weights: Vec<f64> = samples.iter().map(weight).collect();
    let greatest = weights.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    weights.into_iter().map(|weight| ((weight / greatest) as f32).max(f32::MIN_POSITIVE)).collect()
}

#[cfg(test)]
mod tests {
    use experience::{Step, StepKind, Trajectory, TrajectoryId, WeightsVersion};
    use game::{Action, Outcome};

    use super::*;

    fn sample(probability: f64, table_items: u64) -> Sample {
        let trajectory = TrajectoryId { actor: 1, epoch: 1, sequence: 0 };
        let step = Step { action: Action(0), reward: 0.0, kind: StepKind::Opening, weights_version: WeightsVersion(1) };
        let segment = Trajectory::of(trajectory, "any", &[step], Outcome::Draw).unwrap().segment(0, 0).unwrap();
        Sample { segment, probability, table_items }
    }

    #[test]
    fn a_sample_with_twice_the_probability_has_half_the_importance() {
        let samples = [sample(0.01, 50), sample(0.02, 50), sample(0.04, 50)];
        assert_eq!(importance(&samples, 1.0), [1.0, 0.5, 0.25]);
        let half = importance(&samples, 0.5);
        assert!((half[2] - 0.5).abs() < 1e-6, "{half:?}");
        assert_eq!(importance(&samples, 0.0), [1.0, 1.0, 1.0]);
    }

    #[test]
    fn uniform_draws_all_count_alike() {
        assert_eq!(importance(&[sample(0.1, 10), sample(0.1, 10)], 1.0), [1.0, 1.0]);
        assert_eq!(importance(&[], 1.0), [0.0; 0]);
    }

    #[test]
    fn a_probability_of_zero_yields_importances_above_zero_and_at_most_one() {
        let weights = importance(&[sample(0.0, 10), sample(0.1, 10)], 1.0);
        assert!(weights.iter().all(|weight| *weight > 0.0 && *weight <= 1.0), "{weights:?}");
    }
}
