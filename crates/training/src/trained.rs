use std::time::Duration;

use crate::Losses;

/// The durations of the parts of a training step, as seen by the caller: an accelerator may still be computing when a
/// call returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepTimes {
    /// Copying the batch to the device.
    pub stage: Duration,
    /// The forward pass of the network and its losses.
    pub forward: Duration,
    /// Gradients and their norm, and reading the losses, which waits for an accelerator to finish the step.
    pub backward: Duration,
    /// Clipping, the optimiser, the average.
    pub optimiser: Duration,
}

/// The results of a training step.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// The losses before the step updated the weights.
    pub losses: Losses,
    /// The distance of the value of each row from its target, `[B]`; empty if the batch had no importance. Values of
    /// AlphaZero are win minus loss; those of MuZero the predicted values of the roots, in units of the reward.
    pub value_errors: Vec<f32>,
    /// The durations of its parts.
    pub times: StepTimes,
}

/// The parts of a trainer's state that are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// The averaged weights, which are published.
    Average,
    /// The whole state, for a checkpoint.
    All,
}
