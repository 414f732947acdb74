use std::collections::BTreeMap;

use weights::Architecture;

use crate::checkpoint::Files;
use crate::{Contents, Contributed, Contribution, Error, Examples, Laps, Losses, Memory, Trained};

/// Trains one network: the weights, the weight average, the optimiser, and the position in the schedule.
///
/// A step is queued with [`queue`](Self::queue) and its results are read with [`collect`](Self::collect), in queue
/// order. A step with a loss or gradient that is not finite changes nothing, not even for a step queued later. A
/// restored trainer continues as if it had not stopped; trainers with equal states that apply the same mean have
/// equal states again. Steps use no random numbers.
pub trait Trainer {
    /// Adds another board of the network's game, and returns the index for batches on that board.
    ///
    /// All boards have the same weights, average, optimiser state and running statistics; batches on any board update
    /// them.
    ///
    /// # Errors
    /// The same as [`Boards::add`](crate::Boards::add). Nothing is added then.
    fn add_board(&mut self, architecture: &Architecture) -> Result<usize, Error>;

    /// Submits a training step: forward, backward, clip, optimiser, average. Measures the parts with `laps`. On an
    /// accelerator this does not wait for the device.
    ///
    /// # Errors
    /// [`Error::Batch`] or [`Error::Network`] if the examples do not fit the network on the batch's board,
    /// [`Error::BoardIndex`] if the trainer does not have that board, [`Error::Backend`] if the device fails. Nothing
    /// is queued then.
    fn queue(&mut self, examples: &Examples, laps: &mut Laps<'_>) -> Result<(), Error>;

    /// Queues a step like [`queue`](Self::queue), but computes nothing and changes no weights; all losses are 0.
    ///
    /// # Errors
    /// The same as [`queue`](Self::queue).
    fn queue_nothing(&mut self, examples: &Examples, laps: &mut Laps<'_>) -> Result<(), Error>;

    /// Waits for the oldest queued step and returns the results; `None` if no step is queued.
    ///
    /// # Errors
    /// [`Error::NotFinite`] if a loss or the gradient is not finite, and [`Error::Overflow`] if the loss scale was
    /// too large for the gradient: the step then changed nothing but the loss scale. [`Error::Backend`] if the device
    /// fails.
    fn collect(&mut self, laps: &mut Laps<'_>) -> Option<Result<Trained, Error>>;

    /// Computes the contribution of a batch to a group's training step, and changes no state. No step may be queued.
    ///
    /// # Errors
    /// The same as [`queue`](Self::queue).
    fn contribute(&mut self, examples: &Examples, laps: &mut Laps<'_>) -> Result<Contributed, Error>;

    /// Returns the contribution of a learner without a batch.
    fn no_contribution(&self) -> Contribution;

    /// Takes the step with the mean contribution over learners: clip, optimiser, average. No step may be queued.
    ///
    /// # Errors
    /// The same as [`collect`](Self::collect).
    fn apply(&mut self, mean: Contributed, laps: &mut Laps<'_>) -> Result<Trained, Error>;

    /// Returns the memory for training steps of `batch` positions with `unroll_steps` unroll steps, before any step,
    /// on the board that needs the most.
    fn memory(&mut self, batch: usize, unroll_steps: usize) -> Memory;

    /// Returns the number of steps to leave queued, so that the device always has work.
    fn queue_depth(&self) -> usize;

    /// Returns the number of micro-batches in the latest step.
    fn micro_batches(&self) -> usize;

    /// Sets the progress of the run, for runs with another limit than steps. Clamped to `[0, 1]`; NaN counts as 0.
    fn set_progress(&mut self, progress: f64);

    /// Returns the number of training steps applied and collected.
    fn step_count(&self) -> u64;

    /// Returns the learning rate of the next step, if every queued step is applied.
    fn learning_rate(&self) -> f64;

    /// Returns the loss scale of the latest collected step; `None` before it, and in a precision without a loss
    /// scale.
    fn loss_scale(&self) -> Option<f64>;

    /// Returns the layers that went back to float32, each with the relative gradient error that was too large.
    fn float32_layers(&self) -> &BTreeMap<String, f64>;

    /// Makes the next step keep a copy of the gradient, which takes 4 bytes per parameter on the device.
    fn keep_gradient(&mut self);

    /// Takes the gradient `[P]` of a step that kept it, before clipping and in layout order; `None` if no step did.
    ///
    /// # Errors
    /// [`Error::Backend`] if the device cannot be read.
    fn take_gradient(&mut self) -> Result<Option<Vec<f32>>, Error>;

    /// Copies the state, so that another thread can read it while training continues. Queued steps must be collected
    /// first.
    ///
    /// The copy takes 4 bytes per parameter and running statistic for the average. A whole state takes the same again
    /// for the weights and for each moment.
    ///
    /// # Errors
    /// [`Error::Backend`] if the device has too little memory for the copy, or fails.
    fn snapshot(&self, contents: Contents) -> Result<Box<dyn Snapshot>, Error>;

    /// Restores the state of a checkpoint from any backend; ignores other files. Queued steps are dropped with all
    /// changes.
    ///
    /// # Errors
    /// Fails for missing files, and for contents that do not match the network or the optimiser; the trainer is then
    /// unchanged.
    fn load(&mut self, files: &[(String, Vec<u8>)]) -> Result<(), Error>;

    /// Returns the device of each kind of tensors; the batch is the one in the latest step.
    fn placement(&self) -> Vec<Placed>;

    /// Takes one training step without measuring it, and returns the losses.
    ///
    /// # Errors
    /// The same as [`queue`](Self::queue) and [`collect`](Self::collect), also for steps queued before.
    fn step(&mut self, examples: &Examples) -> Result<Losses, Error> {
        self.queue(examples, &mut Laps::none())?;
        let mut losses = None;
        while let Some(trained) = self.collect(&mut Laps::none()) {
            losses = Some(trained?.losses);
        }
        Ok(losses.expect("the step was queued"))
    }

    /// Returns the averaged weights as a safetensors file for the actors.
    ///
    /// # Errors
    /// The same as [`snapshot`](Self::snapshot).
    fn published(&self) -> Result<Vec<u8>, Error> {
        self.snapshot(Contents::Average)?.published()
    }

    /// Returns the files of a checkpoint.
    ///
    /// # Errors
    /// The same as [`snapshot`](Self::snapshot).
    fn files(&self) -> Result<Files, Error> {
        self.snapshot(Contents::All)?.files()
    }
}

/// A copy of a trainer's state at one step, which any thread can encode.
pub trait Snapshot: Send + std::fmt::Debug {
    /// Returns the averaged weights, including running statistics, as a safetensors file for the actors.
    ///
    /// # Errors
    /// [`Error::Network`] if two tensors have the same name, [`Error::Backend`] if the device cannot be read.
    fn published(&self) -> Result<Vec<u8>, Error>;

    /// Returns the files of a checkpoint; a copy of the average gives the average alone.
    ///
    /// # Errors
    /// The same as [`published`](Self::published).
    fn files(&self) -> Result<Files, Error>;
}

/// The device of one kind of tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Kind of tensors: `parameters`, `batch`.
    pub what: &'static str,
    /// Name of the device: `cpu`, `cuda:1`.
    pub device: String,
}
