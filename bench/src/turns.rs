//! Number and duration of turns per measurement, and choice of the reported turn.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, ensure};

/// The turn of a measurement that is reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Turn {
    /// The median: the expected speed of this machine.
    #[default]
    Median,
    /// The fastest: the speed of this machine without other load.
    Best,
}

impl Turn {
    /// Returns the chosen speed; `None` without speeds.
    pub(crate) fn speed(self, speeds: &[f64]) -> Option<f64> {
        self.of(speeds.to_vec(), |&speed| speed)
    }

    /// Returns the value with the chosen speed; the median of an even number is the faster of the middle two.
    pub(crate) fn of<T>(self, mut values: Vec<T>, speed: impl Fn(&T) -> f64) -> Option<T> {
        values.sort_by(|a, b| speed(a).total_cmp(&speed(b)));
        let index = match self {
            Self::Median => values.len() / 2,
            Self::Best => values.len().saturating_sub(1),
        };
        (index < values.len()).then(|| values.swap_remove(index))
    }

    /// Returns the chosen time; the shortest is the fastest.
    pub(crate) fn time(self, times: &[f64]) -> Option<f64> {
        self.of(times.to_vec(), |time| -time)
    }
}

/// Options for measurements in turns: compared measurements alternate, so that drift affects all alike.
#[derive(Debug, Clone, Copy, clap::Args, serde::Serialize)]
pub struct Turns {
    /// Duration of each turn, in seconds.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Number of repetitions of each measurement.
    #[arg(long, default_value_t = 3)]
    pub repeats: usize,
    /// Turn to report: the median or the fastest.
    #[arg(long, value_enum, default_value_t)]
    pub turn: Turn,
    /// Seed of all random draws, positions and weights.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Turns {
    /// Returns the duration of one measurement.
    ///
    /// # Errors
    /// There are no turns, or the duration is invalid.
    pub(crate) fn time(&self) -> anyhow::Result<Duration> {
        ensure!(self.repeats > 0, "--repeats must be at least 1");
        Duration::try_from_secs_f64(self.seconds).context("parse --seconds")
    }

    /// Measures every case once in each turn, and returns the cases with the result of the reported turn. `measure`
    /// takes a case and the index of the turn, `speed` orders the turns.
    ///
    /// # Errors
    /// A measurement fails.
    pub(crate) fn each<C, T>(
        &self,
        cases: impl IntoIterator<Item = C>,
        mut measure: impl FnMut(&mut C, u64) -> anyhow::Result<T>,
        speed: impl Fn(&T) -> f64,
    ) -> anyhow::Result<Vec<(C, T)>> {
        let mut all: Vec<(C, Vec<T>)> = cases.into_iter().map(|case| (case, Vec::new())).collect();
        for turn in 0..self.repeats as u64 {
            for (case, results) in &mut all {
                results.push(measure(case, turn)?);
            }
        }
        Ok(all.into_iter().filter_map(|(case, results)| Some((case, self.turn.of(results, &speed)?))).collect())
    }
}

/// Returns the sizes of an option, ascending and without duplicates.
pub(crate) fn ascending(option: &str, sizes: &[usize]) -> anyhow::Result<Vec<usize>> {
    ensure!(!sizes.is_empty() && !sizes.contains(&0), "every size in {option} must be at least 1");
    Ok(sizes.iter().copied().collect::<BTreeSet<_>>().into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_the_middle_or_the_fastest() {
        let turns = || vec![("slow", 1.0), ("fast", 3.0), ("middling", 2.0)];
        assert_eq!(Turn::Median.of(turns(), |turn| turn.1), Some(("middling", 2.0)));
        assert_eq!(Turn::Best.of(turns(), |turn| turn.1), Some(("fast", 3.0)));
        assert_eq!(Turn::Best.of(Vec::<f64>::new(), |&turn| turn), None);
    }

    #[test]
    fn the_median_is_the_middle_and_of_an_even_number_the_faster() {
        let (speed, time) = (|values: &[f64]| Turn::Median.speed(values), |values: &[f64]| Turn::Median.time(values));
        assert_eq!((speed(&[3.0, 1.0, 2.0]), speed(&[1.0, 2.0]), speed(&[])), (Some(2.0), Some(2.0), None));
        assert_eq!((time(&[3.0, 1.0, 2.0]), time(&[1.0, 2.0]), time(&[])), (Some(2.0), Some(1.0), None));
        assert_eq!(Turn::Best.time(&[3.0, 1.0, 2.0]), Some(1.0));
    }
}
