//! The trait [`Trainer`]: a backend that takes training steps, with steps queued in advance, and copies the state.
//!
//! The rest of the learner depends on the backend through this file alone, except for the choice of the
//! [`Backend`](crate::backend::Backend), which makes the trainer. A backend stays on the thread that made it; another
//! thread reads the [`Snapshot`]s. [`training_cpu::Trainer`] is the backend with CPU kernels; the feature `torch`
//! adds the libtorch backend.

#[cfg(test)]
pub(crate) mod conformance;
#[cfg(test)]
pub(crate) mod counting;
#[cfg(test)]
#[cfg(feature = "torch")]
mod exchange;
#[cfg(feature = "torch")]
mod libtorch;
#[cfg(not(feature = "torch"))]
mod no_device;

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Context as _;
#[cfg(feature = "torch")]
pub(crate) use network_torch::DeviceContribution;
pub(crate) use training::{Contents, Contributed, Contribution, Examples, Memory, StepTimes, Trained};
use weights::Architecture;

#[cfg(not(feature = "torch"))]
pub(crate) use self::no_device::DeviceContribution;

/// Files of a checkpoint, by name.
pub(crate) type Files = Vec<(String, Vec<u8>)>;

/// Trains one network: the weights, the weight average, the optimiser, and the position in the schedule.
///
/// The contract: results are collected in queue order; a non-finite step changes nothing, not even for a step queued
/// later; a restored trainer continues as if it had not stopped; trainers with equal states that apply the same mean
/// have equal states again.
pub(crate) trait Trainer {
    /// Adds another board of the game; returns the index of the board in batches.
    ///
    /// # Errors
    /// The architecture differs in more than the board, the board is already present, or a tensor of the network
    /// depends on the board; nothing is added then.
    fn add_board(&mut self, architecture: &Architecture) -> anyhow::Result<usize>;

