//! `zerofleet bench selfplay --ablate`: what each optimisation is worth. They are taken away one by one, and stay away, from
//! self-play as a run plays down to a loop over one game and one leaf in float32.
//!
//! Every step is this command with other options, in a process of its own, so that its memory is its own; the steps take
//! turns. A row can be had by itself with the options that it shows.

mod markdown;
mod plot;

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use network_cpu::KernelPreference;
use network_torch::{DevicePreference, PrecisionPreference};
use serde::{Deserialize, Serialize};

use super::{Args, Experience, Report};
use crate::{Turn, machine};

/// Leaves of the one game that is left when games no longer advance together, so that there still are batches.
const LEAVES_OF_ONE_GAME: usize = 8;

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ablation {
    /// The model of the CPU, as the system calls it.
    pub cpu: String,
    /// Instruction set and operating system.
    pub target: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// The game.
    pub game: String,
    /// Residual blocks and channels of the tower.
    pub network: String,
    /// Simulations of every move.
    pub simulations: u32,
    /// How long each turn took.
    pub seconds: f64,
    /// How many turns there were.
    pub repeats: usize,
    /// Which of them counts.
    pub turn: Turn,
    /// The seed.
    pub seed: u64,
    /// Positions/s of the first step over those of the last.
    pub full_over_naive: f64,
    /// By how much less memory a position's experience takes at first than at last.
    pub experience_saved: f64,
    /// From everything down to nothing.
    pub steps: Vec<Step>,
}

/// One step down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// What was taken away.
    pub without: String,
    /// The options that this step and those before it add to the command.
    pub options: Vec<String>,
    /// What evaluated.
    pub engine: String,
    /// Positions searched and played on from.
    pub positions_per_second: f64,
    /// Positions/s of the step before over those of this step: what it was worth.
    pub worth: Option<f64>,
    /// Positions/s over those of the last step.
    pub over_naive: f64,
    /// Positions the evaluator answered.
    pub evaluations_per_second: f64,
    /// Positions in a batch, on average.
    pub mean_batch: f64,
    /// The most memory that the process held, where the system tells.
    pub peak_memory_bytes: Option<u64>,
    /// Memory of the experience of a position.
    pub experience_bytes_per_position: f64,
}

/// What is taken away, and how.
type TakeAway = (&'static str, fn(&mut Args));

/// In this order.
const STEPS: [TakeAway; 10] = [
    ("nothing", |_| {}),
    ("symmetry reuse", |args| args.symmetry_reuse = false),
    ("the cache", |args| args.cache_positions = 0),
    ("subtree reuse", |args| args.subtree_reuse = false),
    ("bfloat16", |args| args.precision = PrecisionPreference::F32),
    ("the CPU kernel", |args| {
        args.kernel = KernelPreference::Libtorch;
        args.device = DevicePreference::Cpu;
    }),
    ("threads side by side", |args| args.threads = 1),
    ("vectorised games", |args| {
        args.games = 1;
        args.leaves = args.leaves.max(LEAVES_OF_ONE_GAME);
    }),
    ("batching", |args| args.leaves = 1),
    ("compact experience", |args| args.experience = Experience::Dense),
];

/// Measures, prints and writes.
///
/// # Errors
/// As [`super::run`]; a step that fails.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    ensure!(args.destination.compare.is_none(), "--compare has no part in --ablate");
    let ablation = measure(args, in_a_process)?;
    let markdown = || markdown::markdown(&ablation);
    args.destination.write("ablation", markdown, &ablation, |path| plot::draw(path, &ablation))?;
    args.destination.print(&ablation, markdown, out)
}

/// Measures each step once in each turn, by `measure_step`.
///
/// # Errors
/// As [`run`].
pub fn measure(args: &Args, measure_step: impl Fn(&Args) -> anyhow::Result<Report>) -> anyhow::Result<Ablation> {
    args.check()?;
    let mut turns = args.turns;
    turns.repeats = 1;
    let mut all = Vec::with_capacity(STEPS.len());
    let mut left = Args { turns, whole_only: true, ablate: false, ..args.clone() };
    for (without, take_away) in STEPS {
        take_away(&mut left);
        all.push((without, left.clone(), Vec::new()));
    }
    for repeat in 0..args.turns.repeats as u64 {
        for (without, step, reports) in &mut all {
            step.seed = args.seed.wrapping_add(repeat);
            reports.push(measure_step(step).with_context(|| format!("measure self-play without {without}"))?);
        }
    }
    let counting = all.into_iter().map(|(without, step, reports)| {
        let report = args.turns.turn.of(reports, |report| report.whole.positions_per_second);
        Ok((without, options(&step), report.context("--repeats must be at least 1")?))
    });
    Ok(ablation(args, &counting.collect::<anyhow::Result<Vec<_>>>()?))
}

