//! Training loops from full to naive: with all optimisations, without one of them at a time, and without any.
//!
//! Each loop runs in a process of its own, so that its memory is its own; a row can be reproduced by itself with the
//! options that the report shows.

use anyhow::Context;
use games::GameKind;
use network_cpu::KernelPreference;
use network_torch::{DevicePreference, PrecisionPreference};

use super::Args;
use super::engine::{Calls, EngineArgs, Latents};
use super::replay::Form;
use super::training::{self, ITERATIONS, REPLAY_BYTES, Updates, Variant};
use crate::own_process::{self, words};
use crate::report::{Report, Unit, percent};

/// The engine of naive loops.
pub(super) const LIBTORCH: EngineArgs = EngineArgs {
    device: DevicePreference::Cpu,
    precision: PrecisionPreference::F32,
    kernel: KernelPreference::Libtorch,
    calls: Calls::Batched,
    latents: Latents::Pool,
};

/// The name of an optimisation, and the function that removes it.
type TakeAway = (&'static str, fn(&mut Variant));

/// The optimisations.
const OPTIMISATIONS: [TakeAway; 7] = [
    ("batched simulations", |variant| variant.engine.calls = Calls::Single),
    ("vectorised environments", |variant| variant.environments = 1),
    ("the fastest engine", |variant| {
        let EngineArgs { calls, latents, .. } = variant.engine;
        variant.engine = EngineArgs { calls, latents, ..LIBTORCH };
    }),
    ("latents in the pool", |variant| variant.engine.latents = Latents::Host),
    ("compact replay", |variant| variant.replay = Form::Dense),
    ("updates beside self-play", |variant| variant.updates = Updates::Between),
    ("the fastest precision of updates", |variant| {
        variant.training_precision = inference::TrainingPrecision::F32;
    }),
];

pub(super) const SECTION: &str = "training loop";
pub(super) const FULL: &str = "full";
pub(super) const NAIVE: &str = "naive";
/// Iterations/s of the full loop over those of the row: the gain from the optimisation.
pub(super) const WORTH: &str = "full over this";

/// Returns the loops by their names in the report: the full one first, the naive one last.
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
pub(super) fn add(
    report: &mut Report,
    game: &GameKind,
    of_all: &Args,
    measure_loop: &dyn Fn(&training::Args) -> anyhow::Result<Report>,
) -> anyhow::Result<()> {
    let mut full_speed = None;
    for (name, variant) in variants(of_all.full) {
        let (workload, seed) = (of_all.workload.clone(), of_all.turns.seed);
        let args = training::Args { game: game.clone(), workload, variant, seed };
        let measured = measure_loop(&args).with_context(|| format!("measure the loop of {game}, {name}"))?;
        let mut cell = report.at(SECTION, &[("game", game), ("loop", &name)]);
        for row in &measured.rows {
            cell = cell.value(&row.metric, row.unit, row.value);
            if row.metric == ITERATIONS {
                full_speed = full_speed.or(row.value);
                cell = cell.value(WORTH, Unit::Ratio, full_speed.zip(row.value).map(|(full, speed)| full / speed));
            }
        }
        report.note(format!("{game}, {name}: {}: {}", measured.notes.join(", "), words(&variant).join(" ")));
    }
    let of = |name, metric| report.value(SECTION, &[("game", &game.to_string()), ("loop", name)], metric);
    let bytes = of(FULL, REPLAY_BYTES).zip(of(NAIVE, REPLAY_BYTES)).map(|(full, naive)| 1.0 - full / naive);
    report.finding(format!(
        "{game}, full over naive: **{:.1}×** the iterations/s, **{}** fewer replay bytes per step.",
        of(NAIVE, WORTH).unwrap_or(f64::NAN),
        percent(bytes)
    ));
    Ok(())
}

/// Measures a loop by this program in a process of its own.
///
/// # Errors
/// A process that cannot be started or fails.
pub(crate) fn in_a_process(args: &training::Args) -> anyhow::Result<Report> {
    let (game, seed) = (format!("--game={}", args.game), format!("--seed={}", args.seed));
    let own = vec!["muzero-loop".to_owned(), "--json".to_owned(), game, seed];
    own_process::report(&[own, words(&args.workload), words(&args.variant)].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::args;

    #[test]
    fn full_over_naive_is_the_ratio_of_their_iterations_and_the_share_of_bytes_that_is_saved() {
        let measure_loop = |args: &training::Args| {
            let (speed, bytes) = match (args.variant.replay, args.variant.updates) {
                (Form::Compact, _) => (40.0, 20.0),
                (Form::Dense, Updates::Beside) => (32.0, 400.0),
                (Form::Dense, Updates::Between) => (4.0, 400.0),
            };
            let mut report = Report::new("muzero-loop", "A training loop");
            let cell = report.at("loop", &[]);
            cell.value(ITERATIONS, Unit::PerSecond, speed).value(REPLAY_BYTES, Unit::Bytes, bytes);
            report.note("evaluations by an engine");
            Ok(report)
        };
        let mut report = Report::new("muzero", "MuZero");
        add(&mut report, &"breakout".parse().unwrap(), &args(""), &measure_loop).unwrap();
        let worth = |name| report.value(SECTION, &[("loop", name)], WORTH);
        assert_eq!([FULL, "without compact replay", NAIVE].map(worth), [Some(1.0), Some(1.25), Some(10.0)]);
        let text = report.markdown();
        assert!(text.contains("breakout, full over naive: **10.0×** the iterations/s, **95.0 %** fewer"), "{text}");
        assert!(text.contains("\n- breakout, naive: evaluations by an engine: --calls single --"), "{text}");
    }
}