    /// Queues a training step on the device, and measures the parts with `clock`.
    ///
    /// # Errors
    /// The batch does not fit the network on the batch's board, the board is unknown, or the device fails. Nothing is
    /// queued then.
    fn queue(&mut self, examples: &Examples, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<()>;

    /// Queues a step as [`queue`](Self::queue) does, without computation or a change of weights.
    ///
    /// # Errors
    /// The errors of [`queue`](Self::queue).
    fn queue_nothing(&mut self, examples: &Examples, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<()>;

    /// Waits for the oldest queued step and returns the results.
    ///
    /// # Errors
    /// No step is queued; the device fails.
    fn collect(&mut self, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<Collected>;

    /// Computes the contribution of a batch to a step of several learners, and changes nothing. No step may be
    /// queued.
    ///
    /// # Errors
    /// The errors of [`queue`](Self::queue).
    fn contribute(&mut self, examples: &Examples, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<Contributed>;

    /// Returns the contribution of a learner without a batch.
    fn no_contribution(&self) -> Contribution;

    /// Takes the step for `mean`, the mean contribution over learners. No step may be queued.
    ///
    /// # Errors
    /// The device fails.
    fn apply(&mut self, mean: Contributed, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<Collected>;

    /// Computes a contribution like [`contribute`](Self::contribute), or without a batch like
    /// [`no_contribution`](Self::no_contribution), but leaves it in device memory, followed by the values `beside`.
    ///
    /// # Errors
    /// The errors of [`queue`](Self::queue); this backend computes on the host.
    fn contribute_on_device(
        &mut self,
        _examples: Option<&Examples>,
        _beside: &[f32],
        _clock: &mut dyn FnMut() -> Instant,
    ) -> anyhow::Result<Contributed<DeviceContribution>> {
        anyhow::bail!("this backend of training computes on the host")
    }

    /// Takes the step like [`apply`](Self::apply), for a mean in device memory.
    ///
    /// # Errors
    /// The device fails; this backend computes on the host.
    fn apply_on_device(
        &mut self,
        _mean: Contributed<DeviceContribution>,
        _clock: &mut dyn FnMut() -> Instant,
    ) -> anyhow::Result<Collected> {
        anyhow::bail!("this backend of training computes on the host")
    }

    /// Returns the memory for steps of `batch` positions, unrolled over `unroll_steps` steps, before any step.
    fn memory(&mut self, batch: usize, unroll_steps: usize) -> Memory;

    /// Returns the number of steps to keep queued, so that the device always has work.
    fn queue_depth(&self) -> usize;

    /// Returns the number of micro-batches in the latest step.
    fn micro_batches(&self) -> usize;

    /// Sets the position in the learning rate schedule: 0 at the start, 1 at the end.
    fn set_progress(&mut self, progress: f64);

    /// Returns the number of applied and collected steps.
    fn step_count(&self) -> u64;

    /// Returns the learning rate of the next step.
    fn learning_rate(&self) -> f64;

    /// Returns the loss scale of the latest collected step; `None` before the first, and in a precision without loss
    /// scaling.
    fn loss_scale(&self) -> Option<f64>;

    /// Returns the layers that returned to float32, each with the excessive relative error of the gradient.
    fn float32_layers(&self) -> &BTreeMap<String, f64>;

    /// Makes the next queued step keep the gradient.
    fn keep_gradient(&mut self);

    /// Takes the gradient kept by a step, before clipping, `[P]` in layout order; `None` if there is none.
    ///
    /// # Errors
    /// The device cannot be read.
    fn take_gradient(&mut self) -> anyhow::Result<Option<Vec<f32>>>;

    /// Copies the state. Queued steps must be collected first.
    ///
    /// # Errors
    /// There is too little memory for the copy, or the device fails.
    fn snapshot(&self, contents: Contents) -> anyhow::Result<Box<dyn Snapshot>>;

    /// Restores the state of a checkpoint; queued steps are dropped.
    ///
    /// # Errors
    /// Files are missing or do not fit the network; the trainer is then unchanged.
    fn load(&mut self, files: &[(String, Vec<u8>)]) -> anyhow::Result<()>;

    /// Returns the devices of all kinds of tensors.
    fn placement(&self) -> Vec<Placed>;
}

/// The results of a queued step.
#[derive(Debug)]
pub(crate) enum Collected {
    /// The step was applied.
    Trained(Trained),
    /// The step changed nothing.
    NotFinite {
        /// Name of the non-finite quantity.
        quantity: &'static str,
    },
    /// The step changed nothing but the loss scale, which was too large for the gradient.
    #[cfg_attr(not(any(test, feature = "torch")), expect(dead_code, reason = "kernels of the CPU scale no loss"))]
    Skipped {
        /// Loss scale of the skipped step.
        loss_scale: f64,
    },
}

/// A copy of the trainer's state at one step.
pub(crate) trait Snapshot: Send + std::fmt::Debug {
    /// Returns the averaged weights in the format for actors.
    ///
    /// # Errors
    /// The device cannot be read.
    fn published(&self) -> anyhow::Result<Vec<u8>>;

    /// Returns the files of a checkpoint.
    ///
    /// # Errors
    /// The device cannot be read.
    fn files(&self) -> anyhow::Result<Files>;
}

/// The device of one kind of tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Kind of tensors: `parameters`, `batch`.
    pub(crate) what: &'static str,
    /// Name of the device: `cpu`, `cuda:1`.
    pub(crate) device: String,
}

/// Converts the result of a kernel step.
fn collected(trained: Result<Trained, training_cpu::Error>) -> anyhow::Result<Collected> {
    match trained {
        Ok(trained) => Ok(Collected::Trained(trained)),
        Err(training_cpu::Error::Training(training::Error::NotFinite { quantity, .. })) => {
            Ok(Collected::NotFinite { quantity })
        }
        Err(error) => Err(error.into()),
    }
}

impl Trainer for training_cpu::Trainer {
    fn add_board(&mut self, architecture: &Architecture) -> anyhow::Result<usize> {
        Ok(Self::add_board(self, architecture)?)
    }

    fn queue(&mut self, examples: &Examples, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<()> {
        Ok(Self::queue(self, examples, clock)?)
    }

    fn queue_nothing(&mut self, examples: &Examples, _clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<()> {
        Ok(Self::queue_nothing(self, examples)?)
    }

    fn collect(&mut self, _clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<Collected> {
        collected(Self::collect(self).context("no step is queued")?)
    }

    fn contribute(&mut self, examples: &Examples, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<Contributed> {
        Ok(Self::contribute(self, examples, clock)?)
    }

    fn no_contribution(&self) -> Contribution {
        Self::no_contribution(self)
    }

    fn apply(&mut self, mean: Contributed, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<Collected> {
        collected(Self::apply(self, mean, clock))
    }

    fn memory(&mut self, batch: usize, unroll_steps: usize) -> Memory {
        Self::memory(self, batch, unroll_steps)
    }

    fn queue_depth(&self) -> usize {
        // Queuing computes the step.
        0
    }

    fn micro_batches(&self) -> usize {
        Self::micro_batches(self)
    }

    fn set_progress(&mut self, progress: f64) {
        Self::set_progress(self, progress);
    }

    fn step_count(&self) -> u64 {
        Self::step_count(self)
    }

    fn learning_rate(&self) -> f64 {
        Self::learning_rate(self)
    }

    fn loss_scale(&self) -> Option<f64> {
        // No path multiplies in float16.
        None
    }

    fn float32_layers(&self) -> &BTreeMap<String, f64> {
        Self::float32_layers(self)
    }

    fn keep_gradient(&mut self) {
        Self::keep_gradient(self);
    }

    fn take_gradient(&mut self) -> anyhow::Result<Option<Vec<f32>>> {
        Ok(Self::take_gradient(self))
    }

    fn snapshot(&self, contents: Contents) -> anyhow::Result<Box<dyn Snapshot>> {
        Ok(Box::new(Self::snapshot(self, contents)))
    }

    fn load(&mut self, files: &[(String, Vec<u8>)]) -> anyhow::Result<()> {
        Ok(Self::load(self, files)?)
    }

    fn placement(&self) -> Vec<Placed> {
        ["parameters", "average", "moments", "batch"].map(|what| Placed { what, device: "cpu".to_owned() }).into()
    }
}

impl Snapshot for training_cpu::Snapshot {
    fn published(&self) -> anyhow::Result<Vec<u8>> {
        Ok(Self::published(self)?)
    }

    fn files(&self) -> anyhow::Result<Files> {
        Ok(Self::files(self)?)
    }
}
