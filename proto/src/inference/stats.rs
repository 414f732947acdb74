use std::time::Duration;

/// The models, load and counters of an inference server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InferenceStats {
    /// The name of the game; empty before the first weights.
    pub game: String,
    /// The weights versions that answer, ascending.
    pub versions: Vec<u64>,
    /// For people: what evaluates.
    pub evaluator: String,
    /// Asks that were answered.
    pub asks: u64,
    /// Positions that were evaluated for them.
    pub positions: u64,
    /// Positions that were answered from memory.
    pub cached_positions: u64,
    /// Asks that were refused.
    pub refused_asks: u64,
    /// Asks that the evaluator failed.
    pub failed_asks: u64,
    /// Ascending by size.
    pub batches: Vec<BatchesOfSize>,
    /// Clients of the fast path.
    pub streams: usize,
    /// Positions that wait now.
    pub waiting_positions: u64,
    /// For people: why batches are as large as they are.
    pub explanation: String,
}

/// Batches by how many positions they hold, rounded up to a power of two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchesOfSize {
    /// The power of two.
    pub size: usize,
    /// Batches dispatched because nothing more fitted in.
    pub full: u64,
    /// Batches dispatched because a request had waited for the maximum time.
    pub delay: u64,
    /// Batches dispatched because an evaluator was free.
    pub idle: u64,
    /// The sum of their durations.
    pub compute_time: Duration,
}

impl BatchesOfSize {
    /// Their number.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.full + self.delay + self.idle
    }
}
