//! How long the chaos lasts and how hard it is judged: asked of the environment.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::anyhow;

use super::schedule::Lengths;

/// Without being told: what CI has time for.
const SECONDS: u64 = 25;
/// Without being told: the same faults in every run of CI.
const SEED: u64 = 7;
/// Without being told: a machine that does ten other things at once is not what is tested. The chore asks for 5.
const REJOIN_SECONDS: f64 = 20.0;
/// From here on there is time for faults as long as in the field.
const WHOLE_FROM: Duration = Duration::from_secs(90);

/// What a run of the chaos test does.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// How long things go wrong: `ZEROFLEET_CHAOS_SECONDS`.
    pub length: Duration,
    /// What goes wrong, and when: `ZEROFLEET_CHAOS_SEED`.
    pub seed: u64,
    /// Within what time everyone must be back after a heal: `ZEROFLEET_CHAOS_REJOIN_SECONDS`.
    pub rejoin_max: Duration,
    /// Where the table of recovery times goes, as Markdown: `ZEROFLEET_CHAOS_REPORT`.
    pub report: Option<PathBuf>,
}

impl Plan {
    /// What the environment says.
    ///
    /// # Errors
    /// A variable that is set is no number.
    pub fn from_environment() -> anyhow::Result<Self> {
        let rejoin = number("ZEROFLEET_CHAOS_REJOIN_SECONDS", REJOIN_SECONDS)?;
        Ok(Self {
            length: Duration::from_secs(number("ZEROFLEET_CHAOS_SECONDS", SECONDS)?),
            seed: number("ZEROFLEET_CHAOS_SEED", SEED)?,
            rejoin_max: Duration::try_from_secs_f64(rejoin)?,
            report: std::env::var_os("ZEROFLEET_CHAOS_REPORT").map(PathBuf::from),
        })
    }

    /// How long the faults of such a run are.
    #[must_use]
    pub fn lengths(&self) -> Lengths {
        if self.length >= WHOLE_FROM { Lengths::whole() } else { Lengths::short() }
    }
}

fn number<T: FromStr>(name: &str, otherwise: T) -> anyhow::Result<T> {
    match std::env::var(name) {
        Ok(text) => text.parse().map_err(|_| anyhow!("{name}: `{text}` is no number")),
        Err(_) => Ok(otherwise),
    }
}
