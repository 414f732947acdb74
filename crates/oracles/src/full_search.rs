use std::collections::HashMap;

use game::{Action, Game};

use crate::Oracle;
use crate::value::Value;

/// Number of stored values beyond which they are dropped before the next position.
const VALUES_MAX: usize = 1 << 20;

/// Searches every line of play to the end, and stores the value of each position by hash: for games with few
/// positions, and for positions with few moves left.
///
/// The players must alternate.
pub struct FullSearch<G: Game> {
    game: G,
    /// Returns the number of plies before a position.
    plies: fn(&G, &G::Position) -> usize,
    plies_left_max: usize,
    values: HashMap<u64, Value>,
}

impl<G: Game> FullSearch<G> {
    /// Creates the oracle of a game; `plies` returns the number of plies before a position. Covers positions with at
    /// most `plies_left_max` plies left in the longest game.
    #[must_use]
    pub fn new(game: G, plies: fn(&G, &G::Position) -> usize, plies_left_max: usize) -> Self {
        Self { game, plies, plies_left_max, values: HashMap::new() }
    }

    fn value(&mut self, position: &G::Position) -> Value {
        if let Some(outcome) = self.game.outcome(position) {
            return Value::of_end(outcome, self.game.to_move(position));
        }
        let hash = self.game.hash(position);
        if let Some(&value) = self.values.get(&hash) {
            return value;
        }
        let mut legal = Vec::new();
        self.game.legal_actions(position, &mut legal);
        let value = legal.into_iter().map(|action| self.value_after(position, action)).max().unwrap_or(Value::MIN);
        self.values.insert(hash, value);
        value
    }

    /// Returns the value of an action for the player who chooses the action.
    fn value_after(&mut self, position: &G::Position, action: Action) -> Value {
        let mut next = position.clone();
        self.game.play(&mut next, action);
        self.value(&next).before()
    }
}

impl<G: Game> Oracle for FullSearch<G> {
    type Position = G::Position;

    fn covers(&self, position: &G::Position) -> bool {
        self.game.spec().max_plies - (self.plies)(&self.game, position) <= self.plies_left_max
    }

    fn scores(&mut self, position: &G::Position) -> Vec<Option<i32>> {
        if self.values.len() > VALUES_MAX {
            self.values.clear();
        }
        let mut legal = Vec::new();
        self.game.legal_actions(position, &mut legal);
        let plies = (self.plies)(&self.game, position);
        let mut scores = vec![None; self.game.spec().actions];
        for action in legal {
            let value = self.value_after(position, action);
            scores[action.index()] = Some(value.score(self.game.spec(), plies));
        }
        scores
    }
}

#[cfg(test)]
mod tests {
    use games::TicTacToe;

    use super::*;
    use crate::planes;

    fn scores(moves: &[u16]) -> Vec<Option<i32>> {
        let game = TicTacToe::new();
        let actions: Vec<Action> = moves.iter().copied().map(Action).collect();
        let position = game.replay(&actions).unwrap();
        FullSearch::new(game, planes::count, 9).scores(&position)
    }

    #[test]
    fn every_opening_of_tic_tac_toe_is_a_draw() {
        assert_eq!(scores(&[]), [Some(0); 9]);
    }

    #[test]
    fn a_sooner_win_has_a_larger_score_and_a_lost_move_a_negative_one() {
        // X X .      X completes the first row with the third stone and has two in hand. If X leaves the second row,
        // O O .      O completes it with the third stone and has one in hand.
        // . . .
        let after = scores(&[0, 3, 1, 4]);
        assert_eq!((after[2], after[8], after[0]), (Some(3), Some(-2), None));
    }
}
