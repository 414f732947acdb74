//! `zerofleet bench selfplay`: the speed of self-play as a share of the evaluator alone, and the gain from each
//! optimisation.
//!
//! All measurements use the same network, device and number of threads, in the same run. An evaluator alone evaluates
//! full, prepared batches at every batch size of a list; the speed at the best size is the upper bound. Self-play is
//! measured twice: plain, without cache and reuse, so that no evaluation is saved; and whole, as in a run. Both are
//! measured in turns with the evaluators, because the speed of a machine varies during the measurement. Games have the
//! search of the preset and begin at different plies, and the kernel chooses the precision as in an actor. Start with
//! [`measure`].

pub mod ablation;
mod play;
pub mod simulated;

use anyhow::ensure;
use evaluators::Backend;
use game::Game;
use games::{GameKind, with_game};
use network_cpu::KernelPreference;
use network_torch::{DevicePreference, PrecisionPreference};

use crate::report::{Report, Unit, Value, value_of};
use crate::{Turns, machine};
use play::Contestants;
use simulated::SimulatedArgs;

/// Options of `zerofleet bench selfplay`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Game to play.
    #[arg(long, default_value = "connect_four")]
    pub game: GameKind,
    /// Channels of the network tower.
    #[arg(long, default_value_t = 64)]
    pub channels: usize,
    /// Residual blocks of the network tower.
    #[arg(long, default_value_t = 6)]
    pub blocks: usize,
    /// Number of threads, each with a separate evaluator; 0 for one per core.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Number of games that advance together in each thread.
    #[arg(long, default_value_t = 64)]
    pub games: usize,
    /// Number of leaves per game in a batch.
    #[arg(long, default_value_t = 1)]
    pub leaves: usize,
    /// Simulations of every search [default: full and fast searches of the game's preset].
    #[arg(long)]
    pub simulations: Option<u32>,
    /// Position cache size for whole self-play; 0 disables the cache.
    #[arg(long, default_value_t = 1 << 20)]
    pub cache_positions: usize,
    /// Keep the subtree below the played move, where whole games are played.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub subtree_reuse: bool,
    /// Share evaluations between symmetric positions, where whole games are played.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub symmetry_reuse: bool,
    /// Measure only whole self-play, with cache and reuse.
    #[arg(long)]
    pub whole_only: bool,
    /// Remove the optimisations of self-play one by one.
    ///
    /// Each step runs in a separate process.
    #[arg(long)]
    pub ablate: bool,
    /// Batch sizes for measuring the evaluators alone.
    #[arg(long, value_delimiter = ',', default_value = "1,8,16,32,64,128,256,512")]
    pub batches: Vec<usize>,
    /// Duration, repeats and seed of every measurement.
    #[command(flatten)]
    pub turns: Turns,
    /// Device: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`.
    #[arg(long, default_value = "auto")]
    pub device: DevicePreference,
    /// Precision: `auto`, `f32`, `bf16` or `int8`, as in an actor.
    #[arg(long, default_value = "auto")]
    pub precision: PrecisionPreference,
    /// CPU engine to evaluate with: `auto`, `libtorch`, or a kernel such as `avx512-bf16`.
    #[arg(long, default_value = "auto")]
    pub kernel: KernelPreference,
    /// Options for self-play on a simulated accelerator.
    #[command(flatten)]
    pub simulated: SimulatedArgs,
}

/// Runs the measurements and returns the report.
///
/// # Errors
/// An option is invalid, a network cannot be built, or an evaluator fails.
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    args.check()?;
    if args.simulated.simulate {
        return with_game!(args.game, |game| simulated::measure(&game, args));
    }
    with_game!(args.game, |game| measure_game(&game, args))
}

impl Args {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.games > 0 && self.leaves > 0, "--games and --leaves must be at least 1");
        ensure!(self.simulations != Some(0), "--simulations must be at least 1");
        ensure!(!self.batches.is_empty() && !self.batches.contains(&0), "every size in --batches must be at least 1");
        self.turns.time().map(drop)
    }
}

