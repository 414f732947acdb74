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
    assert!(report.rows.iter().any(|row| row.section == inference::THRESHOLDS && row.metric == inference::FROM_BATCH));

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

/// Plays `environments` until that of slot 0 has finished `episodes`, and returns these, the counts, and the bytes of
/// latents that were copied.
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
