//! Proven results of nodes: a proven node needs no more search.

/// The proven result of a node, as seen by the player to move there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Proven {
    /// Nothing is proven yet.
    #[default]
    Unknown,
    /// The player to move wins.
    Win,
    /// Neither player can do better than a draw.
    Draw,
    /// The player to move loses, whatever they play.
    Loss,
}

impl Proven {
    /// The proven result of a terminal value in a board game. Values other than −1, 0 and 1 prove nothing.
    pub(crate) fn from_value(value: f32) -> Self {
        match value {
            1.0 => Self::Win,
            0.0 => Self::Draw,
            -1.0 => Self::Loss,
            _ => Self::Unknown,
        }
    }

    /// The exact value to move, if one is known.
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

    /// The same result as seen by the other player.
    #[must_use]
    pub fn reversed(self) -> Self {
        match self {
            Self::Win => Self::Loss,
            Self::Loss => Self::Win,
            Self::Unknown | Self::Draw => self,
        }
    }
}
