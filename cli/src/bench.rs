//! `zerofleet bench`: how fast the parts are, measured against what bounds them in the same run.

pub mod kernel;
mod machine;
mod output;
mod plot;
pub mod search;
pub mod selfplay;
mod threads;

/// Which of several turns counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Turn {
    /// The middle one: what to expect of this machine.
    #[default]
    Median,
    /// The fastest one: what this machine can do when its neighbours leave it alone.
    Best,
}

impl Turn {
    /// Of speeds.
    fn speed(self, speeds: &[f64]) -> Option<f64> {
        match self {
            Self::Median => median(speeds),
            Self::Best => speeds.iter().copied().max_by(f64::total_cmp),
        }
    }

    /// Of times.
    fn time(self, times: &[f64]) -> Option<f64> {
        match self {
            Self::Median => median(times),
            Self::Best => times.iter().copied().min_by(f64::total_cmp),
        }
    }
}

impl std::fmt::Display for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Median => "median",
            Self::Best => "best",
        })
    }
}

/// The middle; the upper one of an even number.
fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests;
