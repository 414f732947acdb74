use std::time::Duration;

use super::report::{SettingReport, Speed};
use super::setting::Setting;
use super::work::Work;
use crate::bench::Turn;

/// What is measured of one workload in one setting.
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

/// How long things may take.
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

    /// Takes a turn at a size. Who fails once is not asked again.
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

    /// Whether a call would take too long, by the time of one at the largest size so far that is no larger.
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

    /// What counts of the turns.
    pub(super) fn report(&self, turn: Turn) -> SettingReport {
        let speed = |measured: &Measured| {
            let rate = turn.speed(&measured.calls_per_second)?;
            Some(Speed {
                size: measured.size,
                latency_us: 1e6 * self.setting.evaluators as f64 / rate,
                per_second: rate * self.work.as_ref()?.units(measured.size),
                speed_up: None,
                ratio: None,
            })
        };
        SettingReport {
            setting: self.setting.clone(),
            speeds: self.sizes.iter().filter_map(speed).collect(),
            not_measured: self.failure.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
