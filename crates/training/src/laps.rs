use std::time::{Duration, Instant};

/// A stopwatch for consecutive laps, with a given clock or without a clock.
pub struct Laps<'a> {
    clock: Option<&'a mut dyn FnMut() -> Instant>,
    last: Option<Instant>,
}

impl<'a> Laps<'a> {
    /// Creates a stopwatch with this clock, and starts the first lap.
    pub fn new(clock: &'a mut dyn FnMut() -> Instant) -> Self {
        let last = Some(clock());
        Self { clock: Some(clock), last }
    }

    /// Creates a stopwatch without a clock; every lap has the duration zero.
    pub fn none() -> Self {
        Self { clock: None, last: None }
    }

    /// Returns the duration of the current lap, and starts the next lap.
    pub fn lap(&mut self) -> Duration {
        let Some((clock, last)) = self.clock.as_mut().zip(self.last) else { return Duration::ZERO };
        let now = clock();
        self.last = Some(now);
        now.saturating_duration_since(last)
    }
}
