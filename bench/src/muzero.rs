//! `zerofleet bench muzero`: inference, searches and whole training loops of MuZero, beside the same without their
//! optimisations.
//!
//! It has four parts. `inference` times initial and recurrent inference on every engine; `pool` searches with latent
//! states in the engine's pool and on the host; `training` runs a loop of self-play and updates in full, without one
//! optimisation at a time, and naively, each in a process of its own; `trading` searches in one market at a time and in
//! many. Naive variants make the same searches: `single_calls` and `host_latents` wrap the engines of the others. Start
//! with [`run`].

mod ablation;
mod engine;
mod forms;
mod host_latents;
mod inference;
mod replay;
mod searches;
mod single_calls;
mod traffic;
pub mod training;
mod workload;

use std::io::Write;

use anyhow::ensure;
use game::{Game, Spec};
use games::{GameKind, with_game};
use proto::weights::Published;

use crate::Turns;
use crate::output::Destination;
use crate::report::Report;
use crate::turns::Turn;
use engine::{Calls, Engine, Latents, first_weights};
use inference::InferenceArgs;
use training::Variant;
use workload::Workload;

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Times of initial and recurrent inference and of updates.
    Inference,
    /// Searches with latent states in the pool and on the host.
    Pool,
    /// Training loops from full to naive.
    Training,
    /// Market making with search, one environment at a time and many.
    Trading,
}

/// Options of `zerofleet bench muzero`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The measured parts.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "inference,pool,training,trading")]
    pub parts: Vec<Part>,
    /// The games of `pool` and `training`.
    #[arg(long = "game", value_delimiter = ',', default_value = "cartpole-v1,breakout")]
    pub games: Vec<GameKind>,
    /// The networks of `inference`.
    #[command(flatten)]
    pub inference: InferenceArgs,
    /// The work of the other parts.
    #[command(flatten)]
    pub workload: Workload,
    /// The full training loop, and the fastest engine of searches.
    #[command(flatten)]
    pub full: Variant,
    /// The duration of each measurement of searches.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Number of turns of each measurement other than training loops.
    #[arg(long, default_value_t = 3)]
    pub repeats: usize,
    /// The reported turn.
    #[arg(long, value_enum, default_value_t)]
    pub turn: Turn,
    /// The destination of the report.
    #[command(flatten)]
    pub destination: Destination,
}

/// Measures, then prints and writes the report.
///
/// # Errors
/// Invalid options, an engine that fails, an invalid earlier report, a folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    args.destination.run("muzero", out, |so_far| measure(args, &ablation::in_a_process, so_far))
}

/// Runs the measurements, training loops by `measure_loop`, and returns the report; calls `so_far` with the unfinished
/// report after each part.
///
/// # Errors
/// The errors of [`run`].
pub fn measure(
    args: &Args,
    measure_loop: &dyn Fn(&training::Args) -> anyhow::Result<Report>,
    so_far: &mut dyn FnMut(&Report) -> anyhow::Result<()>,
) -> anyhow::Result<Report> {
    args.workload.check()?;
    ensure!(args.full.environments > 0, "--environments must be at least 1");
    let mut report = args.empty_report();
    // Devices are looked for before anything else of libtorch is used.
    if args.parts.contains(&Part::Inference) {
        inference::add(&mut report, &args.inference, args.turns())?;
        so_far(&report)?;
    }
    let bench = Bench::new(args)?;
    if args.parts.contains(&Part::Pool) {
        for game in &args.games {
            searches::add_pool(&mut report, &bench, game.clone())?;
        }
        so_far(&report)?;
    }
    if args.parts.contains(&Part::Training) {
        for game in &args.games {
            ablation::measure(&mut report, game, &args.workload, args.full, measure_loop)?;
            with_game!(game.clone(), |game| bench.add_forms(&mut report, &game))?;
            so_far(&report)?;
        }
        report.plot(ablation::SECTION, training::ITERATIONS, None, Some("game"));
    }
    if args.parts.contains(&Part::Trading) {
        searches::add_trading(&mut report, &bench)?;
    }
    Ok(report)
}

impl Args {
    fn turns(&self) -> Turns {
        let Self { seconds, repeats, turn, .. } = *self;
        Turns { seconds, repeats, turn, seed: self.workload.seed }
    }

    fn empty_report(&self) -> Report {
        let Workload { simulations, leaves, steps, batch, unroll_steps, positions, publish_iterations, .. } =
            self.workload;
        let mut report = Report::new("muzero", "MuZero: inference, searches, training loops");
        report.set("environments", self.full.environments);
        report.set("simulations", simulations);
        report.set("leaves", leaves);
        report.set("iteration", format!("{steps} steps and an update of {batch} positions x {unroll_steps} steps"));
        report.set("replay", format!("{positions} positions"));
        report.note(format!("weights are published every {publish_iterations} iterations"));
        report.note_turns(self.turns());
        let seconds = self.workload.loop_seconds;
        report.note(format!(
            "a training loop: once, in a process of its own, for {seconds} s and at least two iterations after the first"
        ));
        report
    }
}

