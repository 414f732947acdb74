//! Checks that the chance outcomes in the rules match the outcomes of [`Game::play`].

use std::collections::HashMap;

use game::{Chance, Dynamics, Game};
use rand::{Rng, RngExt};

use super::observation;

/// Number of episodes in which each action is compared with the outcomes listed for it.
const EPISODES: usize = 12;
/// Maximum number of plies per episode: enough to reach full boards and large inventories in some.
const PLIES: usize = 250;
/// Number of results of [`Game::play`], to compare shares with outcome probabilities.
const DRAWS: u32 = 20_000;

/// Checks the chance outcomes at positions of random episodes.
///
/// # Panics
/// If the listed outcomes or probabilities differ from what actions do.
pub(crate) fn check<G: Game>(game: &G, rng: &mut impl Rng) {
    let name = &game.spec().name;
    let is_stochastic = game.spec().dynamics == Dynamics::Stochastic;
    assert!(is_stochastic || !game.knows_chances(), "{name} knows the chances of a game without chance");
    if !game.knows_chances() {
        return;
    }
    let (mut legal, mut chances) = (Vec::new(), Vec::new());
    let mut uncertain = 0;
    for _ in 0..EPISODES {
        let mut position = game.start_from(rng.random());
        for _ in 0..PLIES {
            game.legal_actions(&position, &mut legal);
            if legal.is_empty() {
                break;
            }
            let action = legal[rng.random_range(0..legal.len())];
            // Earlier content of the vector must be removed.
            chances.resize(3, Chance { outcome: u16::MAX, probability: f32::NAN });
            game.chances(&position, action, &mut chances);
            uncertain += usize::from(chances.len() > 1);
            check_probabilities(name, &chances);
            let mut played = position.clone();
            let reward = game.play(&mut played, action);
            if !chances.is_empty() {
                let matches = chances.iter().filter(|chance| {
                    let mut imagined = position.clone();
                    let imagined_reward = game.play_chance(&mut imagined, action, chance.outcome);
                    imagined == played && imagined_reward == reward && game.hash(&imagined) == game.hash(&played)
                });
                let count = matches.count();
                assert!(count == 1, "{name}: {count} outcomes of {action} lead to what it has\n{played:?}");
            }
            position = played;
        }
    }
    assert!(uncertain > 0, "{name}: no action has two outcomes");
    check_frequencies(game);
}

fn check_probabilities(name: &str, chances: &[Chance]) {
    if chances.is_empty() {
        return;
    }
    let sum: f64 = chances.iter().map(|chance| f64::from(chance.probability)).sum();
    assert!((sum - 1.0).abs() < 1e-5, "{name}: the probabilities of {chances:?} sum to {sum}");
    assert!(chances.iter().all(|chance| chance.probability > 0.0), "{name}: an impossible outcome in {chances:?}");
    let ascending = chances.is_sorted_by(|a, b| a.outcome < b.outcome);
    assert!(ascending, "{name}: outcomes are not ascending: {chances:?}");
}

/// Returns the observed part of a position, as bits, and the reward that led to it.
fn key<G: Game>(game: &G, position: &G::Position, reward: f32) -> Vec<u32> {
    observation(game, position).into_iter().chain([reward]).map(f32::to_bits).collect()
}

/// Compares the shares of results with the probabilities, for the first action with two outcomes: from many seeds
/// with equal starts, the first actions of an episode lead to it.
fn check_frequencies<G: Game>(game: &G) {
    let name = &game.spec().name;
    let (mut legal, mut chances) = (Vec::new(), Vec::new());
    let mut expected: HashMap<Vec<u32>, HashMap<Vec<u32>, f64>> = HashMap::new();
    let mut counts: HashMap<Vec<u32>, HashMap<Vec<u32>, u32>> = HashMap::new();
    for seed in 0..u64::from(DRAWS) {
        let mut position = game.start_from(seed);
        let start = key(game, &position, 0.0);
        game.legal_actions(&position, &mut legal);
        let action = *legal.last().expect("an episode has a first action");
        expected.entry(start.clone()).or_insert_with(|| {
            game.chances(&position, action, &mut chances);
            let mut results = HashMap::new();
            for chance in &chances {
                let mut imagined = position.clone();
                let reward = game.play_chance(&mut imagined, action, chance.outcome);
                *results.entry(key(game, &imagined, reward)).or_default() += f64::from(chance.probability);
            }
            results
        });
        let reward = game.play(&mut position, action);
        *counts.entry(start).or_default().entry(key(game, &position, reward)).or_default() += 1;
    }
    for (start, counts) in counts {
        let draws = f64::from(counts.values().sum::<u32>());
        let expected = &expected[&start];
        for (result, &count) in &counts {
            let named = expected.is_empty() || expected.contains_key(result);
            assert!(named, "{name}: a result that occurs {count} times is not named");
        }
        for (result, &probability) in expected {
            let share = f64::from(counts.get(result).copied().unwrap_or_default()) / draws;
            // Six standard errors of a share, plus one draw, in case of few draws.
            let tolerance = 6.0 * (probability * (1.0 - probability) / draws).sqrt() + 1.0 / draws;
            assert!((share - probability).abs() < tolerance, "{name}: {share} instead of {probability}");
        }
    }
}
