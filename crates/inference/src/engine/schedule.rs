//! The batching rule of a device thread: the batch size, and whether to wait for more positions. The rule is pure:
//! times are arguments, and nothing here waits.
//!
//! Evaluating threads take turns: at a depth of two, one third of all games is being computed, one third is queued
//! and one third is searching. The *target* is that third, rounded to a batch size. While the device has work, the
//! rule waits for the target, since a full batch costs less per position. Shortly before the device would run out of
//! work, it submits the waiting positions. It therefore never waits while the device is idle.

use std::collections::HashMap;
use std::time::Duration;

/// Batch sizes on a device. Kernels are selected at the first use of a size, and the selections are kept for a
/// limited number of sizes, so there are few.
pub const BATCH_SIZES: [usize; 12] = [16, 32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096];

/// Up to this size, kernel launches dominate the time of a batch, so padding costs nothing.
const PADDED_FREELY_MAX: usize = 64;
/// Divisor for larger sizes: the padding is at most a quarter of the batch.
const PADDING: usize = 4;
/// Weight of the latest batch in the mean duration per size.
const NEWEST: f64 = 0.125;
/// Share of the expected batch duration after which the next batch is submitted even if it is not full. The rest
/// covers variations and the time to submit.
const HOLD: f64 = 0.85;
/// Number of completion checks per batch in flight while the rule waits for positions.
const CHECKS: u32 = 16;

/// A batch to submit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Portion {
    /// Size of the batch, one of the device's sizes.
    pub(super) size: usize,
    /// Number of positions, at most `size`; the rest is padding.
    pub(super) positions: usize,
}

/// The next action of the device thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Submit a batch.
    Submit(Portion),
    /// Wait for requests, but at most until this time.
    Hold(Duration),
    /// Wait for the oldest batch in flight.
    Await,
    /// Wait for requests: the device is idle and the queue is empty.
    Idle,
}

/// A batch in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    pub(super) portion: Portion,
    /// Time at which the device started on the batch; `None` while earlier batches are computed.
    pub(super) begun: Option<Duration>,
}

/// Counts of waiting positions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Positions that can share the next batch, which one weights version evaluates.
    pub(super) together: usize,
    /// Positions of all versions.
    pub(super) all: usize,
    /// True if the oldest position has waited long enough and must not wait longer.
    pub(super) is_overdue: bool,
}

/// The state of the rule.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Usable sizes, ascending; never empty.
    sizes: Vec<usize>,
    /// Maximum number of batches in flight.
    pub(super) depth: usize,
    /// Mean duration of a batch, in seconds, by size; `None` after the first batch, which selected kernels.
    durations: HashMap<usize, Option<f64>>,
    callers: HashMap<u64, Caller>,
    submitted: u64,
}

/// An evaluator, which sends one request at a time.
#[derive(Debug, Clone, Copy)]
struct Caller {
    /// Number of positions in the last request.
    positions: usize,
    /// Number of batches submitted before the last request or answer.
    seen: u64,
}

impl Schedule {
    /// Creates the rule for batches of `sizes`, ascending and at least one.
    pub(super) fn new(sizes: Vec<usize>, depth: usize) -> Self {
        assert!(!sizes.is_empty() && sizes.is_sorted(), "there are sizes, ascending: {sizes:?}");
        Self { sizes, depth, durations: HashMap::new(), callers: HashMap::new(), submitted: 0 }
    }

    /// Records a request of a caller.
    pub(super) fn arrived(&mut self, caller: u64, positions: usize) {
        self.callers.insert(caller, Caller { positions, seen: self.submitted });
    }

    /// Records the answer to a request; the caller then prepares the next request.
    pub(super) fn answered(&mut self, caller: u64) {
        if let Some(caller) = self.callers.get_mut(&caller) {
            caller.seen = self.submitted;
        }
    }

    /// Records a submission, and forgets inactive callers.
    pub(super) fn submitted(&mut self) {
        self.submitted += 1;
        // A caller absent for several rounds is blocked elsewhere or no longer exists.
        let (submitted, rounds) = (self.submitted, 4 + 2 * (self.depth as u64 + 1));
        self.callers.retain(|_, caller| submitted - caller.seen <= rounds);
    }

    /// Records the duration of a batch.
    pub(super) fn took(&mut self, size: usize, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let Some(mean) = self.durations.get_mut(&size) else {
            self.durations.insert(size, None);
            return;
        };
        *mean = match *mean {
            // After a much shorter batch, the earlier durations were disturbed, and the device would run out of work.
            Some(mean) if seconds > mean / 2.0 => Some(mean + NEWEST * (seconds - mean)),
            _ => Some(seconds),
        };
    }

