//! Plays a weights version of Hex on up to 5 cells a side from every opening, against a solver that delays a loss as
//! long as possible, and against random replies.
//!
//! An opening is the first stone, on each cell. With the swap rule the second player wins from each opening, and the
//! version plays this side. If the first player would win without a swap, the version also plays that side, after a
//! move of the opponent that forgoes the swap. The opponent chooses the move with the latest loss, and the first of
//! several. A game is lost if the version lets the opponent win.
//!
//! `cargo run --release --package strength --example longest_resistance -- runs/NAME/weights/v000181 [SIMULATIONS]
//! [RANDOM_GAMES]`

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::print_stdout,
    reason = "a measurement reads its arguments and prints"
)]

// Only the reader of versions is used here.
#[allow(dead_code)]
mod duel;

use std::str::FromStr;
use std::time::Instant;

use anyhow::Context as _;
use game::{Action, Game, Outcome, Player};
use games::{GameKind, Hex, hex};
use inference::{Evaluator as _, PrecisionPreference};
use network_cpu::{Kernel, KernelVariant, fastest_first};
use oracles::{HexOracle, Oracle};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use selfplay::SearchSettings;
use strength::contestant::{Contestant, RandomMover, SEQUENTIAL, Searcher, analysis};

/// A position in which the version plays the winning side.
struct Opening {
    actions: Vec<Action>,
    winner: Player,
}

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let stem = arguments.next().context("pass a weights version, such as runs/NAME/weights/v000181")?;
    let simulations =
        arguments.next().map_or(Ok(64), |text| text.parse()).context("parse the number of simulations")?;
    let random_games =
        arguments.next().map_or(Ok(1000), |text| text.parse()).context("parse the number of random games")?;
    let (manifest, bytes) = duel::read(&stem)?;
    let name = manifest.architecture.game.as_str();
    let size = name.strip_prefix("hex-").and_then(|size| hex::Size::new(size.parse().ok()?));
    anyhow::ensure!(GameKind::from_str(name).is_ok() && size.is_some(), "the weights are for {name}, not for Hex");
    let game = Hex::new(size.context("parse the board size")?);
    let mut oracle = HexOracle::of_all_positions(game.clone()).with_context(|| format!("{name} is not solved"))?;
    let paths: Vec<KernelVariant> = fastest_first(&mut Instant::now);
    let mut evaluator = Kernel::new(paths, PrecisionPreference::Bf16).evaluator(&manifest, &bytes)?;
    println!("{name}, version {} ({}), seed {}", manifest.version, evaluator.attributes().name, duel::SEED);
    let settings = analysis(simulations, &SearchSettings::default(), 1.0, SEQUENTIAL);
    let mut version = Searcher::by_rules(&mut evaluator, settings, ChaCha8Rng::seed_from_u64(duel::SEED));

    let openings = openings(&game, &mut oracle);
    let as_first = openings.iter().filter(|opening| opening.winner == Player::First).count();
    println!("{} won openings: {as_first} as the first player, the others as the second", openings.len());
    let mut won = 0;
    for opening in &openings {
        let mut resist = |position: &hex::Position| most_resistant(&mut oracle, position);
        let (has_won, actions) = play(&game, &mut version, opening, &mut resist)?;
        won += usize::from(has_won);
        let verdict = if has_won { "won" } else { "lost" };
        println!("{verdict} in {} plies: {}", actions.len(), words(&game, &actions));
    }
    println!("longest resistance at {simulations} simulations: {won} of {} won", openings.len());

    let mut random = RandomMover { rng: ChaCha8Rng::seed_from_u64(duel::SEED + 1) };
    let mut draws = ChaCha8Rng::seed_from_u64(duel::SEED + 2);
    let mut won = 0;
    for _ in 0..random_games {
        let opening = &openings[draws.random_range(0..openings.len())];
        let mut reply =
            |position: &hex::Position| choose(&game, &mut random, position).expect("random moves never fail");
        won += usize::from(play(&game, &mut version, opening, &mut reply)?.0);
    }
    println!("random replies at {simulations} simulations: {won} of {random_games} won");
    Ok(())
}

/// Returns every opening in which the version can play a winning side.
fn openings(game: &Hex, oracle: &mut HexOracle) -> Vec<Opening> {
    let mut openings = Vec::new();
    let mut legal = Vec::new();
    game.legal_actions(&game.start(), &mut legal);
    for &first in &legal {
        let mut position = game.start();
        game.play(&mut position, first);
        let scores = oracle.scores(&position);
        let best = |actions: &mut dyn Iterator<Item = usize>| actions.filter_map(|action| scores[action]).max();
        let swap = game.swap().index();
        assert!(best(&mut (0..scores.len())) > Some(0), "with the swap the second player wins");
        openings.push(Opening { actions: vec![first], winner: Player::Second });
        if best(&mut (0..scores.len()).filter(|&action| action != swap)) < Some(0) {
            // Every reply but the swap loses. The reply that loses latest is the first move of the resistance.
            let reply = (0..scores.len()).filter(|&action| action != swap && scores[action].is_some());
            let reply = reply.max_by_key(|&action| (scores[action], std::cmp::Reverse(action))).expect("a legal reply");
            let reply = Action(u16::try_from(reply).expect("an action"));
            openings.push(Opening { actions: vec![first, reply], winner: Player::First });
        }
    }
    openings
}

/// Returns the action with the highest score, or the first such action. In a lost position, this action delays the loss
/// longest.
fn most_resistant(oracle: &mut HexOracle, position: &hex::Position) -> Action {
    let scores = oracle.scores(position);
    let best = (0..scores.len()).filter(|&action| scores[action].is_some());
    let best = best.max_by_key(|&action| (scores[action], std::cmp::Reverse(action))).expect("a legal action");
    Action(u16::try_from(best).expect("an action"))
}

fn choose(game: &Hex, player: &mut dyn Contestant<Hex>, position: &hex::Position) -> Result<Action, inference::Error> {
    Ok(player.choose(game, std::slice::from_ref(position))?[0])
}

/// Plays a game from an opening. Returns true if the version won, and all actions.
fn play(
    game: &Hex,
    version: &mut Searcher<'_>,
    opening: &Opening,
    reply: &mut dyn FnMut(&hex::Position) -> Action,
) -> anyhow::Result<(bool, Vec<Action>)> {
    let mut actions = opening.actions.clone();
    let mut position = game.replay(&actions).context("the opening is legal")?;
    loop {
        match game.outcome(&position) {
            Some(outcome) => return Ok((outcome == Outcome::Win(opening.winner), actions)),
            None => {
                let is_own = game.to_move(&position) == opening.winner;
                let action = if is_own { choose(game, version, &position)? } else { reply(&position) };
                game.play(&mut position, action);
                actions.push(action);
            }
        }
    }
}

fn words(game: &Hex, actions: &[Action]) -> String {
    let mut position = game.start();
    let word = |&action: &Action| {
        let word = game.action_name(&position, action);
        game.play(&mut position, action);
        word
    };
    actions.iter().map(word).collect::<Vec<_>>().join(" ")
}
