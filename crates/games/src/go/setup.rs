//! Games with another komi or with stones at the start, and queries of positions by other programs.

use game::{Game as _, Player};

use super::{Go, Komi, Position};
use crate::cells::{self, Cells};
use crate::grid::narrow;

/// The reason why stones do not form a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A cell is not on the board.
    #[error("a stone is outside the board")]
    Outside,
    /// Two stones have the same cell.
    #[error("two stones are on one cell")]
    Occupied,
    /// A chain has no liberty.
    #[error("a chain of stones has no liberty")]
    NoLiberty,
}

impl Go {
    /// Returns the same rules with another komi.
    #[must_use]
    pub fn with_other_komi(&self, komi: Komi) -> Self {
        Self { komi, ..self.clone() }
    }

    /// Returns the position of a game that starts with these stones, each given by owner and cell, and with `to_move`
    /// to play. For superko, the resulting board counts as an earlier board.
    ///
    /// # Errors
    /// [`SetupError`] if the stones do not form a position.
    pub fn set_up(
        &self,
        stones: impl IntoIterator<Item = (Player, usize)>,
        to_move: Player,
    ) -> Result<Position, SetupError> {
        // The parity of the plies determines the player to move.
        let mut position = Position { plies: narrow(to_move.index()), ..self.start() };
        for (player, cell) in stones {
            if cell >= self.cells() {
                return Err(SetupError::Outside);
            }
            if self.stone(&position, cell).is_some() {
                return Err(SetupError::Occupied);
            }
            position.stones[player.index()].insert(cell);
            position.board_hash ^= self.stone_key(&position, player, cell);
        }
        let at_empty = self.board.around(self.empty(&position));
        let with_liberty = position.stones.map(|stones| self.board.connected(at_empty & stones, stones));
        if with_liberty != position.stones {
            return Err(SetupError::NoLiberty);
        }
        if position.stones != [Cells::EMPTY; 2] {
            position.past.push(position.board_hash);
            // Every cell is adjacent to a cell of the board, so that all chains are counted.
            self.count_liberties(&mut position, 0, self.board.cells());
        }
        Ok(position)
    }

    /// Returns the position without the last passes, but with the same player to move: play can continue after two
    /// passes.
    #[must_use]
    pub fn resumed(&self, position: &Position) -> Position {
        let mut resumed = Position { passes: 0, ..position.clone() };
        resumed.forbidden = self.recreating(&resumed);
        resumed
    }

    /// Returns the owner of the stone on a cell; cells are numbered like actions.
    #[must_use]
    pub fn stone(&self, position: &Position, cell: usize) -> Option<Player> {
        cells::owner(&position.stones, cell)
    }

    /// Returns the cells of each chain.
    #[must_use]
    pub fn chains(&self, position: &Position) -> Vec<Vec<usize>> {
        let mut chains = Vec::new();
        for stones in position.stones {
            let mut left = stones;
            while let Some(cell) = left.first() {
                let chain = self.board.connected(Cells::from_iter([cell]), stones);
                chains.push(chain.iter().collect());
                left = left.without(chain);
            }
        }
        chains
    }
}
