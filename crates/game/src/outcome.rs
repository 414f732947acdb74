/// Identifies one of at most two players.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Player {
    /// The player who moves first; the only player in games for one player.
    First,
    /// The player who moves second.
    Second,
}

impl Player {
    /// Returns the other player.
    #[must_use]
    pub const fn opponent(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    /// Returns 0 for the first player, 1 for the second.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The result of a game that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// One player won, the other lost.
    Win(Player),
    /// Neither player won.
    Draw,
    /// An episode scored only by rewards has ended: no reward would follow.
    Finished,
    /// An episode scored only by rewards was cut short by a time limit: rewards would follow, so returns bootstrap
    /// from the value of the last position.
    Truncated,
}

impl Outcome {
    /// Number of results for a player: win, draw, loss.
    pub const RESULTS: usize = 3;

    /// Returns the outcome in words, for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Win(Player::First) => "first wins",
            Self::Win(Player::Second) => "second wins",
            Self::Draw => "draw",
            Self::Finished => "finished",
            Self::Truncated => "truncated",
        }
    }

    /// Returns the value for `player`: 1 for a win, 0 for a draw or a game scored by rewards, −1 for a loss.
    #[must_use]
    pub fn value_for(self, player: Player) -> f32 {
        match self {
            Self::Win(winner) if winner == player => 1.0,
            Self::Win(_) => -1.0,
            Self::Draw | Self::Finished | Self::Truncated => 0.0,
        }
    }
}