/// What the parts other than inference have in common.
struct Bench {
    turns: Turns,
    workload: Workload,
    environments: usize,
    /// The engine of the options, and libtorch in float32 on the CPU.
    engines: [Engine; 2],
}

impl Bench {
    fn new(args: &Args) -> anyhow::Result<Self> {
        let engines = [Engine::new(args.full.engine)?, Engine::new(ablation::LIBTORCH)?];
        Ok(Self { turns: args.turns(), workload: args.workload.clone(), environments: args.full.environments, engines })
    }

    /// The weights for a game, and the engines with their names.
    fn engines(&self, spec: &Spec) -> anyhow::Result<(Published, [(String, &Engine); 2])> {
        let weights = first_weights(self.workload.architecture(spec), self.workload.seed)?;
        let [first, second] = &self.engines;
        let engines = [(first.name(&weights)?, first), (second.name(&weights)?, second)];
        Ok((weights, engines))
    }

    fn add_forms<G: Game>(&self, report: &mut Report, game: &G) -> anyhow::Result<()> {
        let (weights, [(_, engine), _]) = self.engines(game.spec())?;
        let mut model = engine.build(&weights, Latents::Pool, Calls::Batched, &Default::default())?;
        forms::add(report, game, &self.workload, model.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::inference::LatentModel;
    use experience::{ActionProbability, Step};
    use games::{Breakout, CartPole};
    use selfplay::{FinishedEpisode, LatentEpisodes, Round};

    use super::traffic::Traffic;
    use super::workload::DISCOUNT;
    use super::*;
    use crate::tests::{args, parsed};

    const TINY: &str = "--game cartpole-v1 --networks 1x32@1x1,1x32@3x3 --batches 1,4 --call-seconds 0 --channels 32 --blocks 1 \
                        --environments 4 --simulations 2 --steps 4 --batch 4 --unroll-steps 2 --positions 40 --threads 2 \
                        --publish-iterations 1 --training-precision f32 --loop-seconds 0 --seconds 0.02 --repeats 1";

    #[test]
    fn a_tiny_run_measures_every_part() {
        let mut parts = 0;
        let report = measure(&args(TINY), &training::measure, &mut |_| {
            parts += 1;
            Ok(())
        });
        let report = report.unwrap();
        assert_eq!(parts, 3, "the report is written after each part but the last");
        for section in [inference::INITIAL, inference::RECURRENT] {
            for network in ["dense 1x32", "residual 1x32@3x3"] {
                for batch in ["1", "4"] {
                    let at = [("network", network), ("engine", "libtorch cpu f32"), ("batch", batch)];
                    assert!(report.value(section, &at, inference::TIME) > Some(0.0), "{report:?}");
                    assert_eq!(report.value(section, &at, inference::OVER_LIBTORCH), Some(1.0));
                }
            }
        }
        assert!(report.value(inference::UPDATES, &[("network", "dense 1x32")], inference::TIME) > Some(0.0));
        assert!(
            report.rows.iter().any(|row| row.section == inference::THRESHOLDS && row.metric == inference::FROM_BATCH)
        );

        let latents = |latents| report.value(searches::POOL, &[("latents", latents)], searches::LATENT_BYTES).unwrap();
        assert!(latents("pool") == 0.0 && latents("host") > 0.0);
        assert!(report.value(searches::POOL, &[("latents", "pool")], searches::OVER_HOST) > Some(0.0));
        assert!(report.value(searches::TRADING, &[("environments", "4")], searches::OVER_SEQUENTIAL) > Some(0.0));

        let of = |name: &str, metric| report.value(ablation::SECTION, &[("loop", name)], metric);
        for (name, _) in ablation::variants(args::<Args>(TINY).full) {
            assert!(of(&name, training::MEASURED) >= Some(2.0), "{name}: {report:?}");
            assert!(of(&name, training::ITERATIONS) > Some(0.0) && of(&name, ablation::WORTH) > Some(0.0), "{name}");
        }
        assert_eq!(of(ablation::FULL, training::LATENT_BYTES), Some(0.0));
        // Observation, policy and four scalars.
        assert_eq!(of(ablation::NAIVE, training::REPLAY_BYTES), Some(f64::from(4 * (4 + 2 + 4))));
        assert_eq!(report.value(forms::SECTION, &[("form", forms::DENSE)], "bytes per step"), Some(40.0));
    }

    #[test]
    fn the_report_is_a_table_or_json() {
        let (mut table, mut json) = (Vec::new(), Vec::new());
        let line = format!("{TINY} --parts pool");
        run(&args(&line), &mut table).unwrap();
        run(&args(&format!("{line} --json")), &mut json).unwrap();
        assert!(String::from_utf8(table).unwrap().contains("| latents copied per simulation |"));
        assert_eq!(serde_json::from_slice::<Report>(&json).unwrap().sections(), [searches::POOL]);
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let error = |line: &str| format!("{:#}", run(&args(line), &mut Vec::new()).unwrap_err());
        assert!(error("--simulations 0").contains("--simulations"));
        assert!(error("--environments 0").contains("--environments"));
        assert!(error("--parts inference --batches 0").contains("--batches"));
        assert!(error("--loop-seconds=-1").contains("--loop-seconds"));
        assert!(parsed::<Args>(["--parts", "search"]).is_err());
    }

    /// The engines in float32.
    fn engine(line: &str) -> Engine {
        Engine::new(args::<Args>(&format!("--device cpu --precision f32 {line}")).full.engine).unwrap()
    }

    /// Plays `environments` until that of slot 0 has finished `episodes`, and returns these, the counts, and the bytes
    /// of latents that were copied.
    fn played<G: Game>(
        game: &G,
        engine: &Engine,
        (latents, calls): (Latents, Calls),
        environments: usize,
        episodes: usize,
    ) -> (Vec<FinishedEpisode>, Round, u64) {
        let workload = args::<Args>("--channels 32 --blocks 1 --simulations 6").workload;
        let weights = first_weights(workload.architecture(game.spec()), 3).unwrap();
        let traffic = Arc::new(Traffic::default());
        let mut model: Box<dyn LatentModel> = engine.build(&weights, latents, calls, &traffic).unwrap();
        let mut all = LatentEpisodes::new(game.clone(), workload.settings(environments), DISCOUNT, 5);
        let (mut finished, mut sum): (Vec<FinishedEpisode>, _) = (Vec::new(), Round::default());
        while finished.len() < episodes {
            sum += all.advance(model.as_mut()).unwrap();
            finished.extend(all.drain_finished().filter(|episode| episode.slot == 0));
        }
        (finished, sum, traffic.bytes())
    }

    /// The actions and the search policies of episodes.
    fn choices(episodes: &[FinishedEpisode]) -> Vec<(game::Action, Vec<ActionProbability>)> {
        let steps = episodes.iter().flat_map(|episode| &episode.steps);
        steps.map(|Step { action, kind, .. }| (*action, kind.policy().to_vec())).collect()
    }

    #[test]
    fn naive_calls_of_an_engine_search_exactly_as_the_full_ones() {
        let engines = [engine("--kernel auto"), engine("--kernel libtorch")];
        for engine in &engines {
            let game = CartPole::new(games::cartpole::Version::new(0).unwrap());
            let (full, ..) = played(&game, engine, (Latents::Pool, Calls::Batched), 1, 2);
            let (naive, ..) = played(&game, engine, (Latents::Host, Calls::Single), 1, 2);
            assert_eq!(naive, full);
        }
    }

    #[test]
    fn naive_and_full_loops_make_the_same_searches() {
        fn check<G: Game>(game: &G) {
            let (full, ..) = played(game, &engine("--kernel auto"), (Latents::Pool, Calls::Batched), 3, 2);
            let (naive, ..) = played(game, &engine("--kernel libtorch"), (Latents::Host, Calls::Single), 1, 2);
            let (full, naive) = (choices(&full), choices(&naive));
            assert_eq!(full.len(), naive.len());
            for (ply, (full, naive)) in full.iter().zip(&naive).enumerate() {
                // Search policies are shares of visits.
                assert_eq!(full, naive, "step {ply}");
            }
        }
        check(&CartPole::new(games::cartpole::Version::new(0).unwrap()));
        check(&Breakout::new(games::breakout::StickyActions::Off));
    }

    #[test]
    fn latents_on_the_host_are_copied_once_for_each_evaluation_and_each_step() {
        let game = CartPole::new(games::cartpole::Version::new(0).unwrap());
        let engine = engine("--kernel libtorch");
        for calls in [Calls::Batched, Calls::Single] {
            let (_, round, bytes) = played(&game, &engine, (Latents::Host, calls), 3, 1);
            // Every evaluation gives a state of 32 units in float32, and every simulation begins with one.
            assert_eq!(bytes, ((round.evaluated + round.simulations) * 32 * 4) as u64, "{calls:?}");
            assert_eq!(played(&game, &engine, (Latents::Pool, calls), 3, 1).2, 0, "{calls:?}");
        }
    }
}
