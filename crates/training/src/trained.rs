use std::time::Duration;

use crate::Losses;

/// Durations within a training step, as seen by the caller: an accelerator may still be computing when a call
/// returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepTimes {
    /// Copying the batch to the device.
    pub stage: Duration,
    /// The forward pass and the losses.
    pub forward: Duration,
    /// The backward pass, the gradient norm, and reading the losses, which waits for an accelerator to finish the
    /// step.
    pub backward: Duration,
    /// Clipping, the optimiser step, and the average.
    pub optimiser: Duration,
}

/// The results of a training step.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// The losses before the weight update.
    pub losses: Losses,
    /// Distance of each row's value from the target, `[B]`; empty if the batch had no importance weights. AlphaZero
    /// values are win minus loss; MuZero values are the predicted root values, in units of the reward.
    pub value_errors: Vec<f32>,
    /// Durations within the step.
    pub times: StepTimes,
}

/// The part of a trainer's state to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// The averaged weights, which are published.
    Average,
    /// The whole state, for a checkpoint.
    All,
}
