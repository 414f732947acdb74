//! Waits until metrics of processes have grown.

use std::time::{Duration, Instant};

use anyhow::ensure;

use super::watch::{Seen, Watch};

/// Time within which every metric must grow.
pub(super) const RECOVERY_DEADLINE: Duration = Duration::from_secs(90);
/// Interval between polls.
const POLL: Duration = Duration::from_millis(20);

/// A metric of a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) watch: &'a Watch,
    pub(super) metric: &'static str,
}

impl<'a> At<'a> {
    /// Returns the condition that the metric grows beyond the first value read after `since`.
    pub(super) fn since(self, since: Instant) -> Growth<'a> {
        Growth { at: self, since, start_count: self.watch.start_count(), from: None }
    }

    /// Returns the same condition after a restart, when any value above zero is growth.
    pub(super) fn anew(self, since: Instant) -> Growth<'a> {
        Growth { from: Some(0.0), ..self.since(since) }
    }
}

/// The condition that a metric grows.
#[derive(Debug)]
pub(super) struct Growth<'a> {
    at: At<'a>,
    since: Instant,
    start_count: u32,
    from: Option<f64>,
}

impl Growth<'_> {
    /// Returns the time from `since` until the metric grew; `None` if it has not grown yet.
    fn time(&mut self) -> Option<Duration> {
        let Seen { began, ended, start_count, value } = self.at.watch.seen(self.at.metric)?;
        if began < self.since || start_count != self.start_count {
            return None;
        }
        // A missing metric is read as 0, which is not a baseline: after a restart, the metric first returns to the
        // value before the stop.
        if self.from.is_none() && value > 0.0 {
            self.from = Some(value);
        }
        (value > self.from?).then(|| ended.duration_since(self.since))
    }
}

/// Waits until all metrics have grown; returns the time of each.
pub(super) fn all_grow(growths: &mut [Growth]) -> anyhow::Result<Vec<Duration>> {
    grow_while(growths, || true)
}

/// Waits until all metrics have grown and `also` holds; returns the time of each.
pub(super) fn grow_while(growths: &mut [Growth], mut also: impl FnMut() -> bool) -> anyhow::Result<Vec<Duration>> {
    let start = Instant::now();
    let mut times: Vec<Option<Duration>> = vec![None; growths.len()];
    loop {
        for (growth, time) in growths.iter_mut().zip(&mut times) {
            *time = time.or_else(|| growth.time());
        }
        let others = also();
        if let (true, Some(times)) = (others, times.iter().copied().collect::<Option<Vec<_>>>()) {
            return Ok(times);
        }
        let missing: Vec<_> = growths.iter().zip(&times).filter(|(_, time)| time.is_none()).collect();
        let metrics: Vec<_> = missing.iter().map(|(growth, _)| growth.at.metric).collect();
        ensure!(start.elapsed() < RECOVERY_DEADLINE, "not within {RECOVERY_DEADLINE:?}: that these grow: {metrics:?}");
        std::thread::sleep(POLL);
    }
}
