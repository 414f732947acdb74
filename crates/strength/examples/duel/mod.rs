//! Plays a match between two weights versions, each with an evaluator, and computes the difference in strength.

use std::ops::ControlFlow;

use games::ConnectFour;
use inference::Evaluator as _;
use network_cpu::TowerEvaluator;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use selfplay::SearchSettings;
use strength::contestant::{SEQUENTIAL, Searcher, analysis};
use strength::matches::{self, Played};
use weights::Manifest;

/// Seed of all random draws.
pub(crate) const SEED: u64 = 1;

/// Simulations per move.
const SIMULATIONS: u32 = 64;

/// Reads a published version: for `runs/NAME/weights/v000181`, the files with `.json` and `.safetensors`.
pub(crate) fn read(stem: &str) -> anyhow::Result<(Manifest, Vec<u8>)> {
    let manifest = serde_json::from_slice(&std::fs::read(format!("{stem}.json"))?)?;
    Ok((manifest, std::fs::read(format!("{stem}.safetensors"))?))
}

/// Plays each opening twice, with either evaluator first, and prints the score of the first evaluator.
pub(crate) fn play(
    game: &ConnectFour,
    evaluators: [&mut TowerEvaluator; 2],
    searches: [SearchSettings; 2],
    openings: usize,
) -> anyhow::Result<()> {
    let [settings, other] = searches.map(|search| analysis(SIMULATIONS, &search, 1.0, SEQUENTIAL));
    let rng = ChaCha8Rng::seed_from_u64;
    let [first, second] = evaluators;
    let name = second.attributes().name;
    let mut a = Searcher::by_rules(first, settings, rng(SEED));
    let mut b = Searcher::by_rules(second, other, rng(SEED + 1));
    let settings = matches::Settings { openings, opening_plies_max: 8 };
    let from = matches::openings(game, settings, 0, &mut rng(SEED + 2));
    let mut played = Played::default();
    let flow = matches::play(game, [&mut a, &mut b], &from, &mut played, &mut |_| ControlFlow::Continue(()))?;
    anyhow::ensure!(flow.is_continue(), "the match was stopped");
    let tally = played.tally();
    let (games, points, pairs) = (tally.games(), tally.points(), tally.pairs);
    let score = points / games as f64;
    // Standard error of the score, from the variance of game pairs with sides exchanged.
    let error = 1.96 * tally.squared_error(score).sqrt() / games as f64;
    let elo = |score: f64| -400.0 * (1.0 / score - 1.0).log10();
    println!(
        "{games} games at {SIMULATIONS} simulations against {name}: {points} points, openings by half points {pairs:?}; Elo \
         {:.1}, 95 % interval {:.1} to {:.1}",
        elo(score),
        elo(score - error),
        elo(score + error)
    );
    Ok(())
}
