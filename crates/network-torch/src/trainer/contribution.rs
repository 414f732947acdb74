use std::ptr::NonNull;

use collective::{CudaNumbers, Numbers};
use tch::{Device, Kind, Tensor};
use training::{Contributed, Contribution, Examples, LOSSES, Laps, Losses, StepTimes, Trained};

use super::measured::Measured;
use super::{Computed, Pass, Queued, Trainer};
use crate::layers::size;
use crate::{Error, losses, network};

/// A [`Contribution`] in device memory, followed by numbers that are summed along with it.
#[derive(Debug)]
pub struct DeviceContribution {
    /// `[P + S + LOSSES + N]`, contiguous.
    numbers: Tensor,
    parameters: i64,
    statistics: i64,
}

impl DeviceContribution {
    /// Returns all numbers in place, to be reduced.
    pub fn numbers(&mut self) -> Numbers<'_> {
        let len = self.numbers.numel();
        let address = NonNull::new(self.numbers.data_ptr().cast::<f32>()).expect("a network has parameters");
        match self.numbers.device() {
            Device::Cuda(device) => {
                // SAFETY: the tensor is contiguous, of float32 and borrowed; libtorch submits to the default stream.
                Numbers::Cuda(unsafe { CudaNumbers::new(address, len, device) })
            }
            // SAFETY: as above, in host memory.
            _ => Numbers::Host(unsafe { std::slice::from_raw_parts_mut(address.as_ptr(), len) }),
        }
    }

    /// Copies the contribution to the host.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device fails.
    pub fn download(&self) -> Result<Contribution, Error> {
        let len = self.parameters + self.statistics + size(LOSSES);
        let numbers = network::download(&self.numbers.f_narrow(0, 0, len)?)?;
        Ok(Contribution::of_numbers(numbers, self.parameters as usize))
    }

    /// Copies the numbers after the contribution to the host.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device fails.
    pub fn beside(&self) -> Result<Vec<f32>, Error> {
        let start = self.parameters + self.statistics + size(LOSSES);
        network::download(&self.numbers.f_narrow(0, start, size(self.numbers.numel()) - start)?)
    }

    /// Divides the contribution by the number of batches in it.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device fails.
    pub fn divide(&mut self, batches: usize) -> Result<(), Error> {
        let _guard = tch::no_grad_guard();
        let _ = self.numbers.f_divide_scalar_(batches.max(1) as f64)?;
        Ok(())
    }

    fn gradient(&self) -> Result<Tensor, Error> {
        Ok(self.numbers.f_narrow(0, 0, self.parameters)?)
    }

    fn statistics(&self) -> Result<Tensor, Error> {
        Ok(self.numbers.f_narrow(0, self.parameters, self.statistics)?)
    }

    fn losses(&self) -> Result<Losses<Tensor>, Error> {
        losses::unstacked(&self.numbers.f_narrow(0, self.parameters + self.statistics, size(LOSSES))?)
    }
}

impl Trainer {
    /// Computes the contribution of a batch to a group's training step, zeros without a batch. Leaves it on the
    /// device, followed by the numbers `beside`. Changes nothing else. No step may be queued.
    ///
    /// # Errors
    /// The same as [`queue`](training::Trainer::queue).
    pub fn contribute_on_device(
        &mut self,
        examples: Option<&Examples>,
        beside: &[f32],
        laps: &mut Laps<'_>,
    ) -> Result<Contributed<DeviceContribution>, Error> {
        let Some(examples) = examples else {
            let nothing =
                vec![0.0; self.network.flat_parameters.numel() + self.network.flat_statistics.numel() + LOSSES];
            let contribution = self.uploaded(&[&nothing, beside].concat())?;
            return Ok(Contributed { contribution, value_errors: Vec::new(), times: StepTimes::default() });
        };
        self.graphs.refuse("learners of a group sum their gradients between the passes and the update");
        let inputs = self.inputs(examples)?;
        let Computed { pass, statistics, mut times, .. } = self.compute(&inputs, laps)?;
        let joined = self.joined(&pass, beside);
        // The forward pass has updated the running statistics.
        self.restore_statistics(&statistics)?;
        let contribution = joined?;
        let value_errors = pass.losses.value_errors.as_ref().map(network::download).transpose()?.unwrap_or_default();
        times.backward += laps.lap();
        Ok(Contributed { contribution, value_errors, times })
    }

    /// Takes a step like [`apply`](training::Trainer::apply), with the mean on the device.
    ///
    /// # Errors
    /// The same as [`apply`](training::Trainer::apply).
    pub fn apply_on_device(
        &mut self,
        mean: Contributed<DeviceContribution>,
        laps: &mut Laps<'_>,
    ) -> Result<Trained, Error> {
        debug_assert!(self.queued.is_empty(), "a step of several learners is computed from the state of all others");
        let Contributed { contribution, value_errors, mut times } = mean;
        let guard = tch::no_grad_guard();
        let statistics = self.network.flat_statistics.f_detach_copy()?;
        self.restore_statistics(&contribution.statistics()?)?;
        let (losses, gradient) = (contribution.losses()?, contribution.gradient()?);
        let scalars = self.scalars(&losses, &gradient)?;
        let measured = Measured::new(&scalars, scalars.numel(), &mut self.idle)?;
        let learning_rates = network::upload(&self.learning_rates(), self.network.device())?;
        self.choose_average();
        self.keep_if_asked(&gradient)?;
        self.update(gradient, &scalars, &learning_rates, &statistics)?;
        times.optimiser = laps.lap();
        self.queued.push_back(Queued { measured, times });
        drop(guard);
        let trained = self.collect_in_laps(laps).expect("the step was queued")?;
        Ok(Trained { value_errors, ..trained })
    }

    /// Joins a pass and the running statistics after it, in the order of [`Contribution`], and `beside`.
    fn joined(&self, pass: &Pass, beside: &[f32]) -> Result<DeviceContribution, Error> {
        let _guard = tch::no_grad_guard();
        let losses = losses::stacked(&pass.losses.scalars)?.f_to_kind(Kind::Float)?;
        let beside = network::upload(beside, self.network.device())?;
        let parts = [&pass.gradient, &self.network.flat_statistics, &losses, &beside];
        Ok(self.of_tensor(Tensor::f_cat(&parts, 0)?))
    }

    /// Uploads a contribution with these numbers.
    pub(super) fn uploaded(&self, numbers: &[f32]) -> Result<DeviceContribution, Error> {
        Ok(self.of_tensor(network::upload(numbers, self.network.device())?))
    }

    fn of_tensor(&self, numbers: Tensor) -> DeviceContribution {
        let [parameters, statistics] =
            [&self.network.flat_parameters, &self.network.flat_statistics].map(|tensor| size(tensor.numel()));
        DeviceContribution { numbers, parameters, statistics }
    }
}
