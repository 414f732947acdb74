//! Limits the measuring thread to a share of one core by computing its sleeps.

use std::time::{Duration, Instant};

/// Keeps the share of working time at or below a bound, on average since its creation.
#[derive(Debug, Clone)]
pub struct Pacing {
    share: f64,
    /// The start of the current period of work or sleep.
    resumed: Instant,
    busy: Duration,
    /// The sleep that is still due.
    owed: Duration,
}

impl Pacing {
    /// Creates a limiter to `share` of the time, above 0 and at most 1.
    ///
    /// # Panics
    /// If `share` is out of range; the configuration has checked it.
    #[must_use]
    pub fn new(share: f64, now: Instant) -> Self {
        assert!(share > 0.0 && share <= 1.0, "a share of time");
        Self { share, resumed: now, busy: Duration::ZERO, owed: Duration::ZERO }
    }

    /// Ends a period of work and returns the sleep that is due. Call [`resume`](Self::resume) after the sleep.
    pub fn pause(&mut self, now: Instant) -> Duration {
        let worked = now.saturating_duration_since(self.resumed);
        self.resumed = now;
        self.busy += worked;
        self.owed += worked.mul_f64(1.0 / self.share - 1.0);
        self.owed
    }

    /// Starts a period of work. Time slept is deducted from the due sleep; more idle time is not credited.
    pub fn resume(&mut self, now: Instant) {
        self.owed = self.owed.saturating_sub(now.saturating_duration_since(self.resumed));
        self.resumed = now;
    }

    /// Returns the total working time.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.busy
    }
}

#[cfg(test)]
mod tests {
    //! Tests pacing with a simulated clock.

    use std::time::{Duration, Instant};

    use super::Pacing;

    /// Works for each of `stretches`, sleeps as required, and returns the share of working time.
    fn share_of(share: f64, stretches: impl Iterator<Item = u64>) -> f64 {
        let start = Instant::now();
        let mut now = start;
        let mut pacing = Pacing::new(share, now);
        for stretch in stretches {
            now += Duration::from_millis(stretch);
            now += pacing.pause(now);
            pacing.resume(now);
        }
        pacing.busy().as_secs_f64() / (now - start).as_secs_f64()
    }

    #[test]
    fn the_share_is_kept_whatever_the_stretches() {
        for stretches in [vec![20; 500], vec![5_000, 1, 1, 1], vec![3]] {
            let share = share_of(0.1, stretches.into_iter());
            assert!((share - 0.1).abs() < 1e-6, "{share}");
        }
    }

    #[test]
    fn a_sleep_that_was_cut_short_is_made_up_for() {
        let mut now = Instant::now();
        let mut pacing = Pacing::new(0.5, now);
        now += Duration::from_millis(100);
        assert_eq!(pacing.pause(now), Duration::from_millis(100));
        now += Duration::from_millis(30);
        pacing.resume(now);
        assert_eq!(pacing.pause(now), Duration::from_millis(70));
    }

    #[test]
    fn a_full_share_never_sleeps() {
        let mut now = Instant::now();
        let mut pacing = Pacing::new(1.0, now);
        now += Duration::from_secs(5);
        assert_eq!(pacing.pause(now), Duration::ZERO);
    }

    #[test]
    fn being_idle_earns_nothing() {
        let mut now = Instant::now();
        let mut pacing = Pacing::new(0.5, now);
        pacing.pause(now);
        now += Duration::from_secs(3600);
        pacing.resume(now);
        now += Duration::from_millis(10);
        assert_eq!(pacing.pause(now), Duration::from_millis(10));
    }
}
