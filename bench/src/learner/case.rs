//! The conditions under which backends are compared.

use network_torch::Precision;

use crate::network::NetworkSize;

/// Network, batch size, precision and threads of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) network: NetworkSize,
    /// Positions per training step.
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
