//! Speeds of several computations by size, measured in turns.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Turn, Turns};

/// A computation to time at several sizes.
pub(crate) struct Work {
    /// Work of one call of one evaluator: multiply-adds, bytes or evaluations.
    pub(crate) units: Box<dyn Fn(usize) -> f64>,
    /// Calls/s at a size, over all evaluators.
    pub(crate) rate: Box<dyn FnMut(usize, Duration) -> anyhow::Result<f64>>,
}

impl Work {
    /// Creates work with as many units as the size.
    pub(crate) fn of_size(rate: impl FnMut(usize, Duration) -> anyhow::Result<f64> + 'static) -> Self {
        Self { units: Box::new(|size| size as f64), rate: Box::new(rate) }
    }
}

/// Measurements of one computation.
pub(crate) struct Series<L> {
    /// Label of the computation.
    pub(crate) label: L,
    /// Number of evaluators that compute in parallel.
    evaluators: usize,
    work: Option<Work>,
    /// Calls/s of every turn, by size.
    rates: BTreeMap<usize, Vec<f64>>,
    failure: Option<String>,
}

/// Time limits of a series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Duration of one turn.
    pub(crate) time: Duration,
    /// Maximum duration of one call.
    pub(crate) call_time_max: Duration,
}

/// Speeds of a series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Speeds<L> {
    /// Label of the computation.
    pub(crate) label: L,
    /// Speeds by size, ascending.
    pub(crate) speeds: Vec<Speed>,
    /// Reason why no further sizes were measured.
    pub(crate) not_measured: Option<String>,
}

/// A speed at a size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Speed {
    /// Size: rows, elements or positions.
    pub(crate) size: usize,
    /// Time from a call to the result.
    pub(crate) latency_us: f64,
    /// Time between two results, over all evaluators.
    pub(crate) interval_us: f64,
    /// Multiply-adds, bytes or evaluations per second, over all evaluators.
    pub(crate) per_second: f64,
}

impl<L: Clone> Series<L> {
    /// Creates a series without measurements; if `work` is an error, it is the reason why nothing is measured.
    pub(crate) fn new(label: L, evaluators: usize, work: anyhow::Result<Work>) -> Self {
        let (work, failure) = match work {
            Ok(work) => (Some(work), None),
            Err(error) => (None, Some(service::chain(&error))),
        };
        Self { label, evaluators, work, rates: BTreeMap::new(), failure }
    }

    /// Measures one turn at a size, and returns true if it was measured; after a failure, no turn is measured.
    pub(crate) fn measure(&mut self, size: usize, limits: Limits) -> bool {
        if self.failure.is_some() || self.takes_too_long(size, limits) {
            return false;
        }
        let Some(work) = &mut self.work else { return false };
        match (work.rate)(size, limits.time) {
            Ok(rate) => self.rates.entry(size).or_default().push(rate),
            // The size is part of the reason: a device may run out of memory at this size only.
            Err(error) => self.failure = Some(format!("size {size}: {}", service::chain(&error))),
        }
        self.failure.is_none()
    }

    /// Returns true if a call would take too long, extrapolated from the largest measured size up to `size`.
    fn takes_too_long(&self, size: usize, limits: Limits) -> bool {
        let Some(work) = &self.work else { return false };
        let Some((&nearest, rates)) = self.rates.range(..=size).next_back() else { return false };
        let Some(rate) = rates.last() else { return false };
        let seconds = self.evaluators as f64 / rate * (work.units)(size) / (work.units)(nearest);
        seconds > limits.call_time_max.as_secs_f64()
    }

    /// Returns the speeds of the reported turns.
    pub(crate) fn speeds(&self, turn: Turn) -> Speeds<L> {
        let speed = |(&size, rates): (&usize, &Vec<f64>)| {
            let rate = turn.speed(rates)?;
            let per_second = rate * (self.work.as_ref()?.units)(size);
            let interval_us = 1e6 / rate;
            Some(Speed { size, latency_us: self.evaluators as f64 * interval_us, interval_us, per_second })
        };
        let speeds = self.rates.iter().filter_map(speed).collect();
        Speeds { label: self.label.clone(), speeds, not_measured: self.failure.clone() }
    }
}

/// Measures turns of all series at all sizes, alternating, and returns the speeds of the reported turns.
pub(crate) fn measure_in_turns<L: Clone>(
    mut all: Vec<Series<L>>,
    sizes: &[usize],
    limits: Limits,
    turns: Turns,
) -> Vec<Speeds<L>> {
    for _ in 0..turns.repeats {
        for &size in sizes {
            for series in &mut all {
                series.measure(size, limits);
            }
        }
    }
    all.iter().map(|series| series.speeds(turns.turn)).collect()
}

