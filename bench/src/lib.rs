//! `zerofleet-bench`, which `zerofleet bench` runs: measures how fast the parts are, against what bounds them in the
//! same run.
//!
//! Each benchmark is a module with its options (`Args`) and `run`; start reading at [`Bench`]. [`Turns`] sets how often
//! and how long each measurement repeats.

mod accelerator;
mod digits;
pub mod evaluators;
pub mod fleet;
pub mod hardware;
pub mod inference;
pub mod kernel;
mod latency;
mod machine;
pub mod output;
pub mod phases;
pub mod placement;
mod positions;
mod random_weights;
pub mod replay;
pub mod report;
pub mod search;
pub mod selfplay;
mod threads;
mod training_run;
mod usage;

use std::io;
use std::time::Duration;

use anyhow::{Context, ensure};

/// Measures how fast the parts are.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "zerofleet-bench", bin_name = "zerofleet bench", version)]
pub struct Bench {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Part {
    /// The replay server: durable inserts, samples, and how long a restart takes.
    Replay(crate::replay::Args),
    /// The inference server over loopback, as a share of what the same evaluator does in a process.
    Inference(crate::inference::Args),
    /// Self-play, as a share of what the evaluator alone does.
    Selfplay(crate::selfplay::Args),
    /// The CPU kernel beside libtorch, OpenVINO and onnxruntime, as a share of what the instructions can do.
    Kernel(kernel::Args),
    /// The search tree alone, with an evaluator of constant answers.
    Search(crate::search::Args),
    /// Matrix products, vector operations and whole networks on every device in every precision, and what to use.
    Hardware(hardware::Args),
    /// A real training run: where its time goes, what holds it up, and what a longer one takes.
    Phases(phases::Args),
    /// Fleets of actors with a simulated evaluator, and the connections of a thousand: inserts, memory, weights.
    Fleet(crate::fleet::Args),
    /// Serves weights to subscribers; started by `fleet` in a process of its own.
    #[command(hide = true)]
    Publisher(crate::fleet::publisher::Args),
    /// A real training run: which device everything lies on, and what an accelerator gains.
    Placement(placement::Args),
}

impl Bench {
    /// Measures and prints.
    ///
    /// # Errors
    /// Those of the benchmark.
    pub fn run(self) -> anyhow::Result<()> {
        match self.part {
            Part::Replay(args) => crate::replay::run(&args, &mut io::stdout().lock()),
            Part::Inference(args) => crate::inference::run(&args, &mut io::stdout().lock()),
            Part::Selfplay(args) => crate::selfplay::run(&args, &mut io::stdout().lock()),
            Part::Kernel(args) => kernel::run(&args, &mut io::stdout().lock()),
            Part::Search(args) => crate::search::run(&args, &mut io::stdout().lock()),
            Part::Hardware(args) => hardware::run(&args, &mut io::stdout().lock()),
            Part::Phases(args) => phases::run(&args, &mut io::stdout().lock()),
            Part::Fleet(args) => crate::fleet::run(&args, &mut io::stdout().lock()),
            Part::Publisher(args) => crate::fleet::publisher::run(&args, &mut io::stdout().lock()),
            Part::Placement(args) => placement::run(&args, &mut io::stdout().lock()),
        }
    }
}

/// The choice among several turns.
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
        self.of(speeds.to_vec(), |&speed| speed)
    }

    /// Of whatever has a speed; the upper one of an even number.
    fn of<T>(self, mut values: Vec<T>, speed: impl Fn(&T) -> f64) -> Option<T> {
        values.sort_by(|a, b| speed(a).total_cmp(&speed(b)));
        let index = match self {
            Self::Median => values.len() / 2,
            Self::Best => values.len().saturating_sub(1),
        };
        (index < values.len()).then(|| values.swap_remove(index))
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

/// The turns that everything which is compared takes, one after the other.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Turns {
    /// The duration of each measurement.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Number of times that everything is measured.
    #[arg(long, default_value_t = 3)]
    pub repeats: usize,
    /// The turn that counts.
    #[arg(long, value_enum, default_value_t)]
    pub turn: Turn,
}

impl Turns {
    /// Returns the duration of one measurement.
    ///
    /// # Errors
    /// No turn at all, or a time that is none.
    fn time(&self) -> anyhow::Result<Duration> {
        ensure!(self.repeats > 0, "--repeats must be at least 1");
        Duration::try_from_secs_f64(self.seconds).context("read --seconds")
    }
}

/// The middle; the upper one of an even number.
fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Line<A: clap::Args> {
        #[command(flatten)]
        args: A,
    }

    /// Options as they are read from a command line.
    pub(super) fn args<A: clap::Args>(line: &str) -> A {
        parsed(line.split_whitespace()).unwrap()
    }

    /// The same, for options that may be refused.
    pub(super) fn parsed<'a, A: clap::Args>(options: impl IntoIterator<Item = &'a str>) -> Result<A, clap::Error> {
        Line::try_parse_from(["bench"].into_iter().chain(options)).map(|line| line.args)
    }

    #[test]
    fn a_turn_is_the_middle_or_the_fastest() {
        let turns = || vec![("slow", 1.0), ("fast", 3.0), ("middling", 2.0)];
        assert_eq!(Turn::Median.of(turns(), |turn| turn.1), Some(("middling", 2.0)));
        assert_eq!(Turn::Best.of(turns(), |turn| turn.1), Some(("fast", 3.0)));
        assert_eq!(Turn::Best.of(Vec::<f64>::new(), |&turn| turn), None);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[]), None);
    }
}
