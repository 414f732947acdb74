use crate::{LOSSES, Losses, StepTimes};

/// A learner's share of a group's training step: the gradient of the batch `[P]`, the running statistics after the
/// batch `[S]`, and the losses. All values form one float32 vector, so that a single sum over the learners is
/// sufficient.
///
/// The mean over k learners with B positions each has the same gradient as a batch of k · B positions in k
/// micro-batches, each with separate batch norm statistics, if losses are means with equal weights: a learner averages
/// only over the policy weights of the local batch. Running statistics are averaged over the learners, which all start
/// from the same values. Only the mean decides whether a step is clipped or rejected, so all learners decide equally.
#[derive(Debug, Clone, PartialEq)]
pub struct Contribution {
    /// Gradient, running statistics and losses, `[P + S + LOSSES]`.
    numbers: Vec<f32>,
    parameters: usize,
}

/// A contribution in host or device memory, with results of the batch that are not shared.
#[derive(Debug, Clone, PartialEq)]
pub struct Contributed<C = Contribution> {
    /// Contribution of the batch; after the sum over the group, the mean over all learners.
    pub contribution: C,
    /// Distance of each row's value from the target, as in [`Trained`](crate::Trained).
    pub value_errors: Vec<f32>,
    /// Durations of the completed parts of the step.
    pub times: StepTimes,
}

impl Contribution {
    /// Concatenates a gradient `[P]`, running statistics `[S]` and losses. Gradient norm and L2 term are 0, because
    /// neither is a mean over learners.
    #[must_use]
    pub fn new(gradient: &[f32], statistics: &[f32], losses: &Losses) -> Self {
        let losses = losses.into_array().map(|loss| loss as f32);
        Self { numbers: [gradient, statistics, &losses].concat(), parameters: gradient.len() }
    }

    /// Wraps a summed or received vector of gradient, running statistics and losses, with `parameters` gradient values.
    ///
    /// # Panics
    /// If `numbers` is shorter than gradient and losses together.
    #[must_use]
    pub fn of_numbers(numbers: Vec<f32>, parameters: usize) -> Self {
        assert!(numbers.len() >= parameters + LOSSES, "a contribution contains a gradient and losses");
        Self { numbers, parameters }
    }

    /// Returns the contribution without a batch: zeros, for P parameters and S running statistics.
    #[must_use]
    pub fn nothing(parameters: usize, statistics: usize) -> Self {
        Self { numbers: vec![0.0; parameters + statistics + LOSSES], parameters }
    }

    /// Returns the complete vector `[P + S + LOSSES]`, to be summed over the learners.
    #[must_use]
    pub fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    /// Replaces the vector by `sum / batches`, the mean over the batches of the group.
    ///
    /// # Panics
    /// If the length of `sum` differs from the length of the vector.
    pub fn set_mean(&mut self, sum: &[f32], batches: usize) {
        assert_eq!(sum.len(), self.numbers.len(), "all learners have contributions of equal length");
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

    /// Returns the losses, without gradient norm and L2 term.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let losses: [f32; LOSSES] = self.numbers[self.numbers.len() - LOSSES..].try_into().expect("it ends with them");
        Losses::from_array(losses.map(f64::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_contributions_is_that_of_each_of_their_parts() {
        let losses = |factor: f64| Losses { total: 8.0 * factor, chance: factor, ..Losses::ZERO };
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
