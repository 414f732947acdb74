//! `zerofleet bench selfplay --ablate`: the gain from each optimisation. The optimisations are removed cumulatively,
//! from self-play as in a run down to a loop over one game and one leaf in float32.
//!
//! Every step is this command with other options, in a separate process, so that memory is measured separately; the
//! steps alternate. The options in a row reproduce that row by itself.

use anyhow::Context;
use network_cpu::KernelPreference;
use network_torch::{DevicePreference, PrecisionPreference};

use super::{Args, ENGINE, EVALUATIONS, EXPERIENCE, MEAN_BATCH, PEAK_MEMORY, POSITIONS, SELF_PLAY, WHOLE};
use crate::report::{Report, Unit};
use crate::{Turns, own_process};

/// Leaves of the single game, once games no longer advance together, so that there still are batches.
const LEAVES_OF_ONE_GAME: usize = 8;

/// Name of an optimisation, and the function that removes it from the options.
type TakeAway = (&'static str, fn(&mut Args));

/// Optimisations, in order of removal.
const STEPS: [TakeAway; 9] = [
    ("nothing", |_| {}),
    ("symmetry reuse", |args| args.symmetry_reuse = false),
    ("the cache", |args| args.cache_positions = 0),
    ("subtree reuse", |args| args.subtree_reuse = false),
    ("bfloat16 or int8", |args| args.precision = PrecisionPreference::F32),
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
];

/// Measures each step with this program in a separate process.
///
/// # Errors
/// An option is invalid, or a step fails.
pub fn in_processes(args: &Args) -> anyhow::Result<Report> {
    measure(args, |step| own_process::report(&arguments(step)))
}

/// Measures each step once in each turn, with `measure_step`.
///
/// # Errors
/// An option is invalid, or a step fails.
pub fn measure(args: &Args, measure_step: impl Fn(&Args) -> anyhow::Result<Report>) -> anyhow::Result<Report> {
    args.check()?;
    let mut turns = args.turns;
    turns.repeats = 1;
    let mut left = Args { turns, whole_only: true, ablate: false, ..args.clone() };
    let steps = STEPS.map(|(without, take_away)| {
        take_away(&mut left);
        (without, left.clone())
    });
    let measure = |(without, step): &mut (&'static str, Args), turn| {
        step.turns.seed = args.turns.seed.wrapping_add(turn);
        measure_step(step).with_context(|| format!("measure self-play without {without}"))
    };
    let measured = args.turns.each(steps, measure, |report| of(report, POSITIONS).unwrap_or(f64::NAN))?;
    Ok(ablation(args, &measured))
}

/// Returns a metric of whole self-play.
fn of(report: &Report, metric: &str) -> Option<f64> {
    report.value(SELF_PLAY, &[("self-play", WHOLE)], metric)
}

fn ablation(args: &Args, measured: &[((&str, Args), Report)]) -> Report {
    let value = |index: usize, metric| of(&measured[index].1, metric);
    let ratio = |above: Option<f64>, below: Option<f64>| Some(above? / below?);
    let last = measured.len() - 1;
    let mut report = Report::new("ablation", "What each optimisation of self-play is worth");
    for name in ["game", "network", "simulations"] {
        report.set(name, measured[0].1.settings.get(name).unwrap_or_default());
    }
    report.note("each row also goes without what the rows above it go without");
    report.note_turns(args.turns);
    report
        .note("each turn of each row is a process of its own, `zerofleet bench selfplay` with the options of the row");
    for (index, ((without, options), step)) in measured.iter().enumerate() {
        let engine = step.notes.iter().find_map(|note| note.strip_prefix(ENGINE)).unwrap_or("unknown");
        let worth = index.checked_sub(1).and_then(|before| ratio(value(before, POSITIONS), value(index, POSITIONS)));
        report.note(format!("without {without} ({engine}): {}", self::options(options).join(" ")));
        report
            .at("steps", &[("without", without)])
            .value(POSITIONS, Unit::PerSecond, value(index, POSITIONS))
            .value(WORTH, Unit::Ratio, worth)
            .value(OVER_LAST, Unit::Ratio, ratio(value(index, POSITIONS), value(last, POSITIONS)))
            .value(EVALUATIONS, Unit::PerSecond, value(index, EVALUATIONS))
            .value(MEAN_BATCH, Unit::Count, value(index, MEAN_BATCH))
            .value(PEAK_MEMORY, Unit::Bytes, value(index, PEAK_MEMORY))
            .value(EXPERIENCE, Unit::Bytes, value(index, EXPERIENCE));
    }
    report.plot("steps", POSITIONS, None, None);
    report
}

/// Positions/s of the previous step relative to this step: the gain from the optimisation.
const WORTH: &str = "worth";
/// Positions/s relative to the last step.
const OVER_LAST: &str = "over naive";

/// Returns the options of the command that measures a step.
fn options(args: &Args) -> Vec<String> {
    let Args { game, channels, blocks, threads, games, leaves, simulations, cache_positions, .. } = args;
    let Args { subtree_reuse, symmetry_reuse, device, precision, kernel, .. } = args;
    let simulations = simulations.map_or(String::new(), |number| format!("--simulations {number}"));
    let text = format!(
        "--whole-only --game {game} --channels {channels} --blocks {blocks} --threads {threads} --games {games} --leaves \
         {leaves} {simulations} --cache-positions {cache_positions} --subtree-reuse {subtree_reuse} \
         --symmetry-reuse {symmetry_reuse} --device {device} --precision {precision} --kernel {kernel}"
    );
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns the arguments with which this program measures a step once.
fn arguments(args: &Args) -> Vec<String> {
    let Turns { seconds, seed, .. } = args.turns;
    let once = ["--json", "--repeats", "1", "--seconds", &seconds.to_string(), "--seed", &seed.to_string()];
    ["selfplay"].into_iter().chain(once).map(str::to_owned).chain(options(args)).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::selfplay;
    use crate::tests::{args, parsed};

    const TINY: &str = "--game tic_tac_toe --channels 16 --blocks 1 --threads 2 --games 4 --simulations 8 --batches 2 \
                    --seconds 0.2 --repeats 1 --device cpu --kernel auto";

    #[test]
    fn every_ablation_step_also_omits_the_optimisations_of_earlier_steps() {
        let ablation = measure(&args(TINY), selfplay::measure).unwrap();
        let of = |without, metric| ablation.value("steps", &[("without", without)], metric);
        for (without, _) in STEPS {
            assert!(of(without, POSITIONS) > Some(0.0), "{without}: {ablation:?}");
        }
        let last = "batching";
        assert_eq!((of(last, MEAN_BATCH), of(last, OVER_LAST)), (Some(1.0), Some(1.0)));
        let text = ablation.markdown();
        assert!(text.contains("\n- without batching (libtorch"), "{text}");
    }

    #[test]
    fn the_options_of_a_step_are_options_of_the_command() {
        let mut step = args::<Args>(&format!("{TINY} --leaves 2"));
        for (without, take_away) in STEPS {
            take_away(&mut step);
            let options = options(&step);
            let program = std::iter::once("zerofleet-bench".to_owned());
            crate::Bench::try_parse_from(program.chain(arguments(&step))).unwrap();
            let read: Args = parsed(options.iter().map(String::as_str)).unwrap();
            assert_eq!(read.settings(3).unwrap(), step.settings(3).unwrap(), "without {without}");
            assert_eq!((read.threads, read.cache_positions), (step.threads, step.cache_positions), "without {without}");
            assert_eq!(
                (read.kernel, read.precision, read.device, read.whole_only),
                (step.kernel, step.precision, step.device, true),
                "without {without}"
            );
        }
    }

    #[test]
    fn the_worth_of_an_ablation_step_is_the_speed_ratio_with_and_without_it() {
        let reports = [400.0, 100.0, 10.0].map(|speed| {
            let mut report = Report::new("selfplay", "Self-play");
            let whole = report.at(SELF_PLAY, &[("self-play", &WHOLE)]);
            whole.value(POSITIONS, Unit::PerSecond, speed);
            report
        });
        let steps = ["nothing", "this", "that"].map(|without| (without, args::<Args>(TINY)));
        let measured: Vec<_> = steps.into_iter().zip(reports).collect();
        let ablation = ablation(&args(TINY), &measured);
        let worth = |without| ablation.value("steps", &[("without", without)], WORTH);
        assert_eq!(["nothing", "this", "that"].map(worth), [None, Some(4.0), Some(10.0)]);
        assert_eq!(ablation.value("steps", &[("without", "nothing")], OVER_LAST), Some(40.0));
    }
}
