mod board;
mod solver;
mod table;

#[cfg(test)]
mod tests;

use game::{Action, Game, Player};
use games::{Hex, hex};

use crate::value::Value;
use crate::{Oracle, planes};
use solver::Solver;

/// Minimum number of stones in a covered position on the largest board: with fewer, the search takes seconds per
/// position.
const STONES_MIN: usize = 5;

/// Scores positions of Hex with the swap rule: all positions on 3 and 4 cells a side, and on 5 cells a side with at
/// least 5 stones.
///
/// Scores distinguish wins by the number of moves: the best move wins soonest, or delays the loss most.
pub struct HexOracle {
    game: Hex,
    solver: Solver,
    /// Minimum number of stones in a covered position.
    stones_min: usize,
}

impl HexOracle {
    /// Maximum number of cells along a side.
    pub const SIZE_MAX: usize = board::SIZE_MAX;

    /// Creates the oracle; `None` if the board is too large.
    #[must_use]
    pub fn new(game: Hex) -> Option<Self> {
        let stones_min = if game.size() == Self::SIZE_MAX { STONES_MIN } else { 0 };
        Self::covering(game, stones_min)
    }

    /// Creates an oracle that covers every position; `None` if the board is too large. On 5 cells a side, a position
    /// with few stones takes seconds to minutes.
    #[must_use]
    pub fn of_all_positions(game: Hex) -> Option<Self> {
        Self::covering(game, 0)
    }

    fn covering(game: Hex, stones_min: usize) -> Option<Self> {
        let size = game.size();
        (size <= Self::SIZE_MAX).then(|| Self { game, solver: Solver::new(size), stones_min })
    }

    /// Returns the value of a position for the player to move.
    fn value(&mut self, position: &hex::Position) -> Value {
        if let Some(outcome) = self.game.outcome(position) {
            return Value::of_end(outcome, self.game.to_move(position));
        }
        let [own, opponent] = stones(&self.game, position);
        let value = self.solver.value(own, opponent);
        if self.game.is_legal(position, self.game.swap()) {
            value.max(self.value_after(position, self.game.swap()))
        } else {
            value
        }
    }

    /// Returns the value of an action for the player who chooses the action.
    fn value_after(&mut self, position: &hex::Position, action: Action) -> Value {
        let mut next = *position;
        self.game.play(&mut next, action);
        self.value(&next).before()
    }
}

/// Returns the stones of the player to move and the opponent, in the frame of the player to move.
fn stones(game: &Hex, position: &hex::Position) -> [u32; 2] {
    planes::stones(game, position).map(|stones| u32::try_from(stones).expect("the board has at most 25 cells"))
}

/// Returns the number of plies before a position.
///
/// Every ply except the swap adds a stone; the swap changes the parity of the stones.
fn plies(game: &Hex, position: &hex::Position) -> usize {
    let stones = planes::count(game, position);
    let is_second = game.to_move(position) == Player::Second;
    stones + usize::from(stones.is_multiple_of(2) == is_second)
}

impl Oracle for HexOracle {
    type Position = hex::Position;

    fn covers(&self, position: &hex::Position) -> bool {
        planes::count(&self.game, position) >= self.stones_min
    }

    fn scores(&mut self, position: &hex::Position) -> Vec<Option<i32>> {
        let mut legal = Vec::new();
        self.game.legal_actions(position, &mut legal);
        let plies = plies(&self.game, position);
        let mut scores = vec![None; self.game.spec().actions];
        for action in legal {
            let value = self.value_after(position, action);
            scores[action.index()] = Some(value.score(self.game.spec(), plies));
        }
        scores
    }
}
