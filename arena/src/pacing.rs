//! A small share of one core: how long to sleep after having worked.

use std::time::{Duration, Instant};

/// Keeps the share of time spent working at or below a bound, on average since it began.
#[derive(Debug, Clone)]
pub struct Pacing {
    share: f64,
    /// When the stretch of work or sleep under way began.
    resumed: Instant,
    busy: Duration,
    /// Sleep that is still owed.
    owed: Duration,
}

impl Pacing {
    /// Works for at most `share` of the time, above 0 and at most 1.
    ///
    /// # Panics
    /// If `share` is outside; the configuration has checked it.
    #[must_use]
    pub fn new(share: f64, now: Instant) -> Self {
        assert!(share > 0.0 && share <= 1.0, "a share of time");
        Self { share, resumed: now, busy: Duration::ZERO, owed: Duration::ZERO }
    }

    /// Ends a stretch of work: how long to sleep now. Tell [`resume`](Self::resume) when the sleep is over.
    pub fn pause(&mut self, now: Instant) -> Duration {
        let worked = now.saturating_duration_since(self.resumed);
        self.resumed = now;
        self.busy += worked;
        self.owed += worked.mul_f64(1.0 / self.share - 1.0);
        self.owed
    }

    /// Begins a stretch of work. Time slept counts against what is owed; time spent idle beyond that earns nothing.
    pub fn resume(&mut self, now: Instant) {
        self.owed = self.owed.saturating_sub(now.saturating_duration_since(self.resumed));
        self.resumed = now;
    }

    /// How long it has worked in all.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.busy
    }
}

#[cfg(test)]
mod tests;
