//! The files of a run that grow over time: metrics and events, one JSON object per line.

use serde::{Deserialize, Serialize};

use crate::RunMetrics;

/// Maximum number of readings in a [`History`]: more than a chart has pixels.
const READINGS_MAX: usize = 500;

/// The recorded metrics of a run, evenly thinned: any number of readings takes bounded memory. The latest reading is
/// always among them.
#[derive(Debug, Clone)]
pub struct History {
    readings: Vec<RunMetrics>,
    /// Number of readings added per reading kept.
    stride: usize,
    count: usize,
}

impl Default for History {
    fn default() -> Self {
        Self { readings: Vec::new(), stride: 1, count: 0 }
    }
}

impl History {
    /// Adds a later reading.
    pub fn add(&mut self, reading: RunMetrics) {
        // The latest reading stays only if a stride has ended with it.
        if self.count > 0 && !(self.count - 1).is_multiple_of(self.stride) {
            self.readings.pop();
        }
        self.readings.push(reading);
        self.count += 1;
        if self.readings.len() > READINGS_MAX {
            let mut index = 0;
            self.readings.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride *= 2;
        }
    }

    /// Returns the number of readings added so far.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the kept readings, oldest first.
    pub fn readings(&self) -> &[RunMetrics] {
        &self.readings
    }
}

/// An event of a run: a restart, a fault, a change during a session.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunEvent {
    /// Unix time in seconds.
    pub unix_seconds: f64,
    /// The event in a sentence, as on the screen.
    pub text: String,
}

impl RunEvent {
    /// Start of the text of the event with which a session starts.
    pub const STARTED: &'static str = "session started";
    /// Text of the event with which a session ends, before it stops the processes.
    pub const ENDED: &'static str = "session ended";

    /// Returns true if a session starts with this event, and false if it ends; `None` for other events.
    pub fn starts_session(&self) -> Option<bool> {
        let ends = self.text == Self::ENDED;
        (ends || self.text.starts_with(Self::STARTED)).then_some(!ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(count: usize) -> Vec<f64> {
        let mut history = History::default();
        let reading = |second| RunMetrics { elapsed_seconds: second as f64, ..RunMetrics::default() };
        (0..count).for_each(|second| history.add(reading(second)));
        history.readings().iter().map(|reading| reading.elapsed_seconds).collect()
    }

    #[test]
    fn a_short_history_is_complete() {
        assert_eq!(history(0), [0.0; 0]);
        assert_eq!(history(3), [0.0, 1.0, 2.0]);
    }

    #[test]
    fn a_long_history_is_thinned_evenly_and_ends_with_the_latest_reading() {
        for count in [500, 501, 502, 4_321, 100_000] {
            let times = history(count);
            assert!((READINGS_MAX / 2..=READINGS_MAX).contains(&times.len()), "{} of {count}", times.len());
            assert_eq!((times[0], *times.last().unwrap()), (0.0, count as f64 - 1.0));
            let steps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let (last, others) = steps.split_last().unwrap();
            assert!(others.iter().all(|step| *step == others[0]) && *last <= others[0], "{count}: {steps:?}");
        }
    }
}
