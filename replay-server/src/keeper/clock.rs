use std::time::{Duration, Instant, SystemTime};

use crate::log::UnixMillis;

/// Time since 1970 that advances evenly, even if the machine's clock is set.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    unix: Duration,
}

impl Clock {
    /// Starts at the time of the machine's clock. A clock before 1970 counts as 1970.
    #[must_use]
    pub fn start() -> Self {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), unix }
    }

    /// Since 1970 until `now`.
    #[must_use]
    pub fn unix(&self, now: Instant) -> Duration {
        self.unix + now.saturating_duration_since(self.start)
    }
}

impl UnixMillis {
    /// By the machine's clock.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// Since 1970.
    #[must_use]
    pub fn since_1970(self) -> Duration {
        Duration::from_millis(self.0)
    }
}
