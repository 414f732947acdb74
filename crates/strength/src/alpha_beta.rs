//! Implements an opponent of fixed strength: alpha-beta search (Knuth and Moore 1975) to a fixed depth.
//!
//! Positions at that depth get the game's heuristic value. Start with [`AlphaBetaMover`].

use std::cmp::Reverse;
use std::collections::HashMap;

use game::{Action, Game, HEURISTIC_MAX, Outcome, Player};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::contestant::Contestant;

/// Value of a win at the full depth of the search. An earlier win has a larger value.
const WIN: i32 = 2 * HEURISTIC_MAX;

/// A bound that exceeds the absolute value of every position.
const INFINITE: i32 = 2 * WIN;

/// Maximum number of positions in the table of a search. A full table accepts no new position.
const TABLE_MAX: usize = 1 << 20;

/// Searches with alpha-beta and the game's heuristic value, instead of a network or playouts.
///
/// Several best actions are chosen at random, so that games differ. In a game without a heuristic value, the player
/// avoids losses within the search depth, and otherwise plays at random.
#[derive(Debug)]
pub struct AlphaBetaMover {
    depth: u8,
    rng: ChaCha8Rng,
}

impl AlphaBetaMover {
    /// Creates a player that searches `depth` plies, including the player's own action.
    ///
    /// # Panics
    /// `depth` is 0.
    #[must_use]
    pub fn new(depth: u8, rng: ChaCha8Rng) -> Self {
        assert!(depth > 0, "a search of no ply has no action");
        Self { depth, rng }
    }
}

impl<G: Game> Contestant<G> for AlphaBetaMover {
    fn choose(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Action>, inference::Error> {
        let choose = |position| {
            let best = Search::new(game).best_actions(position, self.depth);
            best[self.rng.random_range(0..best.len())]
        };
        Ok(positions.iter().map(choose).collect())
    }
}

/// The alpha-beta window of a search. Values between the bounds are exact; for any other value, the search returns a
/// bound outside the window.
#[derive(Debug, Clone, Copy)]
struct Window {
    low: i32,
    high: i32,
}

impl Window {
    const FULL: Self = Self { low: -INFINITE, high: INFINITE };

    /// Returns the window from the other player's point of view.
    fn reversed(self) -> Self {
        Self { low: -self.high, high: -self.low }
    }
}

/// The search of one position.
struct Search<'a, G> {
    game: &'a G,
    /// Bounds of the value for the player to move, by [hash](Game::hash) and remaining depth.
    table: HashMap<(u64, u8), Window>,
}

impl<'a, G: Game> Search<'a, G> {
    fn new(game: &'a G) -> Self {
        Self { game, table: HashMap::new() }
    }

