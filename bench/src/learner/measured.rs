//! The measurements of a case.

use super::backend::Backend;
use super::case::Case;
use crate::training_run;

/// The measurements of a case.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) case: Case,
    /// Those of steps from memory, if they were asked for.
    pub(super) outcomes: Vec<(Backend, Outcome)>,
    /// That of a learner beside a replay server, if it was asked for.
    pub(super) live: Option<anyhow::Result<training_run::Measured>>,
}

/// The result of one backend.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    /// Positions/s of the median turn; `None` if the backend cannot take these steps.
    pub(super) median: Option<f64>,
    /// Positions/s of the fastest turn.
    pub(super) fastest: Option<f64>,
    /// The instructions or the memory format that the backend computes with, or the reason why it cannot.
    pub(super) note: String,
}
