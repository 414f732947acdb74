use std::time::Instant;

use tch::Tensor;
use training::{Contributed, Contribution, Examples, Laps, Trained};

use super::measured::Measured;
use super::{Computed, Pass, Queued, Trainer};
use crate::losses::LossTensors;
use crate::{Error, network};

impl Trainer {
    /// Computes what a batch adds to a step of several learners, waits for it, and changes nothing; measures its parts
    /// with `clock`. No step may be queued.
    ///
    /// # Errors
    /// Those of [`queue`](Self::queue).
    pub fn contribute(
        &mut self,
        examples: &Examples,
        clock: &mut dyn FnMut() -> Instant,
    ) -> Result<Contributed, Error> {
        let laps = &mut Laps::new(clock);
        let Computed { pass, statistics, mut times, .. } = self.compute(examples, laps)?;
        let contributed = self.read(&pass);
        // The forward pass has updated the running statistics.
        self.restore_statistics(&statistics)?;
        let (contribution, value_errors) = contributed?;
        times.backward += laps.lap();
        Ok(Contributed { contribution, value_errors, times })
    }

    /// Returns the contribution of a learner without a batch.
    #[must_use]
    pub fn no_contribution(&self) -> Contribution {
        Contribution::nothing(self.network.flat_parameters.numel(), self.network.flat_statistics.numel())
    }

    /// Takes the step whose contribution is the mean over learners: clip, optimiser, average. Trainers of the same
    /// state that take the same mean on devices of the same kind have the same state again, bit for bit. No step may be
    /// queued.
    ///
    /// # Errors
    /// [`training::Error::NotFinite`] if a loss or the gradient is not finite: the step then changed nothing.
    /// [`Error::Libtorch`] if the device fails.
    pub fn apply(&mut self, mean: Contributed, clock: &mut dyn FnMut() -> Instant) -> Result<Trained, Error> {
        debug_assert!(self.queued.is_empty(), "a step of several learners is computed from the state of all others");
        let laps = &mut Laps::new(clock);
        let Contributed { contribution, value_errors, mut times } = mean;
        let guard = tch::no_grad_guard();
        let device = self.network.device();
        let statistics = self.network.flat_statistics.f_detach_copy()?;
        self.restore_statistics(&network::upload(contribution.statistics(), device)?)?;
        let gradient = network::upload(contribution.gradient(), device)?;
        let pass = Pass { losses: self.upload_losses(&contribution)?, gradient };
        let scalars = self.scalars(&pass)?;
        let measured = Measured::new(&scalars, None)?;
        let learning_rates = network::upload(&self.learning_rates(), device)?;
        let is_applied = self.update(pass.gradient, &scalars, &learning_rates, &statistics)?;
        times.optimiser = laps.lap();
        self.queued.push_back(Queued { measured, is_applied, times });
        drop(guard);
        let trained = self.collect_in_laps(laps).expect("the step was queued")?;
        Ok(Trained { value_errors, ..trained })
    }

    /// Copies a pass to the host.
    fn read(&self, pass: &Pass) -> Result<(Contribution, Vec<f32>), Error> {
        let _guard = tch::no_grad_guard();
        let measured = Measured::new(&self.scalars(pass)?, pass.losses.value_errors.as_ref())?;
        let (losses, value_errors) = measured.read(self.settings.weight_decay)?;
        let gradient = network::download(&pass.gradient)?;
        let statistics = network::download(&self.network.flat_statistics)?;
        Ok((Contribution::new(&gradient, &statistics, &losses), value_errors))
    }

    /// The losses of a mean on the device.
    fn upload_losses(&self, mean: &Contribution) -> Result<LossTensors, Error> {
        let losses = mean.losses();
        let numbers = [
            losses.total,
            losses.policy,
            losses.value,
            losses.reward,
            losses.consistency,
            losses.chance,
            losses.policy_entropy,
            losses.value_accuracy,
        ];
        let numbers = network::upload(&numbers.map(|loss| loss as f32), self.network.device())?;
        let scalar = |index: i64| -> Result<Tensor, Error> { Ok(numbers.f_select(0, index)?) };
        Ok(LossTensors {
            total: scalar(0)?,
            policy: scalar(1)?,
            value: scalar(2)?,
            reward: scalar(3)?,
            consistency: scalar(4)?,
            chance: scalar(5)?,
            policy_entropy: scalar(6)?,
            value_accuracy: scalar(7)?,
            value_errors: None,
        })
    }
}
