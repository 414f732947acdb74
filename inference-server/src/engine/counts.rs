use std::time::Duration;

use proto::inference::v1::BatchesOfSize;

use crate::metrics::microseconds;
use crate::queue::Reason;

/// Counters since the start of the process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Number of answered requests.
    pub requests: u64,
    /// Number of positions in these requests.
    pub positions: u64,
    /// Number of evaluated batches.
    pub batches: u64,
    /// Number of requests rejected for reasons other than an evaluator failure.
    pub rejected: u64,
    /// Number of requests that failed in the evaluator.
    pub failed: u64,
    /// Total time that requests spent in the queue.
    pub queue_time: Duration,
    /// Total time that requests spent in batches under evaluation.
    pub compute_time: Duration,
    /// Batch counts by number of positions, which is rounded up to a power of two; in ascending order.
    pub by_batch_size: Vec<BatchesOfSize>,
    /// Number of positions waiting now.
    pub waiting_positions: usize,
}

impl Counts {
    pub(super) fn add_answer(&mut self, queued: Duration, computed: Duration) {
        self.requests += 1;
        self.queue_time += queued;
        self.compute_time += computed;
    }

    pub(super) fn add_batch(&mut self, positions: usize, reason: Reason, computed: Duration) {
        self.positions += positions as u64;
        self.batches += 1;
        let size = u32::try_from(positions.next_power_of_two()).unwrap_or(u32::MAX);
        let at = self.by_batch_size.partition_point(|batches| batches.size < size);
        if self.by_batch_size.get(at).is_none_or(|batches| batches.size != size) {
            self.by_batch_size.insert(at, BatchesOfSize { size, ..BatchesOfSize::default() });
        }
        let batches = &mut self.by_batch_size[at];
        batches.compute_us += microseconds(computed);
        match reason {
            Reason::Full => batches.full += 1,
            Reason::Delay => batches.delay += 1,
            Reason::Idle => batches.idle += 1,
        }
    }

    /// Explains the batch sizes in a human-readable sentence.
    #[must_use]
    pub fn explain(&self, batch_max: usize) -> String {
        if self.batches == 0 {
            return "no requests yet".to_owned();
        }
        let sum = |of: fn(&BatchesOfSize) -> u64| self.by_batch_size.iter().map(of).sum::<u64>();
        let (full, delay, idle) = (sum(|b| b.full), sum(|b| b.delay), sum(|b| b.idle));
        let mean = self.positions as f64 / self.batches as f64;
        let share = |part: u64| 100.0 * part as f64 / self.batches as f64;
        let mean_request = self.positions as f64 / self.requests.max(1) as f64;
        let why = match full.max(delay).max(idle) {
            most if most == full => format!("{:.0} % were dispatched full: requests exceed one batch", share(full)),
            most if most == idle => format!(
                "{:.0} % were dispatched because an evaluator was idle, with requests of {mean_request:.1} positions; \
                 more concurrent or larger requests, or a higher inference.queue_delay_us, make larger batches",
                share(idle)
            ),
            _ => format!("{:.0} % were dispatched after the delay inference.queue_delay_us", share(delay)),
        };
        format!("batches hold {mean:.1} of {batch_max} positions on average; {why}")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Counts;
    use crate::queue::Reason;

    fn counts(batches: &[(usize, Reason)]) -> Counts {
        let mut counts = Counts::default();
        for &(positions, reason) in batches {
            counts.add_batch(positions, reason, Duration::from_micros(10));
            counts.add_answer(Duration::ZERO, Duration::from_micros(10));
        }
        counts
    }

    #[test]
    fn batches_are_counted_by_size_and_reason() {
        let counts = counts(&[(1, Reason::Idle), (3, Reason::Idle), (4, Reason::Delay), (64, Reason::Full)]);
        let by_size: Vec<_> = counts.by_batch_size.iter().map(|b| (b.size, b.full, b.delay, b.idle)).collect();
        assert_eq!(by_size, [(1, 0, 0, 1), (4, 0, 1, 1), (64, 1, 0, 0)]);
        assert_eq!((counts.batches, counts.positions, counts.compute_time), (4, 72, Duration::from_micros(40)));
    }

    #[test]
    fn the_explanation_gives_the_reason_for_small_batches() {
        assert_eq!(Counts::default().explain(64), "no requests yet");
        let explained = |batches: &[(usize, Reason)]| counts(batches).explain(64);
        assert!(
            explained(&[(64, Reason::Full); 3])
                .contains("hold 64.0 of 64 positions on average; 100 % were dispatched full")
        );
        assert!(explained(&[(2, Reason::Idle); 3]).contains("an evaluator was idle, with requests of 2.0 positions"));
        assert!(explained(&[(2, Reason::Delay); 3]).contains("inference.queue_delay_us"));
    }
}
