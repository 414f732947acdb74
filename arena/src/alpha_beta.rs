//! An opponent of fixed strength: alpha-beta search (Knuth and Moore 1975) to a fixed depth.
//!
//! Positions at that depth have the heuristic value of their game. Start with [`AlphaBetaMover`].

use std::cmp::Reverse;

use game::{Action, Game, HEURISTIC_MAX, Outcome, Player};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::contestant::Contestant;

/// The value of a win at the depth of the search; an earlier one has a larger value.
const WIN: i32 = 2 * HEURISTIC_MAX;

/// An absolute value above that of every position.
const INFINITE: i32 = 2 * WIN;

/// Searches with alpha-beta and the heuristic value of the game, instead of a network and playouts.
///
/// Of several best actions it plays a random one, so that its games differ. In a game without a heuristic value it
/// avoids losses within its depth, and plays at random otherwise.
#[derive(Debug)]
pub struct AlphaBetaMover {
    depth: u8,
    rng: ChaCha8Rng,
}

impl AlphaBetaMover {
    /// Creates a player that searches `depth` plies, of which its own action is the first.
    ///
    /// # Panics
    /// If the depth is 0.
    #[must_use]
    pub fn new(depth: u8, rng: ChaCha8Rng) -> Self {
        assert!(depth > 0, "a search of no ply has no action");
        Self { depth, rng }
    }
}

impl<G: Game> Contestant<G> for AlphaBetaMover {
    fn choose(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Action>, inference::Error> {
        let choose = |position| {
            let best = best_actions(game, position, self.depth);
            best[self.rng.random_range(0..best.len())]
        };
        Ok(positions.iter().map(choose).collect())
    }
}

/// The values that a search distinguishes: it returns the exact value of a position between both ends, and a bound
/// beyond the end otherwise.
#[derive(Debug, Clone, Copy)]
struct Window {
    low: i32,
    high: i32,
}

impl Window {
    const FULL: Self = Self { low: -INFINITE, high: INFINITE };

