use std::time::Duration;

use super::setting::Setting;
use super::speeds::{SettingSpeeds, Speed};
use super::work::Work;
use crate::Turn;

/// The measurements of one workload in one setting.
pub(super) struct Series {
    setting: Setting,
    work: Option<Box<dyn Work>>,
    /// By size, ascending: sizes come in this order.
    sizes: Vec<Measured>,
    failure: Option<String>,
}

/// All turns at one size.
struct Measured {
    size: usize,
    /// Over all evaluators.
    calls_per_second: Vec<f64>,
}

/// The time limits of a series.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// One turn.
    pub(super) time: Duration,
    /// One call.
    pub(super) call_time_max: Duration,
}

impl Series {
    /// Nothing measured yet; work that could not be had is the reason why nothing will be.
    pub(super) fn new(setting: Setting, work: anyhow::Result<Box<dyn Work>>) -> Self {
        let (work, failure) = match work {
            Ok(work) => (Some(work), None),
            Err(error) => (None, Some(service::chain(&error))),
        };
        Self { setting, work, sizes: Vec::new(), failure }
    }

    /// Takes a turn at a size; after a failure, none.
    pub(super) fn measure(&mut self, size: usize, limits: Limits) {
        if self.failure.is_some() || self.takes_too_long(size, limits) {
            return;
        }
        match self.work.as_mut().map(|work| work.rate(size, limits.time)) {
            Some(Ok(rate)) => self.add(size, rate),
            // A device that ran out of memory did so at some size.
            Some(Err(error)) => self.failure = Some(format!("size {size}: {}", service::chain(&error))),
            None => {}
        }
    }

    /// True if a call would take too long, by the time of one at the largest size so far that is no larger.
    fn takes_too_long(&self, size: usize, limits: Limits) -> bool {
        let Some(work) = &self.work else { return false };
        let Some(nearest) = self.sizes.iter().rfind(|measured| measured.size <= size) else { return false };
        let Some(rate) = nearest.calls_per_second.last() else { return false };
        let seconds = self.setting.evaluators as f64 / rate * work.units(size) / work.units(nearest.size);
        seconds > limits.call_time_max.as_secs_f64()
    }

    fn add(&mut self, size: usize, rate: f64) {
        match self.sizes.iter_mut().find(|measured| measured.size == size) {
            Some(measured) => measured.calls_per_second.push(rate),
            None => self.sizes.push(Measured { size, calls_per_second: vec![rate] }),
        }
    }

    /// The turns that count.
    pub(super) fn report(&self, turn: Turn) -> SettingSpeeds {
        let speed = |measured: &Measured| {
            let rate = turn.speed(&measured.calls_per_second)?;
            Some(Speed {
                size: measured.size,
                latency_us: 1e6 * self.setting.evaluators as f64 / rate,
                per_second: rate * self.work.as_ref()?.units(measured.size),
                speed_up: None,
            })
        };
        SettingSpeeds {
            setting: self.setting.clone(),
            speeds: self.sizes.iter().filter_map(speed).collect(),
            not_measured: self.failure.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use anyhow::{anyhow, bail};
    use network_torch::{Device, Precision};

    use super::super::setting::Split;
    use super::*;

    /// Answers as many positions a second at every size, and refuses those above a limit.
    struct Scripted {
        positions_per_second: f64,
        size_max: usize,
        /// The sizes that were asked for.
        asked: Rc<RefCell<Vec<usize>>>,
    }

    impl Work for Scripted {
        fn units(&self, size: usize) -> f64 {
            size as f64
        }

        fn rate(&mut self, size: usize, _time: Duration) -> anyhow::Result<f64> {
            self.asked.borrow_mut().push(size);
            if size > self.size_max {
                bail!("out of memory");
            }
            Ok(self.positions_per_second / size as f64)
        }
    }

    fn setting(evaluators: usize) -> Setting {
        Setting::libtorch(Device::Cpu, Precision::F32, Split { evaluators, threads: 1 })
    }

    /// With everything that it is asked.
    fn scripted(size_max: usize) -> (Series, Rc<RefCell<Vec<usize>>>) {
        let asked = Rc::default();
        let work = Scripted { positions_per_second: 16.0, size_max, asked: Rc::clone(&asked) };
        (Series::new(setting(2), Ok(Box::new(work))), asked)
    }

    const LIMITS: Limits = Limits { time: Duration::from_millis(1), call_time_max: Duration::from_secs(2) };

    #[test]
    fn the_median_or_the_best_of_the_turns_is_reported() {
        let (mut series, _) = scripted(100);
        [3.0, 1.0, 2.0].into_iter().for_each(|rate| series.add(8, rate));
        let [speed] = series.report(Turn::Median).speeds[..] else { panic!("one size was measured") };
        // Two evaluators make two calls a second together: each call takes a second.
        assert_eq!((speed.size, speed.latency_us, speed.per_second), (8, 1e6, 16.0));
        assert_eq!(series.report(Turn::Best).speeds[0].per_second, 24.0);
    }

    #[test]
    fn sizes_at_which_a_call_would_take_too_long_are_left_out() {
        let (mut series, asked) = scripted(100);
        // Two evaluators answer 16 positions a second together: 16 of each take two seconds.
        for size in [1, 16, 17, 64, 16] {
            series.measure(size, LIMITS);
        }
        assert_eq!(*asked.borrow(), [1, 16, 16]);
        assert_eq!(series.report(Turn::Median).not_measured, None);
    }

    #[test]
    fn a_size_that_took_too_long_takes_no_further_turn() {
        let (mut series, asked) = scripted(100);
        [64, 64].into_iter().for_each(|size| series.measure(size, LIMITS));
        assert_eq!(*asked.borrow(), [64]);
        assert_eq!(series.report(Turn::Median).speeds.len(), 1);
    }

    #[test]
    fn what_a_device_refuses_is_a_reason_and_is_not_asked_again() {
        let (mut series, asked) = scripted(4);
        for size in [1, 8, 1] {
            series.measure(size, LIMITS);
        }
        assert_eq!(*asked.borrow(), [1, 8]);
        let report = series.report(Turn::Median);
        assert_eq!((report.speeds.len(), report.not_measured.as_deref()), (1, Some("size 8: out of memory")));
    }

    #[test]
    fn work_that_cannot_be_had_says_why() {
        let mut series = Series::new(setting(1), Err(anyhow!("no such operation").context("build the network")));
        series.measure(1, LIMITS);
        let report = series.report(Turn::Median);
        assert_eq!(report.not_measured.as_deref(), Some("build the network: no such operation"));
        assert!(report.speeds.is_empty());
    }
}
