/// The number of players of a game.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Players {
    /// One player against the rules.
    One,
    /// Two players with opposite rewards. They need not strictly alternate.
    Two,
}

/// The shape of an observation, `[C, H, W]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObservationShape {
    /// C: the number of planes.
    pub planes: usize,
    /// H: the number of rows.
    pub height: usize,
    /// W: the number of columns.
    pub width: usize,
}

impl ObservationShape {
    /// Returns the number of values, C · H · W.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no observation is empty")]
    pub const fn len(self) -> usize {
        self.planes * self.height * self.width
    }
}

/// The constants of a game.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The name in configurations and trajectories, with the board size if the game has several: `hex-11`.
    pub name: String,
    /// The number of players.
    pub players: Players,
    /// A: the number of actions, legal or not. Actions are indices below it.
    pub actions: usize,
    /// The shape of the observation, `[C, H, W]`.
    pub observation: ObservationShape,
    /// The maximum number of actions of an episode.
    pub max_plies: usize,
}