fn measure_game<G: Game>(game: &G, args: &Args) -> anyhow::Result<Report> {
    let time = args.turns.time()?;
    let plain = Args { cache_positions: 0, subtree_reuse: false, symmetry_reuse: false, ..args.clone() };
    let contestants = Contestants::new(game, args)?;
    let (selfplay, libtorch) = contestants.backends()?;
    let engines: [(&str, &dyn Backend); 2] = [("of self-play", &*selfplay), ("libtorch", &*libtorch)];

    let mut cases = vec![Case::Whole];
    if !args.whole_only {
        let of_engine = |engine| args.batches.iter().map(move |&batch| Case::Alone { engine, batch });
        cases = [0, 1].into_iter().flat_map(of_engine).chain([Case::Plain, Case::Whole]).collect();
    }
    let measure = |case: &mut Case, turn| -> anyhow::Result<Vec<Value>> {
        match *case {
            Case::Alone { engine, batch } => {
                let speed = contestants.alone(engines[engine].1, batch, time)?;
                Ok(vec![(EVALUATIONS, Unit::PerSecond, Some(speed))])
            }
            Case::Plain => contestants.play(&*selfplay, &plain, turn, time, None),
            Case::Whole => contestants.play(&*selfplay, args, turn, time, None),
        }
    };
    let speed = |values: &Vec<Value>| value_of(values, POSITIONS).or(value_of(values, EVALUATIONS)).unwrap_or(f64::NAN);
    let measured = args.turns.each(cases, measure, speed)?;

    let mut report = Report::new("selfplay", "Self-play beside its evaluator alone");
    report.set("network", format!("{}x{}", args.blocks, args.channels));
    contestants.describe(&mut report);
    report.note(format!("{ENGINE}{}", contestants.evaluator_name(&*selfplay)?));
    report.note(format!("libtorch: {}", libtorch.describe()));
    if let Some(in_flight) = libtorch.0.in_flight() {
        report.note(format!("batches of libtorch in flight: at most {in_flight}"));
    }
    report.note_turns(args.turns);
    // `f64::max` ignores NaN: no batch was measured yet.
    let mut best = [f64::NAN; 2];
    for (case, values) in &measured {
        let evaluations = value_of(values, EVALUATIONS).unwrap_or(f64::NAN);
        match *case {
            Case::Alone { engine, batch } => {
                best[engine] = best[engine].max(evaluations);
                report.at(ALONE, &[("evaluator", &engines[engine].0), ("batch", &batch)]).values(values);
            }
            Case::Plain => {
                let [of_own, of_libtorch] = best.map(|best| evaluations / best);
                report
                    .at(SELF_PLAY, &[("self-play", &PLAIN)])
                    .values(values)
                    .value("share of its evaluator's best batch", Unit::Share, of_own)
                    .value("share of libtorch's best batch", Unit::Share, of_libtorch);
            }
            Case::Whole => {
                let peak = machine::peak_memory_bytes().map(|bytes| bytes as f64);
                let cell = report.at(SELF_PLAY, &[("self-play", &WHOLE)]);
                cell.values(values).value(PEAK_MEMORY, Unit::Bytes, peak);
            }
        }
    }
    report.plot(ALONE, EVALUATIONS, Some("batch"), None);
    report.plot(SELF_PLAY, POSITIONS, None, None);
    Ok(report)
}

/// A measurement of each turn.
#[derive(Debug, Clone, Copy)]
enum Case {
    /// An evaluator on prepared batches.
    Alone {
        /// Index of the engine.
        engine: usize,
        batch: usize,
    },
    Plain,
    Whole,
}

