//! The check against a perfect player and players with known faults.

use game::{Action, Game, Player};
use games::TicTacToe;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::check;
use crate::contestant::{Contestant, RandomMover};

/// Looks at every line to its end.
struct Minimax;

impl Minimax {
    /// The best outcome for the player to move, and the first action that reaches it.
    fn solve(game: &TicTacToe, position: &<TicTacToe as Game>::Position) -> (f32, Action) {
        let mover = game.to_move(position);
        let mut legal = Vec::new();
        game.legal_actions(position, &mut legal);
        let value = |action: Action| {
            let mut next = *position;
            game.play(&mut next, action);
            match game.outcome(&next) {
                Some(outcome) => outcome.value_for(mover),
                None => -Self::solve(game, &next).0,
            }
        };
        legal.into_iter().map(|action| (value(action), action)).rev().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap()
    }
}

impl Contestant<TicTacToe> for Minimax {
    fn choose(
        &mut self,
        game: &TicTacToe,
        positions: &[<TicTacToe as Game>::Position],
        actions: &mut Vec<Action>,
    ) -> Result<(), inference::Error> {
        actions.clear();
        actions.extend(positions.iter().map(|position| Self::solve(game, position).1));
        Ok(())
    }
}

/// Perfect but for one position: it lets the centre go when the opponent began in a corner.
struct OneBlunder;

impl Contestant<TicTacToe> for OneBlunder {
    fn choose(
        &mut self,
        game: &TicTacToe,
        positions: &[<TicTacToe as Game>::Position],
        actions: &mut Vec<Action>,
    ) -> Result<(), inference::Error> {
        Minimax.choose(game, positions, actions)?;
        let corner = game.replay(&[Action(0)]).unwrap();
        for (position, action) in positions.iter().zip(actions) {
            if *position == corner {
                *action = Action(1);
            }
        }
        Ok(())
    }
}

#[test]
fn a_perfect_player_never_loses_from_either_side() {
    let report = check(&TicTacToe::new(), &mut Minimax).unwrap();
    assert_eq!((report.lost, &report.lost_line), (0, &None), "{report:?}");
    assert!(report.won > 0 && report.drawn > 0 && report.decisions > 100, "{report:?}");
}

#[test]
fn a_single_blunder_is_found_and_its_line_shown() {
    let game = TicTacToe::new();
    let report = check(&game, &mut OneBlunder).unwrap();
    assert!(report.lost > 0);
    let line = report.lost_line.unwrap();
    assert_eq!(line[..2], [Action(0), Action(1)]);
    let end = game.replay(&line).unwrap();
    assert_eq!(game.outcome(&end).unwrap().value_for(Player::Second), -1.0);
}

#[test]
fn a_random_player_loses() {
    let mut random = RandomMover { rng: ChaCha8Rng::seed_from_u64(1) };
    assert!(check(&TicTacToe::new(), &mut random).unwrap().lost > 10);
}
