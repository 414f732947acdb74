//! Proven results of nodes. A proven node needs no further search.

/// The proven result of a node, from the view of the player to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Proven {
    /// Nothing is proven yet.
    #[default]
    Unknown,
    /// The player to move wins.
    Win,
    /// Neither player can do better than a draw.
    Draw,
    /// The player to move loses with every action.
    Loss,
}

impl Proven {
    /// Returns the proven result for a terminal value in a board game. Values other than −1, 0 and 1 prove nothing.
    pub(crate) fn from_value(value: f32) -> Self {
        match value {
            1.0 => Self::Win,
            0.0 => Self::Draw,
            -1.0 => Self::Loss,
            _ => Self::Unknown,
        }
    }

    /// Returns the exact value for the player to move (1, 0 or −1), or `None` if the result is unknown.
    #[must_use]
    #[inline]
    pub fn value(self) -> Option<f32> {
        // The common case, an unproven node, costs one comparison.
        (self != Self::Unknown).then_some(match self {
            Self::Win => 1.0,
            Self::Unknown | Self::Draw => 0.0,
            Self::Loss => -1.0,
        })
    }

    /// Returns the same result from the view of the other player.
    #[must_use]
    pub fn reversed(self) -> Self {
        match self {
            Self::Win => Self::Loss,
            Self::Loss => Self::Win,
            Self::Unknown | Self::Draw => self,
        }
    }
}