/// Evaluators by themselves, on full batches.
const ALONE: &str = "evaluators alone";
const SELF_PLAY: &str = "self-play";
const PLAIN: &str = "plain: no cache, no reuse";
const WHOLE: &str = "whole";
const EVALUATIONS: &str = "evaluations/s";
const POSITIONS: &str = "positions/s";
const MEAN_BATCH: &str = "mean batch";
const EXPERIENCE: &str = "experience per position";
const PEAK_MEMORY: &str = "peak memory of the process";
/// Prefix of the note that names the evaluator of self-play.
const ENGINE: &str = "self-play evaluates with: ";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{args, parsed};

    const TINY: &str = "--game tic_tac_toe --channels 16 --blocks 1 --threads 2 --games 4 --simulations 8 --batches 2,4 \
                    --seconds 0.02 --repeats 1 --device cpu --precision f32 --kernel auto";

    fn of_whole(report: &Report, metric: &str) -> f64 {
        report.value(SELF_PLAY, &[("self-play", WHOLE)], metric).unwrap()
    }

    #[test]
    fn a_tiny_run_measures_everything() {
        let report = measure(&args(TINY)).unwrap();
        for evaluator in ["of self-play", "libtorch"] {
            for batch in ["2", "4"] {
                let dimensions = [("evaluator", evaluator), ("batch", batch)];
                assert!(report.value(ALONE, &dimensions, EVALUATIONS) > Some(0.0), "{report:?}");
            }
        }
        let plain = |metric| report.value(SELF_PLAY, &[("self-play", PLAIN)], metric);
        assert!(plain("simulations/s") > Some(0.0) && plain("cache hit rate") == Some(0.0));
        assert!(plain("share of its evaluator's best batch").is_some());
        assert!(plain("share of libtorch's best batch").is_some());
        assert!(of_whole(&report, "cache hit rate") > 0.0);
    }

    #[test]
    fn whole_self_play_can_be_measured_by_itself() {
        let report = measure(&args(&format!("{TINY} --whole-only"))).unwrap();
        assert_eq!(report.sections(), [SELF_PLAY]);
        assert!((1.0..200.0).contains(&of_whole(&report, EXPERIENCE)), "{report:?}");
    }

    #[test]
    fn on_a_cpu_nothing_is_in_flight() {
        let text = measure(&args(&format!("{TINY} --whole-only"))).unwrap().markdown();
        assert!(!text.contains("in flight"), "{text}");
    }

    #[test]
    fn the_report_is_a_table_or_json() {
        let (mut table, mut json) = (Vec::new(), Vec::new());
        crate::tests::run("selfplay", TINY, &mut table).unwrap();
        crate::tests::run("selfplay", &format!("{TINY} --json --cache-positions 1000"), &mut json).unwrap();
        let table = String::from_utf8(table).unwrap();
        assert!(table.contains(" of its evaluator's best batch |") && table.contains("\n| whole | "), "{table}");
        let read: Report = serde_json::from_slice(&json).unwrap();
        assert!(of_whole(&read, POSITIONS) > 0.0);
    }

    #[test]
    fn reports_are_written_and_compared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        crate::tests::run("selfplay", &format!("{TINY} --out {path}"), &mut Vec::new()).unwrap();
        let mut table = Vec::new();
        crate::tests::run("selfplay", &format!("{TINY} --compare {path}/selfplay.json"), &mut table).unwrap();
        assert!(String::from_utf8(table).unwrap().contains("/selfplay.json, measured on "));
        assert!(std::fs::read_to_string(folder.path().join("selfplay.svg")).unwrap().contains("<svg"));
        let error = crate::tests::run("selfplay", &format!("{TINY} --compare {path}/selfplay.md"), &mut Vec::new())
            .unwrap_err();
        assert!(error.to_string().contains("selfplay.md"), "{error}");
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let error = measure(&Args { batches: vec![0], ..args(TINY) }).unwrap_err();
        assert!(error.to_string().contains("--batches"));
        assert!(parsed::<Args>(["--game", "checkers"]).is_err());
    }
}
