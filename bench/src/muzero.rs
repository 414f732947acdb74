//! `zerofleet bench muzero`: inference and whole training loops of MuZero.
//!
//! It has two parts. `inference` times initial and recurrent inference on every engine; `training` runs a loop of
//! self-play and updates in a separate process. Start with [`measure`].

mod engine;
mod inference;
mod players;
mod replay;
pub mod training;
mod workload;

use std::time::Duration;

use anyhow::Context as _;
use games::GameKind;

use crate::Turns;
use crate::report::{Report, SoFar};
use inference::InferenceArgs;
use workload::{UNROLL_STEPS, Workload};

/// A part of the benchmark `zerofleet bench muzero`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Times of initial and recurrent inference.
    Inference,
    /// Whole training loops, one per game.
    Training,
}

/// Options of `zerofleet bench muzero`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Parts of the benchmark to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "inference,training")]
    pub parts: Vec<Part>,
    /// Games of the part `training`.
    #[arg(long = "game", value_delimiter = ',', default_value = "cartpole-v1,breakout")]
    pub games: Vec<GameKind>,
    /// Options of the part `inference`.
    #[command(flatten)]
    pub inference: InferenceArgs,
    /// Options for the work of training loops.
    #[command(flatten)]
    pub workload: Workload,
    /// Repeats and seed of the part `inference`; the seed also of training loops.
    #[command(flatten)]
    pub turns: Turns,
}

/// Runs the measurements, with `measure_loop` for training loops, and returns the report. Calls `so_far` with the
/// unfinished report after each part.
///
/// # Errors
/// An option is invalid, or an engine fails.
pub fn measure(
    args: &Args,
    measure_loop: &dyn Fn(&training::Args) -> anyhow::Result<Report>,
    so_far: SoFar<'_>,
) -> anyhow::Result<Report> {
    Duration::try_from_secs_f64(args.workload.loop_seconds).context("parse --loop-seconds")?;
    let mut report = args.empty_report();
    // The device lookup must come before any other use of libtorch.
    if args.parts.contains(&Part::Inference) {
        inference::add(&mut report, &args.inference, args.turns)?;
        so_far(&report)?;
    }
    if args.parts.contains(&Part::Training) {
        for game in &args.games {
            let (workload, seed) = (args.workload.clone(), args.turns.seed);
            let of_game = training::Args { game: game.clone(), workload, seed };
            let measured = measure_loop(&of_game).with_context(|| format!("measure the loop of {game}"))?;
            report.rows.extend(measured.rows);
            report.note(format!("{game}: {}", measured.notes.join(", ")));
            so_far(&report)?;
        }
    }
    Ok(report)
}

impl Args {
    fn empty_report(&self) -> Report {
        let Workload { environments, simulations, leaves, steps, batch, positions, .. } = self.workload;
        let Workload { publish_iterations, loop_seconds, .. } = self.workload;
        let mut report = Report::new("muzero", "MuZero: inference and training loops");
        report.set("environments", environments);
        report.set("simulations", simulations);
        report.set("leaves", leaves);
        report.set("iteration", format!("{steps} steps and an update of {batch} positions x {UNROLL_STEPS} steps"));
        report.set("replay", format!("{positions} positions"));
        report.note(format!("weights are published every {publish_iterations} iterations"));
        report.note_turns(self.turns);
        report.note(format!(
            "a training loop: once, in a process of its own, for {loop_seconds} s and at least two iterations after the first"
        ));
        report
    }
}

#[cfg(test)]
mod tests {
    use game::Game as _;
    use games::CartPole;

    use super::engine::Engine;
    use super::players::players;
    use super::*;
    use crate::network::published;
    use crate::tests::{args, parsed};

    const TINY: &str = "--game cartpole-v1 --networks 1x32@1x1,1x32@3x3 --batches 1,4 --call-seconds 0 --channels 32 --blocks 1 \
                        --environments 4 --simulations 2 --steps 4 --batch 4 --positions 40 --threads 2 \
                        --publish-iterations 1 --training-precision f32 --loop-seconds 0 --seconds 0.02 --repeats 1";

    #[test]
    fn a_tiny_run_measures_every_part() {
        let mut parts = 0;
        let report = measure(&args(TINY), &training::measure, &mut |_| {
            parts += 1;
            Ok(())
        });
        let report = report.unwrap();
        assert_eq!(parts, 2, "the report is written after each part");
        for section in [inference::INITIAL, inference::RECURRENT] {
            for network in ["dense 1x32", "residual 1x32@3x3"] {
                for batch in ["1", "4"] {
                    let at = [("network", network), ("engine", "libtorch cpu f32"), ("batch", batch)];
                    assert!(report.value(section, &at, inference::TIME) > Some(0.0), "{report:?}");
                    assert_eq!(report.value(section, &at, inference::OVER_LIBTORCH), Some(1.0));
                }
            }
        }
        let of_loop = |metric| report.value(training::SECTION, &[("game", "cartpole-v1")], metric);
        assert!(of_loop(training::MEASURED) >= Some(2.0) && of_loop(training::ITERATIONS) > Some(0.0), "{report:?}");
    }

    #[test]
    fn the_report_is_a_table_or_json() {
        let (mut table, mut json) = (Vec::new(), Vec::new());
        let line = format!("{TINY} --parts inference");
        crate::tests::run("muzero", &line, &mut table).unwrap();
        crate::tests::run("muzero", &format!("{line} --json"), &mut json).unwrap();
        assert!(String::from_utf8(table).unwrap().contains("| over libtorch cpu f32 |"));
        let report: Report = serde_json::from_slice(&json).unwrap();
        assert!(report.sections().contains(&inference::RECURRENT), "{report:?}");
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let error = |line: &str| format!("{:#}", crate::tests::run("muzero", line, &mut Vec::new()).unwrap_err());
        let rejected = |option| parsed::<Args>([option, "0"]).unwrap_err().to_string();
        for option in ["--simulations", "--environments", "--positions"] {
            assert!(rejected(option).contains(option) && rejected(option).contains("at least 1"), "{option}");
        }
        assert!(error("--parts inference --batches 0").contains("--batches"));
        assert!(error("--loop-seconds=-1").contains("--loop-seconds"));
        assert!(parsed::<Args>(["--parts", "search"]).is_err());
    }

    #[test]
    fn threads_have_equal_shares_of_the_environments() {
        let game = CartPole::new(games::cartpole::Version::new(0).unwrap());
        let shares = |threads, environments| {
            let workload = args::<Args>(&format!("--precision f32 --channels 32 --threads {threads}")).workload;
            let weights = published(workload.architecture(game.spec()), 3).unwrap();
            let engine = Engine::new(&workload).unwrap();
            let all = players(&game, &workload, environments, (&engine, &weights), 1).unwrap();
            all.iter().map(|player| player.episodes.slots()).collect::<Vec<_>>()
        };
        assert_eq!(shares(3, 256), [85, 85, 86]);
        assert_eq!(shares(4, 1), [1]);
    }
}
