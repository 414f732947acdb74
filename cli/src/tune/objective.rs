//! The objective of a study: a metric to maximise or minimise, read from the recorded metrics of each run.

use game::{Game as _, Scoring};
use games::GameKind;
use run_metrics::{DISTINCT, RunMetrics};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use service::ConfigError;

/// Maximum number of values that an objective averages. A run records its metrics every five seconds.
const READINGS_MAX: usize = 10_000;

/// The section `[objective]` of a study file: a metric, whether to maximise or minimise the metric, and how many values
/// to average.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Objective {
    /// Name of the metric, as in event files, such as `elo/current`, `accuracy/search/optimal/overall` or
    /// `return/mean`.
    pub metric: String,
    pub direction: Direction,
    /// Number of values to average: the latest recorded values of the metric.
    #[serde(default = "one")]
    pub readings: usize,
}

fn one() -> usize {
    1
}

/// The direction of optimisation: whether a study maximises or minimises a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Direction {
    #[serde(alias = "maximize")]
    Maximise,
    #[serde(alias = "minimize")]
    Minimise,
}

impl Direction {
    /// Returns the word for the printed plan: `maximised` or `minimised`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Maximise => "maximised",
            Self::Minimise => "minimised",
        }
    }
}

impl Objective {
    /// Checks that runs of the game measure the metric.
    ///
    /// # Errors
    /// The metric is unknown or not measured in the game, or `readings` is out of range; [`ConfigError`] names the key.
    pub(super) fn check(&self, game: &str) -> Result<(), ConfigError> {
        let metric = &self.metric;
        let invalid = |reason: String| Err(ConfigError::invalid("objective.metric", reason));
        let metrics = metrics();
        if !metrics.contains(metric) {
            return invalid(format!("`{metric}` is not a metric of a run; metrics are {}", metrics.join(", ")));
        }
        // An external environment is scored by rewards, like every environment.
        let (has_rewards, has_solved) = match game.parse::<GameKind>() {
            Ok(kind) => {
                let scoring = kind.rules().spec().scoring;
                (scoring == Scoring::Rewards, strength::solved::is_measured(&kind))
            }
            Err(_) => (true, false),
        };
        let (of_outcomes, of_rewards) = (["elo/", "accuracy/"], ["return/"]);
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| metric.starts_with(prefix));
        if has_rewards && starts(&of_outcomes) {
            return invalid(format!("`{metric}` is not measured in {game}; use return/mean"));
        }
        if !has_rewards && starts(&of_rewards) {
            return invalid(format!("`{metric}` is not measured in {game}, which has no rewards"));
        }
        if !has_solved && starts(&["accuracy/"]) {
            return invalid(format!("`{metric}` is not measured in {game}, which has no solved positions"));
        }
        ConfigError::within("objective.readings", self.readings, 1..=READINGS_MAX).map(drop)
    }

    /// Returns the value of the metric in one reading; `None` if the metric is not measured yet.
    pub(super) fn of(&self, reading: &RunMetrics) -> Option<f64> {
        let scalars = reading.scalars().into_iter();
        scalars.filter(|(name, value)| *name == self.metric && value.is_finite()).map(|(_, value)| value).next()
    }

    /// Converts an objective to a score, where higher is better.
    pub(super) fn score(&self, objective: f64) -> f64 {
        match self.direction {
            Direction::Maximise => objective,
            Direction::Minimise => -objective,
        }
    }
}

/// Returns all metric names.
fn metrics() -> Vec<String> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(RunMetrics::default()) else { return Vec::new() };
    fields.values_mut().filter(|value| value.is_null()).for_each(|value| *value = Value::from(0.0));
    let measured: RunMetrics = serde_json::from_value(Value::Object(fields)).unwrap_or_default();
    measured.scalars().into_iter().map(|(name, _)| name).chain(measures_of_positions()).collect()
}

/// Returns the metric names that only some runs record: fractions of distinct positions, and measures on solved
/// positions.
pub(crate) fn measures_of_positions() -> impl Iterator<Item = String> {
    let distinct = DISTINCT.iter().map(|part| format!("distinct/{part}"));
    let bands = |search| {
        let bands = move |measure| {
            ["overall", "early", "middle", "late"].map(|band| format!("accuracy/{search}/{measure}/{band}"))
        };
        ["optimal", "preserving"].into_iter().flat_map(bands).chain([format!("accuracy/{search}/value_error/overall")])
    };
    distinct.chain(["raw", "search"].into_iter().flat_map(bands))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objective(metric: &str, direction: Direction) -> Objective {
        Objective { metric: metric.to_owned(), direction, readings: 1 }
    }

    fn refusal(metric: &str, game: &str) -> String {
        objective(metric, Direction::Maximise).check(game).unwrap_err().to_string()
    }

    #[test]
    fn every_metric_of_a_reading_is_an_objective_and_others_are_refused_with_the_list() {
        for (metric, game) in [
            ("elo/current", "tic_tac_toe"),
            ("accuracy/search/optimal/late", "connect_four"),
            ("distinct/empty/8-15", "connect_four"),
            ("accuracy/search/optimal/late", "hex-5"),
            ("return/mean", "catch"),
            ("return/mean", "gym:CartPole-v1"),
            ("loss/total", "catch"),
            ("learner/steps_per_second", "hex-5"),
        ] {
            assert!(objective(metric, Direction::Minimise).check(game).is_ok(), "{metric}");
        }
        let error = refusal("elo", "tic_tac_toe");
        assert!(
            error.starts_with("objective.metric: `elo` is not a metric of a run; metrics are actor/games, "),
            "{error}"
        );
        assert!(error.contains("elo/current") && error.contains("accuracy/raw/preserving/overall"), "{error}");
    }

    #[test]
    fn a_metric_that_the_game_does_not_have_is_refused() {
        let error = refusal("elo/current", "catch");
        assert_eq!(error, "objective.metric: `elo/current` is not measured in catch; use return/mean");
        let error = refusal("accuracy/raw/optimal/overall", "tic_tac_toe");
        let expected = "`accuracy/raw/optimal/overall` is not measured in tic_tac_toe, which has no solved positions";
        assert_eq!(error, format!("objective.metric: {expected}"));
        let error = refusal("return/mean", "tic_tac_toe");
        assert_eq!(error, "objective.metric: `return/mean` is not measured in tic_tac_toe, which has no rewards");
    }

    #[test]
    fn a_reading_without_the_metric_or_with_one_that_is_not_finite_has_no_objective() {
        let objective = objective("loss/total", Direction::Minimise);
        let reading = |loss_total| RunMetrics { loss_total, ..RunMetrics::default() };
        assert_eq!(objective.of(&reading(Some(1.5))), Some(1.5));
        assert_eq!(objective.of(&reading(Some(f64::NAN))), None);
        assert_eq!(objective.of(&reading(None)), None);
        assert!(objective.score(1.0) > objective.score(2.0));
    }
}
