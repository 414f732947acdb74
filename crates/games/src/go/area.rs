use game::Player;

use crate::cells::{self, Cells};

/// Holds the area of each player, as Tromp and Taylor define it: the player's stones, and the empty cells from which
/// empty cells lead to stones of this player only.
///
/// Stones that could be captured are counted as they stand: players capture them before they pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    pub(super) owned: [Cells; 2],
}

impl Area {
    /// Returns the number of cells in the area of a player, without komi.
    #[must_use]
    pub fn points(&self, player: Player) -> usize {
        self.owned[player.index()].len()
    }

    /// Returns the player in whose area a cell is, `None` if it is in neither. Cells are numbered as the actions are.
    #[must_use]
    pub fn owner(&self, cell: usize) -> Option<Player> {
        cells::owner(&self.owned, cell)
    }
}