fn ablation(args: &Args, counting: &[(&str, Vec<String>, Report)]) -> Ablation {
    let speed = |index: usize| counting[index].2.whole.positions_per_second;
    let bytes = |index: usize| counting[index].2.whole.experience_bytes_per_position;
    let last = counting.len() - 1;
    let step = |(index, (without, options, report)): (usize, &(&str, Vec<String>, Report))| Step {
        without: (*without).to_owned(),
        options: options.clone(),
        engine: report.engine.clone(),
        positions_per_second: speed(index),
        worth: index.checked_sub(1).map(|before| speed(before) / speed(index)),
        over_naive: speed(index) / speed(last),
        evaluations_per_second: report.whole.evaluations_per_second,
        mean_batch: report.whole.mean_batch,
        peak_memory_bytes: report.peak_memory_bytes,
        experience_bytes_per_position: bytes(index),
    };
    Ablation {
        cpu: machine::cpu_model(),
        target: machine::target(),
        cores: machine::cores(),
        game: counting[0].2.game.clone(),
        network: counting[0].2.network.clone(),
        simulations: args.simulations,
        seconds: args.turns.seconds,
        repeats: args.turns.repeats,
        turn: args.turns.turn,
        seed: args.seed,
        full_over_naive: speed(0) / speed(last),
        experience_saved: 1.0 - bytes(0) / bytes(last),
        steps: counting.iter().enumerate().map(step).collect(),
    }
}

/// What a command needs to measure a step.
fn options(args: &Args) -> Vec<String> {
    let Args { game, channels, blocks, threads, games, leaves, simulations, cache_positions, .. } = args;
    let Args { subtree_reuse, symmetry_reuse, experience, device, precision, kernel, in_flight, .. } = args;
    let pin = if args.pin { "--pin" } else { "" };
    let experience = match experience {
        Experience::Compact => "compact",
        Experience::Dense => "dense",
    };
    let text = format!(
        "--whole-only --game {game} --channels {channels} --blocks {blocks} --threads {threads} --games {games} --leaves \
         {leaves} --simulations {simulations} --cache-positions {cache_positions} --subtree-reuse {subtree_reuse} \
         --symmetry-reuse {symmetry_reuse} --experience {experience} --device {device} --precision {precision} --kernel {kernel} \
         --in-flight {in_flight} {pin}"
    );
    text.split_whitespace().map(str::to_owned).collect()
}

/// Runs this program again for one step.
fn in_a_process(args: &Args) -> anyhow::Result<Report> {
    let program = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(program);
    command.args(["selfplay", "--json"]).args(options(args));
    command.args(["--seconds", &args.turns.seconds.to_string(), "--repeats", "1", "--seed", &args.seed.to_string()]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("start a process")?;
    ensure!(output.status.success(), "the process ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("read what the process measured")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selfplay;
    use crate::tests::{args, parsed};

    const TINY: &str = "--game tic_tac_toe --channels 16 --blocks 1 --threads 2 --games 4 --simulations 8 --batches 2 \
                    --seconds 0.02 --repeats 1 --device cpu --kernel auto";

    #[test]
    fn every_step_is_measured_without_what_the_steps_before_it_lack() {
        let ablation = measure(&args(TINY), selfplay::measure).unwrap();
        let without: Vec<&str> = ablation.steps.iter().map(|step| step.without.as_str()).collect();
        assert_eq!(without.len(), STEPS.len());
        assert_eq!((without[0], without[9]), ("nothing", "compact experience"));
        assert!(ablation.steps.iter().all(|step| step.positions_per_second > 0.0));
        let last = &ablation.steps[9];
        assert_eq!((last.mean_batch, last.over_naive), (1.0, 1.0));
        assert!(last.engine.contains("libtorch"), "{}", last.engine);
        assert!(ablation.experience_saved > 0.0, "{}", ablation.experience_saved);
    }

    #[test]
    fn the_options_of_a_step_are_options_of_the_command() {
        let mut step = args::<Args>(&format!("{TINY} --in-flight 3 --pin"));
        for (without, take_away) in STEPS {
            take_away(&mut step);
            let options = options(&step);
            let read: Args = parsed(options.iter().map(String::as_str)).unwrap();
            assert_eq!(format!("{:?}", read.whole()), format!("{:?}", step.whole()), "without {without}");
            assert_eq!(
                (read.kernel, read.precision, read.device, read.whole_only, read.in_flight, read.pin),
                (step.kernel, step.precision, step.device, true, step.in_flight, step.pin),
                "without {without}"
            );
        }
    }

    #[test]
    fn the_worth_of_a_step_is_what_it_costs_to_go_without() {
        let reports = [400.0, 100.0, 10.0].map(|speed| {
            let mut report = selfplay::tests::report();
            report.whole.positions_per_second = speed;
            report.whole.experience_bytes_per_position = if speed < 50.0 { 500.0 } else { 50.0 };
            ("this", vec!["--games".to_owned()], report)
        });
        let ablation = ablation(&args(TINY), &reports);
        assert_eq!(ablation.steps.iter().map(|step| step.worth).collect::<Vec<_>>(), [None, Some(4.0), Some(10.0)]);
        assert_eq!((ablation.full_over_naive, ablation.experience_saved), (40.0, 0.9));
        let table = markdown::markdown(&ablation);
        assert!(table.contains("**40.0×** in positions/s, **90.0 %** less memory"), "{table}");
    }
}
