use crate::{Losses, StepTimes};

/// Losses in a [`Contribution`]: total, policy, value, reward, consistency, chance, policy entropy, value accuracy.
pub const LOSSES: usize = 8;

/// Share of one learner in a group's training step: the batch gradient `[P]`, the running statistics after
/// the batch `[S]`, and the losses. All of them are one float32 vector, so that one sum over the learners reduces
/// everything.
///
/// The mean over k learners with batches of B has the same gradient as k micro-batches of B in a batch of k · B, each
/// with separate batch-norm statistics, as far as the losses are means with equal weights: a learner averages over
/// the policy weights of the local batch only. Running statistics are averaged over the learners, which all update
/// the same start values. Whether a step is clipped or refused follows from the mean alone, so that all learners
/// decide alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Contribution {
    /// `[P + S + LOSSES]`.
    numbers: Vec<f32>,
    parameters: usize,
}

/// A contribution in host or device memory, with the batch results that stay on the learner.
#[derive(Debug, Clone, PartialEq)]
pub struct Contributed<C = Contribution> {
    /// The contribution of the batch; the mean over learners once reduced.
    pub contribution: C,
    /// Distance of each row's value from the target, as in [`Trained`](crate::Trained).
    pub value_errors: Vec<f32>,
    /// Durations up to here.
    pub times: StepTimes,
}

impl Contribution {
    /// Concatenates a gradient `[P]`, running statistics `[S]` and losses. The gradient norm and the L2 term are left
    /// out: neither is a mean over learners.
    #[must_use]
    pub fn new(gradient: &[f32], statistics: &[f32], losses: &Losses) -> Self {
        let &Losses { total, policy, value, reward, consistency, chance, policy_entropy, value_accuracy, .. } = losses;
        let losses: [f64; LOSSES] = [total, policy, value, reward, consistency, chance, policy_entropy, value_accuracy];
        let losses = losses.map(|loss| loss as f32);
        Self { numbers: [gradient, statistics, &losses].concat(), parameters: gradient.len() }
    }

    /// Wraps a reduced or received vector: gradient, running statistics, losses.
    ///
    /// # Panics
    /// If `numbers` is shorter than the gradient and the losses.
    #[must_use]
    pub fn of_numbers(numbers: Vec<f32>, parameters: usize) -> Self {
        assert!(numbers.len() >= parameters + LOSSES, "a contribution holds a gradient and losses");
        Self { numbers, parameters }
    }

    /// Returns the contribution of no batch, all zeros, for P parameters and S running statistics.
    #[must_use]
    pub fn nothing(parameters: usize, statistics: usize) -> Self {
        Self { numbers: vec![0.0; parameters + statistics + LOSSES], parameters }
    }

    /// Returns the whole vector `[P + S + LOSSES]`, to be reduced.
    #[must_use]
    pub fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    /// Overwrites the vector with `sum / batches`.
    ///
    /// # Panics
    /// If `sum` has another length.
    pub fn set_mean(&mut self, sum: &[f32], batches: usize) {
        assert_eq!(sum.len(), self.numbers.len(), "learners of one network have contributions of one length");
        let count = batches.max(1) as f32;
        self.numbers.iter_mut().zip(sum).for_each(|(mean, sum)| *mean = sum / count);
    }

    /// Returns the gradient, `[P]`.
    #[must_use]
    pub fn gradient(&self) -> &[f32] {
        &self.numbers[..self.parameters]
    }

    /// Returns the running statistics, `[S]`.
    #[must_use]
    pub fn statistics(&self) -> &[f32] {
        &self.numbers[self.parameters..self.numbers.len() - LOSSES]
    }

    /// Returns the losses; gradient norm and L2 term are 0.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let losses: [f32; LOSSES] = self.numbers[self.numbers.len() - LOSSES..].try_into().expect("it ends with them");
        let [total, policy, value, reward, consistency, chance, policy_entropy, value_accuracy] = losses.map(f64::from);
        Losses {
            total,
            policy,
            value,
            reward,
            consistency,
            chance,
            l2: 0.0,
            gradient_norm: 0.0,
            policy_entropy,
            value_accuracy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_contributions_is_that_of_each_of_their_parts() {
        let losses = |factor: f64| Losses {
            total: 8.0 * factor,
            policy: 7.0 * factor,
            value: 6.0 * factor,
            reward: 5.0 * factor,
            consistency: 4.0 * factor,
            chance: 3.0 * factor,
            l2: 0.0,
            gradient_norm: 0.0,
            policy_entropy: 2.0 * factor,
            value_accuracy: factor,
        };
        let mut one = Contribution::new(&[1.0, -2.0, 3.0], &[4.0, 5.0], &losses(1.0));
        let other = Contribution::new(&[3.0, 2.0, 3.0], &[0.0, 7.0], &losses(3.0));
        let nothing = Contribution::nothing(3, 2);
        let sum: Vec<f32> =
            (0..one.numbers.len()).map(|i| one.numbers[i] + other.numbers[i] + nothing.numbers[i]).collect();
        let same = Contribution::of_numbers(one.numbers.clone(), 3);
        assert_eq!(same, one);
        one.set_mean(&sum, 2);
        assert_eq!(one, Contribution::new(&[2.0, 0.0, 3.0], &[2.0, 6.0], &losses(2.0)));
        assert_eq!(
            (one.gradient(), one.statistics(), one.losses()),
            (&[2.0, 0.0, 3.0][..], &[2.0, 6.0][..], losses(2.0))
        );
    }
}
