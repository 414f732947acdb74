//! How fast what a process counts has grown of late.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::exposition::Exposition;

/// Rates are taken over this time: long enough for a few batches of finished games, short enough to see a stall.
const SPAN: Duration = Duration::from_secs(20);

/// The counters of one process over a while.
#[derive(Debug, Clone, Default)]
pub(super) struct Growth {
    /// Oldest first.
    looks: VecDeque<(Instant, Exposition)>,
}

impl Growth {
    /// Takes in what it tells now.
    pub(super) fn remember(&mut self, now: Instant, exposition: Exposition) {
        self.looks.push_back((now, exposition));
        // One of the looks stays that are older, so that rates are over the span and not less.
        while self.looks.get(1).is_some_and(|(then, _)| now.duration_since(*then) >= SPAN) {
            self.looks.pop_front();
        }
    }

    /// Forgets all but the newest: what happened while nobody looked is not of late.
    pub(super) fn begin_anew(&mut self) {
        self.looks.clear();
    }

    /// What it told last.
    pub(super) fn newest(&self) -> Option<&Exposition> {
        self.looks.back().map(|(_, exposition)| exposition)
    }

    /// What a counter has gained a second.
    pub(super) fn rate(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut values = self.looks.iter().filter_map(|(then, told)| Some((*then, told.get(name, labels)?)));
        let (begin, first) = values.next()?;
        let (mut end, mut last, mut gained) = (begin, first, 0.0);
        for (then, value) in values {
            // A counter that fell began again: all of it is new.
            gained += if value < last { value } else { value - last };
            (end, last) = (then, value);
        }
        let seconds = end.duration_since(begin).as_secs_f64();
        let rate = gained / seconds;
        (seconds > 0.0 && rate.is_finite()).then_some(rate.max(0.0))
    }

    /// The rates of all series of one name, by the values of these labels.
    pub(super) fn rates_by(&self, name: &str, labels: &[&'static str]) -> BTreeMap<Vec<String>, f64> {
        let series = self.newest().into_iter().flat_map(|told| &told.series).filter(|series| series.name == name);
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
mod tests;