    /// Returns the legal actions with the highest value in a search of `depth` plies, in ascending order.
    fn best_actions(&mut self, position: &G::Position, depth: u8) -> Vec<Action> {
        let player = self.game.to_move(position);
        let mut best = Vec::new();
        let mut highest = -INFINITE;
        for (action, next) in self.children(position, depth) {
            // One below the highest value, so that equal values are also exact.
            let window = Window { low: highest - 1, high: INFINITE };
            let value = self.value_for(&next, player, depth - 1, window);
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

    /// Returns the value of a position for `player`, from a search of `depth` more plies.
    fn value_for(&mut self, position: &G::Position, player: Player, depth: u8, window: Window) -> i32 {
        if let Some(outcome) = self.game.outcome(position) {
            return value_of(outcome, player, depth);
        }
        let to_move = self.game.to_move(position);
        let mut value = |window| match depth {
            0 => self.game.heuristic_value(position),
            1 => self.highest_value(position, to_move, depth, window),
            _ => self.known_value(position, to_move, depth, window),
        };
        if to_move == player { value(window) } else { -value(window.reversed()) }
    }

    /// Returns the highest action value for the player to move, from the table if the stored bounds suffice.
    fn known_value(&mut self, position: &G::Position, to_move: Player, depth: u8, window: Window) -> i32 {
        let key = (self.game.hash(position), depth);
        let known = self.table.get(&key).copied().unwrap_or(Window::FULL);
        if known.low >= window.high || known.low == known.high {
            return known.low;
        }
        if known.high <= window.low {
            return known.high;
        }
        let value = self.highest_value(position, to_move, depth, window);
        let low = if value > window.low { value } else { known.low };
        let high = if value < window.high { value } else { known.high };
        if self.table.len() < TABLE_MAX || self.table.contains_key(&key) {
            self.table.insert(key, Window { low, high });
        }
        value
    }

    /// Returns the highest action value for the player to move.
    fn highest_value(&mut self, position: &G::Position, to_move: Player, depth: u8, window: Window) -> i32 {
        let mut highest = window.low;
        for (_, next) in self.children(position, depth) {
            let value = self.value_for(&next, to_move, depth - 1, Window { low: highest, ..window });
            highest = highest.max(value);
            if highest >= window.high {
                break;
            }
        }
        highest
    }

    /// Returns the position after each legal action. Before a deeper search they are sorted by descending heuristic
    /// value for the player to move, so that more positions are pruned.
    fn children(&mut self, position: &G::Position, depth: u8) -> Vec<(Action, G::Position)> {
        let player = self.game.to_move(position);
        let mut legal = Vec::new();
        self.game.legal_actions(position, &mut legal);
        let child = |action| {
            let mut next = position.clone();
            self.game.play(&mut next, action);
            (action, next)
        };
        let mut children: Vec<(Action, G::Position)> = legal.into_iter().map(child).collect();
        if depth > 1 {
            children.sort_by_cached_key(|(_, next)| Reverse(self.value_for(next, player, 0, Window::FULL)));
        }
        children
    }
}

/// Returns the value of an outcome `depth` plies before the end of the search.
fn value_of(outcome: Outcome, player: Player, depth: u8) -> i32 {
    let win = WIN + i32::from(depth);
    match outcome {
        Outcome::Win(winner) if winner == player => win,
        Outcome::Win(_) => -win,
        Outcome::Draw | Outcome::Finished | Outcome::Truncated => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::ops::ControlFlow;

    use games::{Breakthrough, ConnectFour, Othello, TicTacToe, breakthrough, othello};
    use rand::SeedableRng;

    use super::*;
    use crate::contestant::RandomMover;
    use crate::matches;

    fn rng(seed: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(seed)
    }

    /// Returns the value of a position for `player`, by plain minimax.
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
            let low = exact + rng.random_range(-60..60);
            let window = Window { low, high: low + rng.random_range(1..60) };
            // One table for both: entries from a narrow window serve the full window.
            let mut search = Search::new(game);
            let found = search.value_for(&position, player, depth, window);
            let agrees = match exact {
                _ if exact <= window.low => found <= window.low,
                _ if exact >= window.high => found >= window.high,
                _ => found == exact,
            };
            assert!(agrees, "{found} in {window:?} instead of {exact}{}", place());
            assert_eq!(search.value_for(&position, player, depth, Window::FULL), exact, "{}", place());
            let other = player.opponent();
            assert_eq!(search.value_for(&position, other, depth, Window::FULL), -exact, "{}", place());
            let mut legal = Vec::new();
            game.legal_actions(&position, &mut legal);
            legal.retain(|&action| {
                let mut next = position.clone();
                game.play(&mut next, action);
                minimax(game, &next, player, depth - 1) == exact
            });
            assert_eq!(search.best_actions(&position, depth), legal, "{}", place());
        }
    }

    #[test]
    fn values_and_best_actions_are_those_of_minimax() {
        agrees_with_minimax(&Othello::new(othello::Size::Six), 4, 20);
        agrees_with_minimax(&Othello::new(othello::Size::Eight), 3, 20);
        agrees_with_minimax(&Breakthrough::new(breakthrough::Size::MIN), 3, 20);
        agrees_with_minimax(&Breakthrough::new(breakthrough::Size::MAX), 2, 15);
        agrees_with_minimax(&TicTacToe::new(), 5, 20);
        agrees_with_minimax(&ConnectFour::new(), 6, 20);
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
        // Cell 1 completes the first row; cell 4 also wins, two plies later.
        let position = game.replay(&[0, 3, 2, 5].map(Action)).unwrap();
        assert_eq!(Search::new(&game).best_actions(&position, 9), [Action(1)]);
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
