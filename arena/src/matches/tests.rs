//! Claims about matches, between contestants that need no network.

use std::ops::ControlFlow;

use game::{Action, Game};
use games::{ConnectFour, TicTacToe};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{Settings, Tally, play};
use crate::contestant::{Contestant, PlayoutMover, RandomMover};

fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

fn random(seed: u64) -> RandomMover {
    RandomMover { rng: rng(seed) }
}

fn settings(openings: usize, opening_plies_max: u16) -> Settings {
    Settings { openings, opening_plies_max }
}

/// Always the lowest legal action.
struct Lowest;

impl<G: Game> Contestant<G> for Lowest {
    fn choose(
        &mut self,
        game: &G,
        positions: &[G::Position],
        actions: &mut Vec<Action>,
    ) -> Result<(), inference::Error> {
        let mut legal = Vec::new();
        actions.clear();
        for position in positions {
            game.legal_actions(position, &mut legal);
            actions.push(legal[0]);
        }
        Ok(())
    }
}

/// Has no answer.
struct Failing;

impl<G: Game> Contestant<G> for Failing {
    fn choose(&mut self, _: &G, _: &[G::Position], _: &mut Vec<Action>) -> Result<(), inference::Error> {
        Err(inference::Error::NotFinite { weights_version: 1 })
    }
}

fn complete<G: Game>(game: &G, contestants: [&mut dyn Contestant<G>; 2], settings: Settings) -> Tally {
    play(game, contestants, settings, &mut rng(1), &mut || ControlFlow::Continue(())).unwrap().unwrap()
}

#[test]
fn each_contestant_begins_half_of_the_games() {
    let tally = complete(&TicTacToe::new(), [&mut random(2), &mut random(3)], settings(20, 2));
    let begun =
        |contestant: usize| tally.first_won[contestant] + tally.drawn[contestant] + tally.second_won[contestant];
    assert_eq!((begun(0), begun(1), tally.games()), (20, 20, 40));
}

/// Filling the lowest cell, the first player completes a diagonal: cells 2, 4 and 6.
#[test]
fn a_known_game_is_won_by_whoever_has_the_first_move() {
    let tally = complete(&TicTacToe::new(), [&mut Lowest, &mut Lowest], settings(3, 0));
    assert_eq!(tally, Tally { first_won: [3, 3], drawn: [0, 0], second_won: [0, 0] });
    assert!((tally.points() - 3.0).abs() < f64::EPSILON);
}

/// 200 simulations score above 90 % against random moves in Connect Four: 40 games, measured at 100 %.
#[test]
fn playouts_beat_random_moves() {
    let mut strong = PlayoutMover::new(200, rng(4));
    let tally = complete(&ConnectFour::new(), [&mut strong, &mut random(5)], settings(20, 4));
    assert!(tally.points() >= 36.0, "{tally:?}");
}

#[test]
fn a_seed_fixes_the_match() {
    let once = || complete(&ConnectFour::new(), [&mut random(2), &mut random(3)], settings(10, 4));
    assert_eq!(once(), once());
}

#[test]
fn a_match_that_is_broken_off_has_no_tally() {
    let mut rounds = 0;
    let mut pause = || {
        rounds += 1;
        if rounds < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let game = ConnectFour::new();
    let tally = play(&game, [&mut random(2), &mut random(3)], settings(4, 0), &mut rng(1), &mut pause).unwrap();
    assert_eq!((tally, rounds), (None, 3));
}

#[test]
fn a_match_that_cannot_go_on_names_the_contestant_that_cannot_choose() {
    let fails = |contestants: [&mut dyn Contestant<TicTacToe>; 2]| {
        let go_on = &mut || ControlFlow::Continue(());
        play(&TicTacToe::new(), contestants, settings(1, 0), &mut rng(1), go_on).unwrap_err().contestant
    };
    assert_eq!((fails([&mut Failing, &mut Lowest]), fails([&mut Lowest, &mut Failing])), (0, 1));
}
