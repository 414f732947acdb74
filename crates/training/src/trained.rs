use std::time::Duration;

use crate::Losses;

/// Durations of the parts of a training step, as measured by the caller. An accelerator may still be computing when a
/// call returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepTimes {
    /// Time to copy the batch to the device.
    pub stage: Duration,
    /// Time of the forward pass and the losses.
    pub forward: Duration,
    /// Time of the backward pass, the gradient norm, and reading the losses, which waits until an accelerator has
    /// finished the step.
    pub backward: Duration,
    /// Time of clipping, the optimiser update, and the weight average.
    pub optimiser: Duration,
}

/// The results of a training step.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// The losses before the weight update.
    pub losses: Losses,
    /// Distance between value and target for each row, `[B]`; empty if the batch had no importance weights. AlphaZero
    /// values are win minus loss. MuZero values are the predicted root values, in units of reward.
    pub value_errors: Vec<f32>,
    /// Durations of the parts of the step.
    pub times: StepTimes,
}

/// The part of a trainer's state to copy for a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// The averaged weights, which are published.
    Average,
    /// The complete state, for a checkpoint.
    All,
}
