use std::collections::BTreeMap;

use weights::Architecture;

use crate::checkpoint::Files;
use crate::{Contents, Contributed, Contribution, Error, Examples, Laps, Losses, Memory, Trained};

/// A trainer of one network: the weights, the weight average, the optimiser state, and the schedule progress.
///
/// [`queue`](Self::queue) submits a training step, and [`collect`](Self::collect) returns the results in the same
/// order. A step with a non-finite loss or gradient changes nothing, even for steps that were queued later. A restored
/// trainer continues as if it had not stopped. Trainers with equal states that apply the same mean have equal states
/// afterwards. Steps use no random numbers.
pub trait Trainer {
    /// Adds another board of the network's game, and returns the board index for batches.
    ///
    /// All boards share weights, average, optimiser state and running statistics; batches on every board update them.
    ///
    /// # Errors
    /// The same as [`Boards::add`](crate::Boards::add). Nothing is added in case of an error.
    fn add_board(&mut self, architecture: &Architecture) -> Result<usize, Error>;

    /// Submits a training step: forward, backward, clipping, optimiser update, average. Measures the parts with `laps`.
    /// On an accelerator, the call does not wait for the device.
    ///
    /// # Errors
    /// [`Error::Batch`] or [`Error::Network`] if the examples do not match the network on the batch's board;
    /// [`Error::BoardIndex`] if the trainer does not have this board; [`Error::DeviceLost`] if the device fails.
    /// Nothing is queued in these cases.
    fn queue(&mut self, examples: &Examples, laps: &mut Laps<'_>) -> Result<(), Error>;

    /// Queues a step like [`queue`](Self::queue), but without any computation: weights do not change, and all losses
    /// are 0.
    ///
    /// # Errors
    /// The same as [`queue`](Self::queue).
    fn queue_nothing(&mut self, examples: &Examples, laps: &mut Laps<'_>) -> Result<(), Error>;

    /// Waits for the oldest queued step and returns the results; `None` if no step is queued.
    ///
    /// # Errors
    /// [`Error::NotFinite`] if a loss or the gradient is not finite. [`Error::Overflow`] if the gradient overflowed
    /// with the current loss scale; the step then changed only the loss scale. [`Error::DeviceLost`] if the device
    /// fails.
    fn collect(&mut self, laps: &mut Laps<'_>) -> Option<Result<Trained, Error>>;

    /// Computes the contribution of a batch to a group's training step, without changing the state. The step queue must
    /// be empty.
    ///
    /// # Errors
    /// The same as [`queue`](Self::queue).
    fn contribute(&mut self, examples: &Examples, laps: &mut Laps<'_>) -> Result<Contributed, Error>;

    /// Returns the contribution of a learner without a batch, which is all zeros.
    fn no_contribution(&self) -> Contribution;

    /// Updates the weights with the mean contribution over the learners: clipping, optimiser update, average. The step
    /// queue must be empty.
    ///
    /// # Errors
    /// The same as [`collect`](Self::collect).
    fn apply(&mut self, mean: Contributed, laps: &mut Laps<'_>) -> Result<Trained, Error>;

    /// Computes the memory for training steps of `batch` positions with `unroll_steps` unrolled steps, on the board
    /// with the largest memory. May be called before the first step.
    fn memory(&mut self, batch: usize, unroll_steps: usize) -> Memory;

    /// Returns the number of steps to keep queued, so that the device always has work.
    fn queue_depth(&self) -> usize;

    /// Returns the number of micro-batches per batch in the latest step.
    fn micro_batches(&self) -> usize;

    /// Sets the progress of the run, for runs with another limit than a number of steps. It is clamped to `[0, 1]`; NaN
    /// counts as 0.
    fn set_progress(&mut self, progress: f64);

    /// Returns the number of training steps that were applied and collected.
    fn step_count(&self) -> u64;

    /// Returns the learning rate of the next step, under the assumption that all queued steps are applied.
    fn learning_rate(&self) -> f64;

    /// Returns the loss scale of the latest collected step; `None` before the first step, or in a precision without a
    /// loss scale.
    fn loss_scale(&self) -> Option<f64>;

    /// Returns the layers that were switched to float32, each with the relative gradient error in low precision.
    fn float32_layers(&self) -> &BTreeMap<String, f64>;

    /// Requests that the next step keeps a copy of the gradient, which takes 4 bytes per parameter on the device.
    fn keep_gradient(&mut self);

    /// Takes the kept gradient `[P]` of a step, before clipping and in layout order; `None` if no step has kept a
    /// gradient.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] if reading from the device fails.
    fn take_gradient(&mut self) -> Result<Option<Vec<f32>>, Error>;

    /// Copies the state, so that another thread can read the copy while training continues. All queued steps must be
    /// collected before.
    ///
    /// A copy of the average takes 4 bytes per parameter and running statistic. A copy of the complete state takes as
    /// much again for the weights and for each moment.
    ///
    /// # Errors
    /// [`Error::Backend`] if the device has too little memory for the copy, [`Error::DeviceLost`] if it fails.
    fn snapshot(&self, contents: Contents) -> Result<Box<dyn Snapshot>, Error>;

    /// Restores the state from the files of a checkpoint, written by any backend. Other files are ignored. Queued steps
    /// are discarded.
    ///
    /// # Errors
    /// A file is missing, or does not match the network or the optimiser. The trainer is then unchanged.
    fn load(&mut self, files: &[(String, Vec<u8>)]) -> Result<(), Error>;

    /// Returns the reason why steps on a CUDA device are not submitted as graphs, empty once they are; `None` without
    /// such a device, and before the first graph.
    fn graphs(&self) -> Option<&str> {
        None
    }

    /// Returns the device for each kind of tensor. The kind `batch` is the batch of the latest step.
    fn placement(&self) -> Vec<Placed>;

    /// Runs one training step without measuring it, and returns the losses.
    ///
    /// # Errors
    /// The same as [`queue`](Self::queue) and [`collect`](Self::collect), also for steps that were queued before.
    fn step(&mut self, examples: &Examples) -> Result<Losses, Error> {
        self.queue(examples, &mut Laps::none())?;
        let mut losses = None;
        while let Some(trained) = self.collect(&mut Laps::none()) {
            losses = Some(trained?.losses);
        }
        Ok(losses.expect("the step was queued"))
    }

    /// Returns the averaged weights as a safetensors file, as loaded by actors.
    ///
    /// # Errors
    /// The same as [`snapshot`](Self::snapshot).
    fn published(&self) -> Result<Vec<u8>, Error> {
        self.snapshot(Contents::Average)?.published()
    }

    /// Returns the files of a checkpoint with the complete state.
    ///
    /// # Errors
    /// The same as [`snapshot`](Self::snapshot).
    fn files(&self) -> Result<Files, Error> {
        self.snapshot(Contents::All)?.files()
    }
}

/// A copy of a trainer's state after one step, which any thread can encode.
pub trait Snapshot: Send + std::fmt::Debug {
    /// Returns the averaged weights, including running statistics, as a safetensors file, as loaded by actors.
    ///
    /// # Errors
    /// [`Error::Network`] if two tensors have the same name; [`Error::DeviceLost`] if reading from the device fails.
    fn published(&self) -> Result<Vec<u8>, Error>;

    /// Returns the files of a checkpoint. A copy of [`Contents::Average`](crate::Contents::Average) gives only the
    /// average file.
    ///
    /// # Errors
    /// The same as [`published`](Self::published).
    fn files(&self) -> Result<Files, Error>;
}

/// A kind of tensor and its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Kind of tensor: `parameters` or `batch`.
    pub what: &'static str,
    /// Name of the device, such as `cpu` or `cuda:1`.
    pub device: String,
}
