use std::time::Instant;

use training::{Contributed, Contribution, Examples, Laps, StepTimes, Trained};

use super::{Trainer, refused};
use crate::Error;
use crate::losses::LossWeights;

impl Trainer {
    /// Computes what a batch adds to a step of several learners, and changes nothing; measures its parts with `clock`.
    ///
    /// # Errors
    /// Those of [`queue`](Self::queue).
    pub fn contribute(
        &mut self,
        examples: &Examples,
        clock: &mut dyn FnMut() -> Instant,
    ) -> Result<Contributed, Error> {
        let positions = self.model.positions(examples)?;
        let mut laps = Laps::new(clock);
        let mut times = StepTimes::default();
        let running = self.state.network.statistics.clone();
        self.model.graph(examples).pack(&self.state.network.parameters, &mut self.workshop.threads);
        self.gradient.fill(0.0);
        times.stage = laps.lap();

        let mut value_errors = vec![0.0; positions];
        let sums = self.passes(examples, &mut value_errors, &mut laps, &mut times);
        let losses = sums.losses(LossWeights::of(&self.settings));
        let moved = std::mem::replace(&mut self.state.network.statistics, running);
        let contribution = Contribution::new(&self.gradient, &moved, &losses);
        value_errors.truncate(examples.importance().len());
        times.backward += laps.lap();
        Ok(Contributed { contribution, value_errors, times })
    }

    /// Returns the contribution of a learner without a batch.
    #[must_use]
    pub fn no_contribution(&self) -> Contribution {
        Contribution::nothing(self.gradient.len(), self.state.network.statistics.len())
    }

    /// Takes the step whose contribution is the mean over learners: clip, optimiser, average. Trainers of the same
    /// state that take the same mean have the same state again, bit for bit, with the same path.
    ///
    /// # Errors
    /// [`training::Error::NotFinite`] if a loss or the gradient is not finite: the step then changed nothing.
    pub fn apply(&mut self, mean: Contributed, clock: &mut dyn FnMut() -> Instant) -> Result<Trained, Error> {
        debug_assert!(self.queued.is_empty(), "a step of several learners is computed from the state of all others");
        let mut laps = Laps::new(clock);
        let Contributed { contribution, value_errors, mut times } = mean;
        self.gradient.copy_from_slice(contribution.gradient());
        let losses = self.with_norms(contribution.losses());
        if let Some(quantity) = refused(&losses) {
            return Err(training::Error::NotFinite { quantity, step: self.collected + 1 }.into());
        }
        self.state.network.statistics.copy_from_slice(contribution.statistics());
        self.update(losses.gradient_norm);
        self.collected += 1;
        times.optimiser = laps.lap();
        Ok(Trained { losses, value_errors, times })
    }
}

#[cfg(test)]
mod tests;
