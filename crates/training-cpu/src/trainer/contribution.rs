use std::time::Instant;

use training::{Contributed, Contribution, Examples, Laps, Trained};

use super::{Computed, Trainer, refused};
use crate::Error;

impl Trainer {
    /// Computes the contribution of a batch to a group's training step, without changing any state; measures the
    /// parts with `clock`.
    ///
    /// # Errors
    /// The same as [`queue`](Self::queue).
    pub fn contribute(
        &mut self,
        examples: &Examples,
        clock: &mut dyn FnMut() -> Instant,
    ) -> Result<Contributed, Error> {
        let mut laps = Laps::new(clock);
        let Computed { losses, value_errors, running, mut times } = self.compute(examples, &mut laps)?;
        let moved = std::mem::replace(&mut self.state.network.statistics, running);
        let contribution = Contribution::new(&self.gradient, &moved, &losses);
        times.backward += laps.lap();
        Ok(Contributed { contribution, value_errors, times })
    }

    /// Returns the contribution of a learner without a batch.
    #[must_use]
    pub fn no_contribution(&self) -> Contribution {
        Contribution::nothing(self.gradient.len(), self.state.network.statistics.len())
    }

    /// Takes the step with the mean contribution over learners: clip, optimiser, average. Trainers with the same
    /// state and path that take the same mean have the same state again, bit for bit.
    ///
    /// # Errors
    /// [`training::Error::NotFinite`] if a loss or the gradient is not finite; the step then changed nothing.
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
