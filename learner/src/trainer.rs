//! The [`Trainer`]s of the learner: backends of [`training::Trainer`] that can also train in a group.
//!
//! The rest of the learner accesses the backend only through this file, except for the choice of the
//! [`Backend`](crate::backend::Backend), which creates the trainer. A backend stays on the thread that created it;
//! other threads read the [`Snapshot`](training::Snapshot)s. [`training_cpu::Trainer`] is the backend with CPU kernels.
//! The feature `torch` adds the libtorch backend.

#[cfg(test)]
pub(crate) mod conformance;
#[cfg(test)]
pub(crate) mod counting;
#[cfg(test)]
#[cfg(feature = "torch")]
mod exchange;
#[cfg(not(feature = "torch"))]
mod no_device;

#[cfg(feature = "torch")]
pub(crate) use network_torch::DeviceContribution;
use training::{Contributed, Error, Examples, Laps, Trained};

#[cfg(not(feature = "torch"))]
pub(crate) use self::no_device::DeviceContribution;

const ON_HOST: &str = "this backend of training computes on the host";

/// A trainer of one network that can also join a group with sums in device memory.
pub(crate) trait Trainer: training::Trainer {
    /// Computes a contribution to a group's training step, and leaves it in device memory, followed by the values
    /// `beside`. Without examples, the contribution is from an empty batch. The step queue must be empty.
    ///
    /// # Errors
    /// The same as [`queue`](training::Trainer::queue). Always fails for backends that compute on the host.
    fn contribute_on_device(
        &mut self,
        _examples: Option<&Examples>,
        _beside: &[f32],
        _laps: &mut Laps<'_>,
    ) -> Result<Contributed<DeviceContribution>, Error> {
        Err(Error::Backend(ON_HOST.into()))
    }

    /// Updates the weights like [`apply`](training::Trainer::apply), with the mean contribution in device memory.
    ///
    /// # Errors
    /// The same as [`apply`](training::Trainer::apply). Always fails for backends that compute on the host.
    fn apply_on_device(
        &mut self,
        _mean: Contributed<DeviceContribution>,
        _laps: &mut Laps<'_>,
    ) -> Result<Trained, Error> {
        Err(Error::Backend(ON_HOST.into()))
    }
}

impl Trainer for training_cpu::Trainer {}

#[cfg(feature = "torch")]
impl Trainer for network_torch::Trainer {
    fn contribute_on_device(
        &mut self,
        examples: Option<&Examples>,
        beside: &[f32],
        laps: &mut Laps<'_>,
    ) -> Result<Contributed<DeviceContribution>, Error> {
        Ok(Self::contribute_on_device(self, examples, beside, laps)?)
    }

    fn apply_on_device(
        &mut self,
        mean: Contributed<DeviceContribution>,
        laps: &mut Laps<'_>,
    ) -> Result<Trained, Error> {
        Ok(Self::apply_on_device(self, mean, laps)?)
    }
}