impl<L> Speeds<L> {
    /// Returns the speed at a size.
    pub(crate) fn at(&self, size: usize) -> Option<f64> {
        self.speeds.iter().find(|speed| speed.size == size).map(|speed| speed.per_second)
    }

    /// Returns the greatest speed over all sizes.
    pub(crate) fn best(&self) -> Option<f64> {
        self.speeds.iter().map(|speed| speed.per_second).max_by(f64::total_cmp)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use anyhow::{anyhow, bail};

    use super::*;

    /// Returns made-up speeds `(size, speed)`; the latency of a call follows from size and speed.
    pub(crate) fn made_up<L>(label: L, speeds: &[(usize, f64)]) -> Speeds<L> {
        let speed = |&(size, per_second): &(usize, f64)| {
            let interval_us = 1e6 * size as f64 / per_second;
            Speed { size, latency_us: interval_us, interval_us, per_second }
        };
        Speeds { label, speeds: speeds.iter().map(speed).collect(), not_measured: None }
    }

    /// Creates a series that evaluates 16 positions/s at every size and fails above `size_max`, and the list of
    /// requested sizes.
    fn scripted(size_max: usize) -> (Series<()>, Rc<RefCell<Vec<usize>>>) {
        let requests: Rc<RefCell<Vec<usize>>> = Rc::default();
        let all = Rc::clone(&requests);
        let rate = move |size: usize, _| {
            all.borrow_mut().push(size);
            if size > size_max {
                bail!("out of memory");
            }
            Ok(16.0 / size as f64)
        };
        let work = Work { units: Box::new(|size| size as f64), rate: Box::new(rate) };
        (Series::new((), 2, Ok(work)), requests)
    }

    const LIMITS: Limits = Limits { time: Duration::from_millis(1), call_time_max: Duration::from_secs(2) };

    #[test]
    fn the_median_or_the_best_of_the_turns_is_reported() {
        let (mut series, _) = scripted(100);
        series.rates.insert(8, vec![3.0, 1.0, 2.0]);
        let [speed] = series.speeds(Turn::Median).speeds[..] else { panic!("one size was measured") };
        // Two evaluators make two calls per second together: each call takes a second.
        assert_eq!((speed.size, speed.latency_us, speed.interval_us, speed.per_second), (8, 1e6, 5e5, 16.0));
        let best = series.speeds(Turn::Best);
        assert_eq!((best.best(), best.at(8), best.at(1)), (Some(24.0), Some(24.0), None));
    }

    #[test]
    fn sizes_at_which_a_call_would_take_too_long_are_left_out() {
        let (mut series, requests) = scripted(100);
        // Two evaluators together evaluate 16 positions per second: batches of 16 each take two seconds.
        let measured = [1, 16, 17, 64, 16].map(|size| series.measure(size, LIMITS));
        assert_eq!(measured, [true, true, false, false, true]);
        assert_eq!(*requests.borrow(), [1, 16, 16]);
        assert_eq!(series.speeds(Turn::Median).not_measured, None);
    }

    #[test]
    fn a_size_that_took_too_long_takes_no_further_turn() {
        let (mut series, requests) = scripted(100);
        assert!(series.measure(64, LIMITS) && !series.measure(64, LIMITS));
        assert_eq!(*requests.borrow(), [64]);
        assert_eq!(series.speeds(Turn::Median).speeds.len(), 1);
    }

    #[test]
    fn after_a_failure_no_further_turn_is_taken_and_the_reason_is_reported() {
        let (mut series, requests) = scripted(4);
        assert_eq!([1, 8, 1].map(|size| series.measure(size, LIMITS)), [true, false, false]);
        assert_eq!(*requests.borrow(), [1, 8]);
        let speeds = series.speeds(Turn::Median);
        assert_eq!((speeds.speeds.len(), speeds.not_measured.as_deref()), (1, Some("size 8: out of memory")));
    }

    #[test]
    fn unavailable_work_is_not_measured_and_its_reason_is_reported() {
        let mut series = Series::new((), 1, Err(anyhow!("no such operation").context("build the network")));
        assert!(!series.measure(1, LIMITS));
        let speeds = series.speeds(Turn::Median);
        assert_eq!(speeds.not_measured.as_deref(), Some("build the network: no such operation"));
        assert!(speeds.speeds.is_empty());
    }
}
