//! Duration and limits of the chaos test, read from the environment.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::anyhow;

use super::schedule::Lengths;

/// Default duration of the faults, which is short enough for CI.
const SECONDS: u64 = 25;
/// Default seed, so that every run of CI has the same faults: ten kinds in the default duration, including three disk
/// faults.
const SEED: u64 = 2_335;
/// Default limit, generous because the machine may be under other load. The chore sets 5.
const REJOIN_SECONDS: f64 = 20.0;
/// Minimum duration of the test for faults that last as long as in the field.
const WHOLE_FROM: Duration = Duration::from_secs(90);

/// Settings of a chaos test run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Duration of the faults: `ZEROFLEET_CHAOS_SECONDS`.
    pub length: Duration,
    /// Seed of the schedule: `ZEROFLEET_CHAOS_SEED`.
    pub seed: u64,
    /// Time within which every actor must rejoin after a repair: `ZEROFLEET_CHAOS_REJOIN_SECONDS`.
    pub rejoin_max: Duration,
    /// Text in the names of the faults to inject: `ZEROFLEET_CHAOS_FAULTS`.
    pub faults: String,
    /// Markdown file for the table of recovery times: `ZEROFLEET_CHAOS_REPORT`.
    pub report: Option<PathBuf>,
}

impl Plan {
    /// Reads the settings from the environment.
    ///
    /// # Errors
    /// A variable is set to a value that is not a number.
    pub fn from_environment() -> anyhow::Result<Self> {
        let rejoin = parsed("ZEROFLEET_CHAOS_REJOIN_SECONDS", REJOIN_SECONDS)?;
        Ok(Self {
            length: Duration::from_secs(parsed("ZEROFLEET_CHAOS_SECONDS", SECONDS)?),
            seed: parsed("ZEROFLEET_CHAOS_SEED", SEED)?,
            rejoin_max: Duration::try_from_secs_f64(rejoin)?,
            faults: parsed("ZEROFLEET_CHAOS_FAULTS", String::new())?,
            report: std::env::var_os("ZEROFLEET_CHAOS_REPORT").map(PathBuf::from),
        })
    }

    /// Returns the durations of faults for a test of this length.
    #[must_use]
    pub fn lengths(&self) -> Lengths {
        if self.length >= WHOLE_FROM { Lengths::Whole } else { Lengths::Short }
    }
}

fn parsed<T: FromStr>(name: &str, otherwise: T) -> anyhow::Result<T> {
    match std::env::var(name) {
        Ok(text) => text.parse().map_err(|_| anyhow!("{name}: `{text}` cannot be used")),
        Err(_) => Ok(otherwise),
    }
}
