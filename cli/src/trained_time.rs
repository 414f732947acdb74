//! Counts the training time of a run.

use std::time::{Duration, Instant};

/// Training time of a run over all sessions, without the time during which a required process did not work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrainedTime {
    trained: Duration,
    /// Time of the last call of [`pass`](Self::pass).
    until: Instant,
}

impl TrainedTime {
    /// Resumes from the time of earlier sessions.
    pub(crate) fn resume(before: Duration, now: Instant) -> Self {
        Self { trained: before, until: now }
    }

    /// Counts the time since the last call if all required processes work now.
    pub(crate) fn pass(&mut self, now: Instant, works: bool) {
        if works {
            self.trained += now.saturating_duration_since(self.until);
        }
        self.until = now;
    }

    /// Returns the training time up to the last call of [`pass`](Self::pass).
    pub(crate) fn get(&self) -> Duration {
        self.trained
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_a_needed_process_does_not_work_is_left_out() {
        let begin = Instant::now();
        let mut time = TrainedTime::resume(Duration::from_secs(60), begin);
        for (second, works) in [(5, false), (15, true), (16, false), (30, false), (32, true)] {
            time.pass(begin + Duration::from_secs(second), works);
        }
        assert_eq!(time.get(), Duration::from_secs(60 + 10 + 2));
    }
}
