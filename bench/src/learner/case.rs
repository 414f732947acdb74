//! The conditions under which backends are compared, and what was measured under them.

use network_torch::Precision;

use super::backend::Backend;
use crate::network::NetworkSize;
use crate::training_run;

/// The conditions under which backends are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) network: NetworkSize,
    /// Positions of a training step.
    pub(super) batch: usize,
    pub(super) precision: Precision,
    pub(super) threads: usize,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { network, batch, precision, threads } = self;
        let plural = if *threads == 1 { "" } else { "s" };
        write!(f, "{network}, batch {batch}, {precision}, {threads} thread{plural}")
    }
}

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