    /// Returns the window of the other player.
    fn reversed(self) -> Self {
        Self { low: -self.high, high: -self.low }
    }
}

/// Returns the legal actions with the highest value of a search of `depth` plies, in ascending order.
fn best_actions<G: Game>(game: &G, position: &G::Position, depth: u8) -> Vec<Action> {
    let player = game.to_move(position);
    let mut best = Vec::new();
    let mut highest = -INFINITE;
    for (action, next) in children(game, position, depth) {
        // One below the highest value, so that an equal one is exact as well.
        let window = Window { low: highest - 1, high: INFINITE };
        let value = value_for(game, &next, player, depth - 1, window);
        if value > highest {
            best.clear();
            highest = value;
        }
        if value == highest {
            best.push(action);
        }
    }
    best.sort_unstable();
    best
}

/// Returns the value of a position for one of the players, by a search of `depth` more plies.
fn value_for<G: Game>(game: &G, position: &G::Position, player: Player, depth: u8, window: Window) -> i32 {
    if let Some(outcome) = game.outcome(position) {
        return value_of(outcome, player, depth);
    }
    let to_move = game.to_move(position);
    let value = |window| match depth {
        0 => game.heuristic_value(position),
        _ => highest_value(game, position, to_move, depth, window),
    };
    if to_move == player { value(window) } else { -value(window.reversed()) }
}

/// Returns the highest value of an action of the player to move.
fn highest_value<G: Game>(game: &G, position: &G::Position, to_move: Player, depth: u8, window: Window) -> i32 {
    let mut highest = window.low;
    for (_, next) in children(game, position, depth) {
        let value = value_for(game, &next, to_move, depth - 1, Window { low: highest, ..window });
        highest = highest.max(value);
        if highest >= window.high {
            break;
        }
    }
    highest
}

/// Returns the value of an outcome that is reached `depth` plies before the end of the search.
fn value_of(outcome: Outcome, player: Player, depth: u8) -> i32 {
    let win = WIN + i32::from(depth);
    match outcome {
        Outcome::Win(winner) if winner == player => win,
        Outcome::Win(_) => -win,
        Outcome::Draw | Outcome::Finished | Outcome::Truncated => 0,
    }
}

/// Returns the positions after each legal action; where they are searched further, those of high heuristic value for
/// the player to move come first, so that the search leaves out more of the others.
fn children<G: Game>(game: &G, position: &G::Position, depth: u8) -> Vec<(Action, G::Position)> {
    let player = game.to_move(position);
    let mut legal = Vec::new();
    game.legal_actions(position, &mut legal);
    let child = |action| {
        let mut next = position.clone();
        game.play(&mut next, action);
        (action, next)
    };
    let mut children: Vec<(Action, G::Position)> = legal.into_iter().map(child).collect();
    if depth > 1 {
        children.sort_by_cached_key(|(_, next)| Reverse(value_for(game, next, player, 0, Window::FULL)));
    }
    children
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::ops::ControlFlow;

    use games::{Breakthrough, Othello, TicTacToe, breakthrough, othello};
    use rand::SeedableRng;

    use super::*;
    use crate::contestant::RandomMover;
    use crate::matches;

    fn rng(seed: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(seed)
    }

    /// The value of a position for a player by plain minimax.
    fn minimax<G: Game>(game: &G, position: &G::Position, player: Player, depth: u8) -> i32 {
        if let Some(outcome) = game.outcome(position) {
            return value_of(outcome, player, depth);
        }
        let sign = if game.to_move(position) == player { 1 } else { -1 };
        if depth == 0 {
            return sign * game.heuristic_value(position);
        }
        let mut legal = Vec::new();
        game.legal_actions(position, &mut legal);
        let values = legal.into_iter().map(|action| {
            let mut next = position.clone();
            game.play(&mut next, action);
            sign * minimax(game, &next, player, depth - 1)
        });
        sign * values.max().unwrap()
    }

    /// Compares values, bounds and best actions with minimax in random positions.
    fn agrees_with_minimax<G: Game>(game: &G, depth: u8, positions: usize) {
        let settings = matches::Settings { openings: positions, opening_plies_max: 50 };
        let mut rng = rng(1);
        for matches::Opening { position, .. } in matches::openings(game, settings, 0, &mut rng) {
            let place = || format!("\n{}", game.render(&position));
            let player = game.to_move(&position);
            let exact = minimax(game, &position, player, depth);
            assert_eq!(value_for(game, &position, player, depth, Window::FULL), exact, "{}", place());
            let other = player.opponent();
            assert_eq!(value_for(game, &position, other, depth, Window::FULL), -exact, "{}", place());
            let low = exact + rng.random_range(-60..60);
            let window = Window { low, high: low + rng.random_range(1..60) };
            let found = value_for(game, &position, player, depth, window);
            let agrees = match exact {
                _ if exact <= window.low => found <= window.low,
                _ if exact >= window.high => found >= window.high,
                _ => found == exact,
            };
            assert!(agrees, "{found} in {window:?} instead of {exact}{}", place());
            let mut legal = Vec::new();
            game.legal_actions(&position, &mut legal);
            legal.retain(|&action| {
                let mut next = position.clone();
                game.play(&mut next, action);
                minimax(game, &next, player, depth - 1) == exact
            });
            assert_eq!(best_actions(game, &position, depth), legal, "{}", place());
        }
    }

    #[test]
    fn values_and_best_actions_are_those_of_minimax() {
        agrees_with_minimax(&Othello::new(othello::Size::Six), 4, 20);
        agrees_with_minimax(&Othello::new(othello::Size::Eight), 3, 20);
        agrees_with_minimax(&Breakthrough::new(breakthrough::Size::MIN), 3, 20);
        agrees_with_minimax(&Breakthrough::new(breakthrough::Size::MAX), 2, 15);
        agrees_with_minimax(&TicTacToe::new(), 5, 20);
    }

    #[test]
    fn equally_good_actions_are_all_played_and_a_seed_fixes_them() {
        let game = Othello::new(othello::Size::Eight);
        let choose = |seed| AlphaBetaMover::new(2, rng(seed)).choose(&game, &[game.start(); 40]).unwrap();
        let played: HashSet<Action> = choose(1).into_iter().collect();
        assert_eq!(played.len(), 4, "the four first actions are images of each other");
        assert_eq!(choose(2), choose(2));
    }

    #[test]
    fn an_earlier_win_is_preferred() {
        let game = TicTacToe::new();
        // Cell 1 completes the first row; cell 4 wins too, two plies later.
        let position = game.replay(&[0, 3, 2, 5].map(Action)).unwrap();
        assert_eq!(best_actions(&game, &position, 9), [Action(1)]);
    }

    /// A search of two plies scores above 90 % against random moves: 40 games on each board.
    #[test]
    fn alpha_beta_beats_random_moves() {
        fn points<G: Game>(game: &G) -> f64 {
            let settings = matches::Settings { openings: 20, opening_plies_max: 4 };
            let openings = matches::openings(game, settings, 0, &mut rng(1));
            let (mut strong, mut random) = (AlphaBetaMover::new(2, rng(2)), RandomMover { rng: rng(3) });
            let (mut played, go_on) = (matches::Played::default(), &mut |_| ControlFlow::Continue(()));
            assert!(
                matches::play(game, [&mut strong, &mut random], &openings, &mut played, go_on).unwrap().is_continue()
            );
            played.tally().points()
        }
        let points = [points(&Othello::new(othello::Size::Six)), points(&Breakthrough::new(breakthrough::Size::MIN))];
        assert!(points.iter().all(|&points| points >= 36.0), "{points:?} of 40");
    }
}