    /// Excludes batches of at least `size`, because memory is too small. Returns false if no size would remain.
    pub(super) fn exclude_from(&mut self, size: usize) -> bool {
        let kept = self.sizes.iter().filter(|&&kept| kept < size).count();
        self.sizes.truncate(kept.max(1));
        kept > 0
    }

    /// Returns the largest usable size.
    pub(super) fn largest(&self) -> usize {
        self.sizes.last().copied().expect("sizes are never empty")
    }

    /// Returns the next action from the waiting positions and the batches in flight, oldest first.
    pub(super) fn next(&self, now: Duration, waiting: Waiting, flights: &[Flight]) -> Step {
        let under_way: usize = flights.iter().map(|flight| flight.portion.positions).sum();
        let Some(oldest) = flights.first() else {
            return if waiting.all == 0 { Step::Idle } else { Step::Submit(self.portion(waiting.together)) };
        };
        if flights.len() >= self.depth {
            return Step::Await;
        }
        let is_complete = waiting.all + under_way >= self.population();
        if waiting.all > 0 && (waiting.together >= self.target() || waiting.is_overdue || is_complete) {
            return Step::Submit(self.portion(waiting.together));
        }
        if is_complete {
            // No caller can send more before an answer.
            return Step::Await;
        }
        let duration = self.durations.get(&oldest.portion.size).copied().flatten().unwrap_or_default();
        let end = oldest.begun.unwrap_or(now) + Duration::from_secs_f64(HOLD * duration);
        if now < end {
            return Step::Hold(end.min(now + Duration::from_secs_f64(duration) / CHECKS));
        }
        if flights.len() == 1 && waiting.all > 0 { Step::Submit(self.portion(waiting.together)) } else { Step::Await }
    }

    /// Returns the number of positions for which the rule waits while the device has work.
    pub(super) fn target(&self) -> usize {
        let population = self.population();
        let share = population / (self.depth + 1);
        let nearest = self.sizes.iter().rev().min_by_key(|size| size.abs_diff(share)).copied();
        // A batch smaller than a request would split every request.
        let request = population.div_ceil(self.callers.len().max(1));
        nearest.unwrap_or(1).max(self.at_least(request).unwrap_or(self.largest()))
    }

    /// Returns the number of positions in one request of each caller.
    fn population(&self) -> usize {
        self.callers.values().map(|caller| caller.positions).sum()
    }

    /// Returns the batch to form from `waiting` positions, at least one.
    fn portion(&self, waiting: usize) -> Portion {
        let full = |size| Portion { size, positions: size };
        let target = self.target();
        if waiting >= target {
            return full(target);
        }
        let below = self.sizes.iter().rfind(|&&size| size <= waiting).copied();
        match (self.at_least(waiting), below) {
            (Some(above), Some(below)) if above > PADDED_FREELY_MAX && (above - waiting) * PADDING > above => {
                full(below)
            }
            (Some(above), _) => Portion { size: above, positions: waiting },
            (None, _) => full(self.largest()),
        }
    }

