//! Computes recent rates of the counters of one process.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use fleet::exposition::{Exposition, increase};

/// Time over which rates are computed: long enough for a few batches of finished games, short enough to show a stall.
const SPAN: Duration = Duration::from_secs(20);

/// The expositions of one process over the last [`SPAN`].
#[derive(Debug, Clone, Default)]
pub(super) struct CounterRates {
    /// The expositions, oldest first.
    readings: VecDeque<(Instant, Exposition)>,
}

impl CounterRates {
    /// Adds the exposition that was read at `now`.
    pub(super) fn remember(&mut self, now: Instant, exposition: Exposition) {
        self.readings.push_back((now, exposition));
        // One older exposition stays, so that rates cover at least the span.
        while self.readings.get(1).is_some_and(|(then, _)| now.duration_since(*then) >= SPAN) {
            self.readings.pop_front();
        }
    }

    /// Removes all expositions, because a rate across a gap in the readings would not be recent.
    pub(super) fn clear(&mut self) {
        self.readings.clear();
    }

    /// Returns the newest exposition.
    pub(super) fn newest(&self) -> Option<&Exposition> {
        self.readings.back().map(|(_, exposition)| exposition)
    }

    /// Returns the increase of a counter per second.
    pub(super) fn rate(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut values =
            self.readings.iter().filter_map(|(then, exposition)| Some((*then, exposition.get(name, labels)?)));
        let (begin, first) = values.next()?;
        let (mut end, mut last, mut gained) = (begin, first, 0.0);
        for (then, value) in values {
            gained += increase(last, value);
            (end, last) = (then, value);
        }
        let seconds = end.duration_since(begin).as_secs_f64();
        let rate = gained / seconds;
        (seconds > 0.0 && rate.is_finite()).then_some(rate.max(0.0))
    }

    /// Returns the rates of all series of one name, by the values of these labels.
    pub(super) fn rates_by(&self, name: &str, labels: &[&'static str]) -> BTreeMap<Vec<String>, f64> {
        let series =
            self.newest().into_iter().flat_map(|exposition| &exposition.series).filter(|series| series.name == name);
        let keys = series.filter_map(|series| {
            labels.iter().map(|label| series.label(label).map(str::to_owned)).collect::<Option<Vec<String>>>()
        });
        let rates = keys.filter_map(|key| {
            let wanted: Vec<(&str, &str)> =
                labels.iter().zip(&key).map(|(label, value)| (*label, value.as_str())).collect();
            let rate = self.rate(name, &wanted)?;
            Some((key, rate))
        });
        rates.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rates of a process that exported these values of `a{part="x"}`, one second apart.
    fn rates_of(values: &[f64]) -> CounterRates {
        let begin = Instant::now();
        let mut rates = CounterRates::default();
        for (second, value) in values.iter().enumerate() {
            let exposition = Exposition::parse(&format!("a{{part=\"x\"}} {value}\n"));
            rates.remember(begin + Duration::from_secs(second as u64), exposition);
        }
        rates
    }

    #[test]
    fn a_rate_is_the_increase_since_the_first_poll() {
        assert_eq!(
            rates_of(&[1000.0, 1010.0, 1020.0]).rate("a", &[]),
            Some(10.0),
            "the first value is not an increase"
        );
        assert_eq!(rates_of(&[1000.0]).rate("a", &[]), None);
        assert_eq!(rates_of(&[1000.0, 1010.0]).rate("b", &[]), None);
    }

    #[test]
    fn a_counter_reset_never_makes_a_negative_rate() {
        assert_eq!(rates_of(&[1000.0, 5.0, 15.0]).rate("a", &[]), Some(7.5));
    }

    #[test]
    fn only_the_last_seconds_count() {
        let values: Vec<f64> = (0..100).map(|second| if second < 60 { 0.0 } else { f64::from(second) }).collect();
        let rates = rates_of(&values);
        assert_eq!(rates.rate("a", &[]), Some(1.0));
        assert!(rates.readings.len() <= 22, "{} readings", rates.readings.len());
    }

    #[test]
    fn rates_come_by_label() {
        let rates = rates_of(&[0.0, 2.0]).rates_by("a", &["part"]);
        assert_eq!(rates.into_iter().collect::<Vec<_>>(), [(vec!["x".to_owned()], 2.0)]);
        assert!(rates_of(&[0.0, 2.0]).rates_by("a", &["part", "table"]).is_empty());
    }
}
