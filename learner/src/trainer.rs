//! The trait [`Trainer`]: a backend that takes training steps, one queued ahead of the other, and copies its state.
//!
//! Everything else of the learner depends on the backend through this file alone, except the choice of the
//! [`Backend`](crate::backend::Backend), which makes the trainer. A backend stays on the thread that made it; its
//! [`Snapshot`]s are read by another one. [`training_cpu::Trainer`] is the backend of the kernels of the CPU; with
//! the feature `torch` there is that of libtorch, too.

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

/// The files of a checkpoint by name.
pub(crate) type Files = Vec<(String, Vec<u8>)>;

/// Trains one network: its weights, their average, the optimiser, the position in the schedule.
///
/// The contract: results are collected in the order in which steps were queued; a step that is not finite changes
/// nothing, not even for a step that was queued after it; a restored trainer goes on as if it had not stopped; trainers
/// of the same state that apply the same mean have the same state again.
pub(crate) trait Trainer {
    /// Adds another board of the game, whose batches have the returned index.
    ///
    /// # Errors
    /// An architecture that is not that of the network on another board, or on one that is there already, and a network
    /// with a tensor that depends on the board; nothing is added then.
    fn add_board(&mut self, architecture: &Architecture) -> anyhow::Result<usize>;

    /// Gives a training step to the device, and measures its parts with `clock`.
    ///
    /// # Errors
    /// A batch that does not fit the network on its board, or is of none; a device that fails. Nothing is queued then.
    fn queue(&mut self, examples: &Examples, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<()>;

    /// Queues a step as [`queue`](Self::queue) does that computes nothing and changes no weights.
    ///
    /// # Errors
    /// Those of [`queue`](Self::queue).
    fn queue_nothing(&mut self, examples: &Examples, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<()>;

    /// Waits for the oldest queued step and returns its results.
    ///
    /// # Errors
    /// No step is queued; the device fails.
    fn collect(&mut self, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<Collected>;

    /// Computes what a batch adds to a step of several learners, and changes nothing. No step may be queued.
    ///
    /// # Errors
    /// Those of [`queue`](Self::queue).
    fn contribute(&mut self, examples: &Examples, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<Contributed>;

    /// Returns the contribution of a learner without a batch.
    fn no_contribution(&self) -> Contribution;

    /// Takes the step whose contribution is the mean over learners. No step may be queued.
    ///
    /// # Errors
    /// The device fails.
    fn apply(&mut self, mean: Contributed, clock: &mut dyn FnMut() -> Instant) -> anyhow::Result<Collected>;

    /// As [`contribute`](Self::contribute), without a batch as [`no_contribution`](Self::no_contribution), but leaves
    /// the contribution in the memory of its device, followed by the numbers `beside`.
    ///
    /// # Errors
    /// Those of [`queue`](Self::queue); this backend computes on the host.
    fn contribute_on_device(
        &mut self,
        _examples: Option<&Examples>,
        _beside: &[f32],
        _clock: &mut dyn FnMut() -> Instant,
    ) -> anyhow::Result<Contributed<DeviceContribution>> {
        anyhow::bail!("this backend of training computes on the host")
    }

    /// As [`apply`](Self::apply), for a mean in the memory of the device.
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

    /// Returns the memory of steps of `batch` positions, unrolled over `unroll_steps` steps, before one is taken.
    fn memory(&mut self, batch: usize, unroll_steps: usize) -> Memory;

    /// Returns the number of steps to leave queued, so that the device always has work.
    fn queue_depth(&self) -> usize;

    /// Returns the number of micro-batches of the newest step.
    fn micro_batches(&self) -> usize;

    /// Sets the position in the schedule of the learning rate: 0 at the start, 1 at the end.
    fn set_progress(&mut self, progress: f64);

    /// Returns the number of applied steps that were collected.
    fn step_count(&self) -> u64;

    /// Returns the learning rate of the next step.
    fn learning_rate(&self) -> f64;

    /// Returns the scale of the loss of the newest collected step; `None` before it, and in a precision without one.
    fn loss_scale(&self) -> Option<f64>;

    /// Returns the layers that went back to float32, each with the relative error of its gradient that was too large.
    fn float32_layers(&self) -> &BTreeMap<String, f64>;

    /// Has the next queued step keep its gradient.
    fn keep_gradient(&mut self);

    /// Takes the gradient that a step kept, before clipping, `[P]` in the order of the layout; `None` if none was.
    ///
    /// # Errors
    /// The device cannot be read.
    fn take_gradient(&mut self) -> anyhow::Result<Option<Vec<f32>>>;

    /// Copies the state. Queued steps must be collected before.
    ///
    /// # Errors
    /// Too little memory for the copy, a device that fails.
    fn snapshot(&self, contents: Contents) -> anyhow::Result<Box<dyn Snapshot>>;

    /// Goes back to the state of a checkpoint; queued steps are dropped.
    ///
    /// # Errors
    /// Missing files, and files that do not fit the network; the trainer is then unchanged.
    fn load(&mut self, files: &[(String, Vec<u8>)]) -> anyhow::Result<()>;

    /// Returns the devices of the kinds of tensors.
    fn placement(&self) -> Vec<Placed>;
}

/// The results of a queued step.
#[derive(Debug)]
pub(crate) enum Collected {
    /// The step was applied.
    Trained(Trained),
    /// The step changed nothing.
    NotFinite {
        /// The quantity that was not finite, in words.
        quantity: &'static str,
    },
    /// The step changed nothing but the scale of the loss, which was too large for its gradient.
    #[cfg_attr(not(any(test, feature = "torch")), expect(dead_code, reason = "kernels of the CPU scale no loss"))]
    Skipped {
        /// The scale of its loss.
        loss_scale: f64,
    },
}

/// A copy of a trainer's state at one step.
pub(crate) trait Snapshot: Send + std::fmt::Debug {
    /// Returns the averaged weights as actors load them.
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

/// The device on which tensors of one kind are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed {
    /// The kind of tensors: `parameters`, `batch`.
    pub(crate) what: &'static str,
    /// The name of the device: `cpu`, `cuda:1`.
    pub(crate) device: String,
}

/// The results of a step of the kernels.
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
        // A step is computed when it is queued.
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
        // No path has products of float16.
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
