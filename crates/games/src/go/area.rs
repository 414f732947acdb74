use game::Player;

use crate::cells::{self, Cells};

/// The area of each player by Tromp and Taylor: the player's stones, and the empty cells from which empty cells lead
/// only to stones of this player.
///
/// Capturable stones count as they stand: players capture them before passing.
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

    /// Returns the player with a cell in the area; `None` for neutral cells. Cells are numbered like actions.
    #[must_use]
    pub fn owner(&self, cell: usize) -> Option<Player> {
        cells::owner(&self.owned, cell)
    }
}
