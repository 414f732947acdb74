//! The measurements of a case.

use super::backend::Backend;
use super::case::Case;
use super::live;

/// The measurements of a case.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) case: Case,
    pub(super) outcomes: Vec<(Backend, Outcome)>,
    /// Those of a learner beside a replay server, if they were asked for.
    pub(super) live: Option<anyhow::Result<live::Speed>>,
}

/// The result of one backend.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    /// Positions/s.
    Measured {
        /// Those of the median turn.
        median: f64,
        /// Those of the fastest turn.
        fastest: f64,
        /// The instructions or the memory format that the backend computes with.
        details: String,
    },
    /// The backend cannot take these steps.
    NotMeasured {
        /// The reason, in words.
        reason: String,
    },
}