    fn at_least(&self, positions: usize) -> Option<usize> {
        self.sizes.iter().find(|&&size| size >= positions).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Returns a schedule for `callers` threads with `positions` positions each, and batches of 10 ms.
    fn schedule(depth: usize, callers: u64, positions: usize) -> Schedule {
        let mut schedule = Schedule::new(BATCH_SIZES.to_vec(), depth);
        (0..callers).for_each(|caller| schedule.arrived(caller, positions));
        for duration in [ms(900), ms(10)] {
            BATCH_SIZES.iter().for_each(|&size| schedule.took(size, duration));
        }
        schedule
    }

    fn flight(positions: usize, begun: Option<u64>) -> Flight {
        Flight { portion: Portion { size: positions, positions }, begun: begun.map(ms) }
    }

    fn waiting(positions: usize) -> Waiting {
        Waiting { together: positions, all: positions, is_overdue: false }
    }

    fn submit(size: usize, positions: usize) -> Step {
        Step::Submit(Portion { size, positions })
    }

    #[test]
    fn sixteen_threads_of_384_games_form_three_groups_of_2048() {
        let schedule = schedule(2, 16, 384);
        assert_eq!(schedule.target(), 2048);
        assert_eq!(schedule.next(ms(0), waiting(4096), &[flight(2048, Some(0))]), submit(2048, 2048));
        assert_eq!(schedule.next(ms(0), waiting(4096), &[flight(2048, Some(0)), flight(2048, None)]), Step::Await);
    }

    #[test]
    fn the_target_is_the_nearest_size_to_a_share_and_at_least_a_request() {
        for (depth, callers, positions, target) in [
            (1, 2, 128, 128),
            (2, 1, 384, 512),
            (2, 3, 384, 512),
            (2, 48, 128, 2048),
            (2, 64, 1024, 4096),
            (3, 16, 384, 1536),
            (2, 1, 5000, 4096),
            (2, 4, 1, 16),
        ] {
            assert_eq!(schedule(depth, callers, positions).target(), target, "{depth} {callers} {positions}");
        }
    }

    #[test]
    fn a_device_without_work_gets_whatever_waits() {
        let schedule = schedule(2, 16, 384);
        assert_eq!(schedule.next(ms(0), waiting(384), &[]), submit(512, 384));
        assert_eq!(schedule.next(ms(0), waiting(1), &[]), submit(16, 1));
        assert_eq!(schedule.next(ms(0), waiting(0), &[]), Step::Idle);
    }

    #[test]
    fn a_partial_batch_is_held_until_the_device_has_nearly_run_out_of_work() {
        let schedule = schedule(2, 16, 384);
        let flights = [flight(2048, Some(100))];
        let Step::Hold(until) = schedule.next(ms(101), waiting(1900), &flights) else { panic!("not held") };
        assert!(until > ms(101) && until <= ms(102), "{until:?}");
        assert_eq!(schedule.next(ms(101), waiting(2100), &flights), submit(2048, 2048));
        assert_eq!(schedule.next(ms(109), waiting(1900), &flights), submit(2048, 1900));
        assert_eq!(schedule.next(ms(109), waiting(0), &flights), Step::Await);
    }

    #[test]
    fn nothing_is_held_if_every_caller_waits_or_if_the_duration_is_unknown() {
        let mut schedule = schedule(2, 3, 100);
        assert_eq!(schedule.next(ms(0), waiting(200), &[flight(100, Some(0))]), submit(128, 128));
        assert_eq!(schedule.next(ms(0), waiting(0), &[flight(300, Some(0))]), Step::Await);
        schedule.durations.clear();
        assert_eq!(schedule.next(ms(0), waiting(100), &[flight(100, Some(0))]), submit(128, 100));
    }

    #[test]
    fn an_overdue_request_waits_for_no_others() {
        let waiting = Waiting { is_overdue: true, ..waiting(20) };
        assert_eq!(schedule(2, 16, 384).next(ms(0), waiting, &[flight(2048, Some(0))]), submit(32, 20));
    }

    #[test]
    fn with_a_third_batch_allowed_the_device_never_runs_out_of_work_while_two_are_in_flight() {
        let schedule = schedule(3, 16, 384);
        let flights = [flight(1536, Some(0)), flight(1536, None)];
        assert!(matches!(schedule.next(ms(1), waiting(400), &flights), Step::Hold(_)));
        assert_eq!(schedule.next(ms(9), waiting(400), &flights), Step::Await);
    }

    #[test]
    fn padding_is_at_most_a_quarter_of_a_large_batch() {
        let schedule = schedule(2, 100, 384);
        for positions in 1..4096 {
            let Portion { size, positions: taken } = schedule.portion(positions);
            assert!(BATCH_SIZES.contains(&size) && taken <= positions.min(size) && taken > 0);
            assert!(size <= PADDED_FREELY_MAX || (size - taken) * PADDING <= size, "{positions}: {taken} of {size}");
        }
    }

    #[test]
    fn the_first_batch_of_a_size_and_disturbed_ones_do_not_delay_later_batches() {
        let mut schedule = schedule(2, 16, 384);
        assert_eq!(schedule.durations[&512], Some(0.01), "the first batch took 900 ms");
        schedule.took(512, ms(18));
        assert_eq!(schedule.durations[&512], Some(0.011));
        schedule.took(512, ms(5));
        assert_eq!(schedule.durations[&512], Some(0.005));
    }

    #[test]
    fn callers_that_are_blocked_elsewhere_are_no_longer_waited_for() {
        let mut schedule = schedule(2, 16, 384);
        for _ in 0..20 {
            schedule.arrived(3, 384);
            schedule.submitted();
        }
        assert_eq!(schedule.population(), 384);
    }

    #[test]
    fn sizes_that_do_not_fit_memory_are_excluded_with_all_larger_ones() {
        let mut schedule = schedule(2, 16, 1024);
        assert!(schedule.exclude_from(2048));
        assert_eq!((schedule.target(), schedule.portion(9000)), (1536, Portion { size: 1536, positions: 1536 }));
        assert!(schedule.exclude_from(32));
        assert_eq!(schedule.portion(9000), Portion { size: 16, positions: 16 });
        assert!(!schedule.exclude_from(16));
    }
}
