/// One of at most two players.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Player {
    /// The player who moves first; the only one in games for one player.
    First,
    /// The player who moves second.
    Second,
}

impl Player {
    /// The other player.
    #[must_use]
    pub const fn opponent(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    /// 0 for the first player, 1 for the second.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// How a game ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// One player won, the other lost.
    Win(Player),
    /// Neither player won.
    Draw,
    /// A game scored by its rewards alone is over.
    Finished,
}

impl Outcome {
    /// The count of results that an outcome can be to a player: a win, a draw, a loss.
    pub const RESULTS: usize = 3;

    /// 1 for a win, 0 for a draw or a game without a winner, −1 for a loss, as seen by `player`.
    #[must_use]
    pub fn value_for(self, player: Player) -> f32 {
        match self {
            Self::Win(winner) if winner == player => 1.0,
            Self::Win(_) => -1.0,
            Self::Draw | Self::Finished => 0.0,
        }
    }
}
