//! The section `[budget]` of a study file: the length of each run in minutes or positions.

use std::fmt;

use run_metrics::RunMetrics;
use serde::{Deserialize, Serialize};
use service::ConfigError;

/// The section `[budget]` of a study file, before checking.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BudgetSection {
    pub minutes: Option<f64>,
    pub positions: Option<f64>,
    pub minutes_max: Option<f64>,
}

/// The budget of a trial, in minutes or positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Budget {
    /// Training time in minutes.
    Minutes(f64),
    /// Number of positions from self-play, with a time limit of `minutes_max` minutes.
    Positions { positions: f64, minutes_max: f64 },
}

impl Budget {
    /// Checks the section `[budget]`.
    ///
    /// # Errors
    /// A key is missing or out of range; [`ConfigError`] names the key.
    pub(crate) fn new(written: &BudgetSection) -> Result<Self, ConfigError> {
        let minutes = |name: &str, minutes: f64| ConfigError::within(format!("budget.{name}"), minutes, 1e-3..=1e6);
        match *written {
            BudgetSection { minutes: Some(length), positions: None, minutes_max: None } => {
                Ok(Self::Minutes(minutes("minutes", length)?))
            }
            BudgetSection { minutes: None, positions: Some(positions), minutes_max: Some(length) } => {
                let positions = ConfigError::within("budget.positions", positions, 1.0..=1e15)?;
                Ok(Self::Positions { positions, minutes_max: minutes("minutes_max", length)? })
            }
            BudgetSection { minutes: None, positions: Some(_), minutes_max: None } => {
                Err(ConfigError::invalid("budget.minutes_max", "is missing; set the time limit of a trial in minutes"))
            }
            _ => Err(ConfigError::invalid("budget", "needs minutes, or positions and minutes_max")),
        }
    }

    /// Returns the full budget of a trial, in minutes or positions.
    pub(crate) fn full(self) -> f64 {
        match self {
            Self::Minutes(minutes) => minutes,
            Self::Positions { positions, .. } => positions,
        }
    }

    /// Returns the maximum length of a trial's run in minutes.
    pub(crate) fn run_minutes(self) -> f64 {
        match self {
            Self::Minutes(minutes) => minutes,
            Self::Positions { minutes_max, .. } => minutes_max,
        }
    }

    /// Returns the budget that the run had used when these metrics were read, in minutes or positions.
    pub(crate) fn used(self, reading: &RunMetrics) -> f64 {
        match self {
            Self::Minutes(_) => reading.elapsed_seconds / 60.0,
            Self::Positions { .. } => reading.positions.unwrap_or(0.0),
        }
    }

    /// Returns the unit of the budget: `minutes` or `positions`.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Minutes(_) => "minutes",
            Self::Positions { .. } => "positions",
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.full(), self.unit())
    }
}
