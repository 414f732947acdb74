//! `zerofleet bench muzero`: inference, searches and whole training loops of MuZero, beside the same without their
//! optimisations.
//!
//! It has four parts. `inference` times initial and recurrent inference on every engine; `pool` searches with latent
//! states in the engine's pool and on the host; `training` runs a loop of self-play and updates in full, without one
//! optimisation at a time, and naively, each in a process of its own; `trading` searches in one market at a time and in
//! many. Naive variants make the same searches: `single_calls` and `host_latents` wrap the engines of the others. Start
//! with [`measure`].

pub(crate) mod ablation;
mod engine;
mod float32_rows;
mod host_latents;
mod inference;
mod players;
mod replay;
mod searches;
mod single_calls;
pub mod training;
mod workload;

use std::time::Duration;

use anyhow::Context as _;
use games::GameKind;

use crate::Turns;
use crate::report::{Report, SoFar};
use engine::Engine;
use inference::InferenceArgs;
use training::Variant;
use workload::{UNROLL_STEPS, Workload};

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Times of initial and recurrent inference.
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
    /// The turns of each measurement other than training loops.
    #[command(flatten)]
    pub turns: Turns,
}

/// Runs the measurements, training loops by `measure_loop`, and returns the report; calls `so_far` with the unfinished
/// report after each part.
///
/// # Errors
/// Invalid options, an engine that fails.
pub fn measure(
    args: &Args,
    measure_loop: &dyn Fn(&training::Args) -> anyhow::Result<Report>,
    so_far: SoFar<'_>,
) -> anyhow::Result<Report> {
    Duration::try_from_secs_f64(args.workload.loop_seconds).context("read --loop-seconds")?;
    let mut report = args.empty_report();
    // Devices are looked for before anything else of libtorch is used.
    if args.parts.contains(&Part::Inference) {
        inference::add(&mut report, &args.inference, args.turns)?;
        so_far(&report)?;
    }
    let engines = [Engine::new(args.full.engine)?, Engine::new(ablation::LIBTORCH)?];
    if args.parts.contains(&Part::Pool) {
        for game in &args.games {
            searches::add_pool(&mut report, args, &engines, game)?;
        }
        so_far(&report)?;
    }
    if args.parts.contains(&Part::Training) {
        for game in &args.games {
            ablation::add(&mut report, game, args, measure_loop)?;
            so_far(&report)?;
        }
        report.plot(ablation::SECTION, training::ITERATIONS, None, Some("game"));
    }
    if args.parts.contains(&Part::Trading) {
        searches::add_trading(&mut report, args, &engines)?;
    }
    Ok(report)
}

impl Args {
    fn empty_report(&self) -> Report {
        let Workload { simulations, leaves, steps, batch, positions, publish_iterations, loop_seconds, .. } =
            self.workload;
        let mut report = Report::new("muzero", "MuZero: inference, searches, training loops");
        report.set("environments", self.full.environments);
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
    use std::sync::atomic::Ordering;

    use experience::{ActionProbability, Step};
    use game::Game;
    use games::{Breakout, CartPole};
    use selfplay::{FinishedEpisode, Round};

    use super::engine::{Calls, Latents, Traffic};
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

        let latents = |latents| report.value(searches::POOL, &[("latents", latents)], training::LATENT_BYTES).unwrap();
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
    }

    #[test]
    fn the_report_is_a_table_or_json() {
        let (mut table, mut json) = (Vec::new(), Vec::new());
        let line = format!("{TINY} --parts pool");
        crate::tests::run("muzero", &line, &mut table).unwrap();
        crate::tests::run("muzero", &format!("{line} --json"), &mut json).unwrap();
        assert!(String::from_utf8(table).unwrap().contains("| latents copied per simulation |"));
        assert_eq!(serde_json::from_slice::<Report>(&json).unwrap().sections(), [searches::POOL]);
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

    /// The engines in float32.
    fn engine(line: &str) -> Engine {
        Engine::new(args::<Args>(&format!("--device cpu --precision f32 {line}")).full.engine).unwrap()
    }

    const FULL: (Latents, Calls) = (Latents::Pool, Calls::Batched);
    const NAIVE: (Latents, Calls) = (Latents::Host, Calls::Single);

    /// Plays `environments` until that of slot 0 has finished `episodes`, and returns these, the counts, and the bytes
    /// of latents that were copied.
    fn played<G: Game>(
        game: &G,
        engine: &Engine,
        (latents, calls): (Latents, Calls),
        environments: usize,
        episodes: usize,
    ) -> (Vec<FinishedEpisode>, Round, u64) {
        let workload = args::<Args>("--channels 32 --blocks 1 --simulations 6 --threads 1").workload;
        let weights = published(workload.architecture(game.spec()), 3).unwrap();
        let (engine, traffic) = (Engine { latents, calls, ..engine.clone() }, Traffic::default());
        let player = &mut players(game, &workload, environments, (&engine, &weights), &traffic, 5).unwrap()[0];
        let (mut finished, mut sum): (Vec<FinishedEpisode>, _) = (Vec::new(), Round::default());
        while finished.len() < episodes {
            sum += player.episodes.advance(player.model.as_mut()).unwrap();
            finished.extend(player.episodes.drain_finished().filter(|episode| episode.slot == 0));
        }
        (finished, sum, traffic.load(Ordering::Relaxed))
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
            let (full, ..) = played(&game, engine, FULL, 1, 2);
            let (naive, ..) = played(&game, engine, NAIVE, 1, 2);
            assert_eq!(naive, full);
        }
    }

    #[test]
    fn naive_and_full_loops_make_the_same_searches() {
        fn check<G: Game>(game: &G) {
            let (full, ..) = played(game, &engine("--kernel auto"), FULL, 3, 2);
            let (naive, ..) = played(game, &engine("--kernel libtorch"), NAIVE, 1, 2);
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
    fn threads_have_equal_shares_of_the_environments() {
        let game = CartPole::new(games::cartpole::Version::new(0).unwrap());
        let shares = |threads, environments| {
            let workload = args::<Args>(&format!("--channels 32 --threads {threads}")).workload;
            let weights = published(workload.architecture(game.spec()), 3).unwrap();
            let engine = (&engine("--kernel auto"), &weights);
            let all = players(&game, &workload, environments, engine, &Traffic::default(), 1).unwrap();
            all.iter().map(|player| player.episodes.slots()).collect::<Vec<_>>()
        };
        assert_eq!(shares(3, 256), [85, 85, 86]);
        assert_eq!(shares(4, 1), [1]);
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
