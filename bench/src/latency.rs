//! Times of single operations in two numbers.

use std::time::Duration;

/// The time that one operation took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Latency {
    /// Half of them took less.
    pub(crate) p50_ms: f64,
    /// One in a hundred took longer.
    pub(crate) p99_ms: f64,
}

impl Latency {
    /// Nothing where nothing was done.
    pub(super) fn of(took: &mut [Duration]) -> Self {
        took.sort_unstable();
        let at = |share: f64| {
            let index = (took.len() as f64 * share) as usize;
            took.get(index.min(took.len().saturating_sub(1))).map_or(0.0, |took| 1e3 * took.as_secs_f64())
        };
        Self { p50_ms: at(0.5), p99_ms: at(0.99) }
    }
}
