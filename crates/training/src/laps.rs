use std::time::{Duration, Instant};

/// A stopwatch with a given clock, or without a clock.
pub struct Laps<'a> {
    clock: Option<&'a mut dyn FnMut() -> Instant>,
    last: Option<Instant>,
}

impl<'a> Laps<'a> {
    /// Starts the first lap.
    pub fn new(clock: &'a mut dyn FnMut() -> Instant) -> Self {
        let last = Some(clock());
        Self { clock: Some(clock), last }
    }

    /// Creates a stopwatch that measures zero for every lap.
    pub fn none() -> Self {
        Self { clock: None, last: None }
    }

    /// Returns the duration of the current lap and starts the next.
    pub fn lap(&mut self) -> Duration {
        let Some((clock, last)) = self.clock.as_mut().zip(self.last) else { return Duration::ZERO };
        let now = clock();
        self.last = Some(now);
        now.saturating_duration_since(last)
    }
}
