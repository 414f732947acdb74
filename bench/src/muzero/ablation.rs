//! Training loops from full to naive: with all optimisations, without one of them at a time, and without any.
//!
//! Each loop runs in a process of its own, so that its memory is its own; a row can be reproduced by itself with the
//! options that the report shows.

use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use games::GameKind;
use network_cpu::KernelPreference;
use network_torch::{DevicePreference, PrecisionPreference};

use super::engine::{Calls, EngineArgs, Latents};
use super::replay::Form;
use super::training::{
    self, ENGINE, ITERATIONS, LATENT_BYTES, LOOP, MEASURED, PEAK_MEMORY, REPLAY_BYTES, SIMULATIONS, STEPS, UPDATES,
    Updates, Variant,
};
use super::workload::{TrainingPrecision, Workload};
use crate::output::Destination;
use crate::report::{Report, Unit, percent};

/// The engine of naive loops.
pub(super) const LIBTORCH: EngineArgs = EngineArgs {
    device: DevicePreference::Cpu,
    precision: PrecisionPreference::F32,
    kernel: KernelPreference::Libtorch,
};

/// The name of an optimisation, and the function that removes it.
type TakeAway = (&'static str, fn(&mut Variant));

/// The optimisations.
const OPTIMISATIONS: [TakeAway; 7] = [
    ("batched simulations", |variant| variant.calls = Calls::Single),
    ("vectorised environments", |variant| variant.environments = 1),
    ("the fastest engine", |variant| variant.engine = LIBTORCH),
    ("latents in the pool", |variant| variant.latents = Latents::Host),
    ("compact replay", |variant| variant.replay = Form::Dense),
    ("updates beside self-play", |variant| variant.updates = Updates::Between),
    ("the fastest precision of updates", |variant| {
        variant.precision = TrainingPrecision { training_precision: inference::TrainingPrecision::F32 };
    }),
];

pub(super) const SECTION: &str = "training loop";
pub(super) const FULL: &str = "full";
pub(super) const NAIVE: &str = "naive";
/// Iterations/s of the full loop over those of the row: the gain from the optimisation.
pub(super) const WORTH: &str = "full over this";

/// Returns the loops by their names in the report.
pub(super) fn variants(full: Variant) -> Vec<(String, Variant)> {
    let mut naive = full;
    let mut all = vec![(FULL.to_owned(), full)];
    for (name, take_away) in OPTIMISATIONS {
        let mut without = full;
        take_away(&mut without);
        take_away(&mut naive);
        all.push((format!("without {name}"), without));
    }
    all.push((NAIVE.to_owned(), naive));
    all
}

/// Measures the loops of a game, by `measure_loop`, and adds them to the report.
///
/// # Errors
/// A loop that fails.
pub(super) fn measure(
    report: &mut Report,
    game: &GameKind,
    workload: &Workload,
    full: Variant,
    measure_loop: &dyn Fn(&training::Args) -> anyhow::Result<Report>,
) -> anyhow::Result<()> {
    let mut loops = Vec::new();
    for (name, variant) in variants(full) {
        let (workload, destination) = (workload.clone(), Destination::default());
        let args = training::Args { game: game.clone(), workload, variant, destination };
        let measured = measure_loop(&args).with_context(|| format!("measure the loop of {game}, {name}"))?;
        loops.push((name, variant, measured));
    }
    add(report, game, &loops);
    Ok(())
}

fn add(report: &mut Report, game: &GameKind, loops: &[(String, Variant, Report)]) {
    let of = |report: &Report, metric| report.value(LOOP, &[], metric);
    let note = |report: &Report, prefix| {
        report.notes.iter().find_map(|note| note.strip_prefix(prefix)).unwrap_or("unknown").to_owned()
    };
    let ratio = |above: Option<f64>, below: Option<f64>| Some(above? / below?);
    let full = loops.iter().find(|(name, ..)| name == FULL).map(|(.., measured)| measured);
    for (name, variant, measured) in loops {
        let speed = of(measured, ITERATIONS);
        report
            .at(SECTION, &[("game", game), ("loop", name)])
            .value(ITERATIONS, Unit::PerSecond, speed)
            .value(WORTH, Unit::Ratio, ratio(full.and_then(|full| of(full, ITERATIONS)), speed))
            .value(STEPS, Unit::PerSecond, of(measured, STEPS))
            .value(SIMULATIONS, Unit::PerSecond, of(measured, SIMULATIONS))
            .value(REPLAY_BYTES, Unit::Bytes, of(measured, REPLAY_BYTES))
            .value(LATENT_BYTES, Unit::Bytes, of(measured, LATENT_BYTES))
            .value(PEAK_MEMORY, Unit::Bytes, of(measured, PEAK_MEMORY))
            .value(MEASURED, Unit::Count, of(measured, MEASURED));
        let (engine, updates) = (note(measured, ENGINE), note(measured, UPDATES));
        let words = variant.words().join(" ");
        report.note(format!("{game}, {name}: evaluations by {engine}, updates by {updates}: {words}"));
    }
    let naive = loops.iter().find(|(name, ..)| name == NAIVE).map(|(.., measured)| measured);
    if let Some((full, naive)) = full.zip(naive) {
        let speed = ratio(of(full, ITERATIONS), of(naive, ITERATIONS)).unwrap_or(f64::NAN);
        let bytes = ratio(of(full, REPLAY_BYTES), of(naive, REPLAY_BYTES)).map(|left| 1.0 - left);
        report.finding(format!(
            "{game}, full over naive: **{speed:.1}×** the iterations/s, **{}** fewer replay bytes per step.",
            percent(bytes)
        ));
    }
}

/// Measures a loop by this program in a process of its own.
///
/// # Errors
/// A process that cannot be started or fails.
pub(super) fn in_a_process(args: &training::Args) -> anyhow::Result<Report> {
    let program = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(program);
    command.args(["muzero-loop", "--json"]).args(args.workload.words(&args.game)).args(args.variant.words());
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("start a process")?;
    ensure!(output.status.success(), "the process ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("read what the process measured")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::args;

    #[test]
    fn full_over_naive_is_the_ratio_of_their_iterations_and_the_share_of_bytes_that_is_saved() {
        let full = args::<training::Args>("").variant;
        let loops = [(FULL, 40.0, 20.0), ("without compact replay", 32.0, 400.0), (NAIVE, 4.0, 400.0)];
        let loops = loops.map(|(name, speed, bytes)| {
            let mut report = Report::new("muzero-loop", "A training loop");
            let cell = report.at(LOOP, &[]);
            cell.value(ITERATIONS, Unit::PerSecond, speed).value(REPLAY_BYTES, Unit::Bytes, bytes);
            report.note(format!("{ENGINE}an engine"));
            (name.to_owned(), full, report)
        });
        let mut report = Report::new("muzero", "MuZero");
        add(&mut report, &"breakout".parse().unwrap(), &loops);
        let worth = |name| report.value(SECTION, &[("loop", name)], WORTH);
        assert_eq!([FULL, "without compact replay", NAIVE].map(worth), [Some(1.0), Some(1.25), Some(10.0)]);
        let text = report.markdown();
        assert!(text.contains("breakout, full over naive: **10.0×** the iterations/s, **95.0 %** fewer"), "{text}");
        assert!(text.contains("\n- breakout, naive: evaluations by an engine, updates by unknown: --"), "{text}");
    }
}
