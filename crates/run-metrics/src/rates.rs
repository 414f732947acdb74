//! The recent expositions of one process, and the rates of the counters.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fleet::exposition::{Exposition, Series, increase};

/// Time span of rates: long enough for a few batches of finished games, short enough to show a stall.
pub(crate) const RATE_SPAN: Duration = Duration::from_secs(20);

/// The expositions of one process over the last 20 seconds, or over a measured time.
#[derive(Debug, Clone, Default)]
pub struct CounterRates {
    /// The expositions, oldest first.
    readings: VecDeque<(Instant, Exposition)>,
}

impl CounterRates {
    /// Returns the expositions at the start and the end of a time without a restart. Series that are missing at the
    /// start count from zero.
    pub fn between((begin, mut first): (Instant, Exposition), (end, last): (Instant, Exposition)) -> Self {
        let zeros = last.series.iter().map(|series| Series { value: 0.0, ..series.clone() });
        // A reading of the series at the start comes first, and so takes precedence.
        first.series.extend(zeros);
        Self { readings: [(begin, first), (end, last)].into() }
    }

    /// Adds an exposition that was read at `now`.
    pub fn remember(&mut self, now: Instant, exposition: Exposition) {
        self.readings.push_back((now, exposition));
        // One older exposition stays, so that rates cover at least the span.
        while self.readings.get(1).is_some_and(|(then, _)| now.duration_since(*then) >= RATE_SPAN) {
            self.readings.pop_front();
        }
    }

    /// Returns the latest exposition.
    pub fn newest(&self) -> Option<&Exposition> {
        self.readings.back().map(|(_, exposition)| exposition)
    }

    /// Returns the increase of a counter per second.
    pub fn rate(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.gained(name, labels, increase)
    }

    /// Returns the growth of a value per second; a decrease counts as zero.
    pub(crate) fn growth(&self, name: &str) -> Option<f64> {
        self.gained(name, &[], |last, value| (value - last).max(0.0))
    }

    fn gained(&self, name: &str, labels: &[(&str, &str)], gain: fn(f64, f64) -> f64) -> Option<f64> {
        let mut values =
            self.readings.iter().filter_map(|(then, exposition)| Some((*then, exposition.get(name, labels)?)));
        let (begin, first) = values.next()?;
        let (mut end, mut last, mut gained) = (begin, first, 0.0);
        for (then, value) in values {
            gained += gain(last, value);
            (end, last) = (then, value);
        }
        let seconds = end.duration_since(begin).as_secs_f64();
        let rate = gained / seconds;
        (seconds > 0.0 && rate.is_finite()).then_some(rate.max(0.0))
    }
}

/// Returns the series `name` in the latest exposition of a process.
pub(crate) fn named<'a>(rates: &'a CounterRates, name: &str) -> impl Iterator<Item = &'a Series> {
    rates.newest().into_iter().flat_map(|exposition| &exposition.series).filter(move |series| series.name == name)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a time, from which tests count.
    #[expect(clippy::disallowed_methods, reason = "an Instant has no other beginning; only differences count")]
    pub(crate) fn start() -> Instant {
        Instant::now()
    }

    /// Returns the rates of a process that exported these texts, one second apart.
    pub(crate) fn exported(texts: &[&str]) -> CounterRates {
        let begin = start();
        let mut rates = CounterRates::default();
        for (second, text) in texts.iter().enumerate() {
            rates.remember(begin + Duration::from_secs(second as u64), Exposition::parse(text));
        }
        rates
    }

    /// Returns the rates of a process that exported these values of `zerofleet_actor_a{part="x"}`, one second apart.
    pub(crate) fn rates_of(values: &[f64]) -> CounterRates {
        let texts: Vec<String> =
            values.iter().map(|value| format!("zerofleet_actor_a{{part=\"x\"}} {value}\n")).collect();
        exported(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[test]
    fn a_rate_is_the_increase_since_the_first_poll() {
        assert_eq!(
            rates_of(&[1000.0, 1010.0, 1020.0]).rate("zerofleet_actor_a", &[]),
            Some(10.0),
            "the first value is not an increase"
        );
        assert_eq!(rates_of(&[1000.0]).rate("zerofleet_actor_a", &[]), None);
        assert_eq!(rates_of(&[1000.0, 1010.0]).rate("zerofleet_actor_b", &[]), None);
    }

    #[test]
    fn a_counter_reset_never_makes_a_negative_rate() {
        assert_eq!(rates_of(&[1000.0, 5.0, 15.0]).rate("zerofleet_actor_a", &[]), Some(7.5));
    }

    #[test]
    fn only_the_last_seconds_count() {
        let values: Vec<f64> = (0..100).map(|second| if second < 60 { 0.0 } else { f64::from(second) }).collect();
        let rates = rates_of(&values);
        assert_eq!(rates.rate("zerofleet_actor_a", &[]), Some(1.0));
        assert!(rates.readings.len() <= 22, "{} readings", rates.readings.len());
    }

    #[test]
    fn series_that_appear_within_a_measured_time_count_from_zero() {
        let [first, last] = ["a 1\n", "a 4\nb{part=\"x\"} 6\n"].map(Exposition::parse);
        let begin = start();
        let rates = CounterRates::between((begin, first), (begin + Duration::from_secs(60), last));
        assert_eq!((rates.rate("a", &[]), rates.rate("b", &[("part", "x")])), (Some(0.05), Some(0.1)));
        assert_eq!(rates.rate("c", &[]), None);
    }
}
