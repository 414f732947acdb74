//! A match of two evaluators of weights versions, and what it says of their strength.

use std::ops::ControlFlow;

use anyhow::Context as _;
use arena::contestant::{Fidelity, Searcher, analysis};
use arena::matches;
use games::ConnectFour;
use inference::Evaluator as _;
use network_cpu::TowerEvaluator;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use selfplay::SearchSettings;
use weights::Manifest;

/// Everything random descends from it.
pub(crate) const SEED: u64 = 1;

/// Simulations per move.
const SIMULATIONS: u32 = 64;

/// A published version and its bytes: of `runs/NAME/weights/v000181`, the files with `.json` and `.safetensors`.
pub(crate) fn read(stem: &str) -> anyhow::Result<(Manifest, Vec<u8>)> {
    let manifest = serde_json::from_slice(&std::fs::read(format!("{stem}.json"))?)?;
    Ok((manifest, std::fs::read(format!("{stem}.safetensors"))?))
}

/// Plays each of so many openings twice, with either evaluator first, and prints the score of the first evaluator.
pub(crate) fn play(game: &ConnectFour, evaluators: [&mut TowerEvaluator; 2], openings: usize) -> anyhow::Result<()> {
    let settings = analysis(SIMULATIONS, &SearchSettings::default(), Fidelity::Exact);
    let rng = ChaCha8Rng::seed_from_u64;
    let [first, second] = evaluators;
    let name = second.attributes().name;
    let mut a = Searcher { evaluator: first, settings: settings.clone(), rng: rng(SEED) };
    let mut b = Searcher { evaluator: second, settings, rng: rng(SEED + 1) };
    let settings = matches::Settings { openings, opening_plies_max: 8 };
    let tally = matches::play(game, [&mut a, &mut b], settings, &mut rng(SEED + 2), &mut || ControlFlow::Continue(()))?
        .context("nobody breaks the match off")?;
    let won = (tally.first_won[0] + tally.second_won[1]) as f64;
    let lost = (tally.first_won[1] + tally.second_won[0]) as f64;
    let drawn = tally.drawn.iter().sum::<u64>() as f64;
    let games = won + drawn + lost;
    let score = (won + drawn / 2.0) / games;
    // The score's standard error from the games' own variance, and the slope of Elo at an even score.
    let variance = (won + drawn / 4.0) / games - score * score;
    let error = 1.96 * (variance / games).sqrt();
    let elo = |score: f64| -400.0 * (1.0 / score - 1.0).log10();
    println!(
        "{games} games at {SIMULATIONS} simulations against {name}: {won} won, {drawn} drawn, {lost} lost; Elo {:.1}, 95 % \
         interval {:.1} to {:.1}",
        elo(score),
        elo(score - error),
        elo(score + error)
    );
    Ok(())
}
