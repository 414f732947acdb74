use std::time::{Duration, Instant, SystemTime};

/// A clock for the time since 1970 that advances evenly, even if the machine clock is set.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    unix: Duration,
}

impl Clock {
    /// Starts at the time of the machine clock. A clock before 1970 counts as 1970.
    pub fn start() -> Self {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self::at(Instant::now(), unix)
    }

    /// Starts at `unix`, the time from 1970 to `start`.
    pub fn at(start: Instant, unix: Duration) -> Self {
        Self { start, unix }
    }

    /// Returns the time from 1970 to `now`.
    pub fn unix(&self, now: Instant) -> Duration {
        self.unix + now.saturating_duration_since(self.start)
    }
}
