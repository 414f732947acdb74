//! The measurements of a case.

use super::backend::Backend;
use super::case::Case;
use crate::training_run;

/// The case with the results of all measured parts.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) case: Case,
    /// Results of steps from memory, if requested.
    pub(super) outcomes: Vec<(Backend, Outcome)>,
    /// Result of a learner with a replay server, if requested.
    pub(super) live: Option<anyhow::Result<training_run::Measured>>,
}

/// Result of one backend.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    /// Positions/s in the median turn; `None` if the backend cannot take these steps.
    pub(super) median: Option<f64>,
    /// Positions/s in the fastest turn.
    pub(super) fastest: Option<f64>,
    /// Instructions or memory format of the backend, or the reason why it cannot take these steps.
    pub(super) note: String,
}
