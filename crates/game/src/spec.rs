/// How many players a game has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Players {
    /// One player against the rules.
    One,
    /// Two players, one's gain the other's loss. They need not strictly alternate.
    Two,
}

/// The shape of an observation, `[C, H, W]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObservationShape {
    /// C: how many planes.
    pub planes: usize,
    /// H: rows.
    pub height: usize,
    /// W: columns.
    pub width: usize,
}

impl ObservationShape {
    /// C · H · W.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no observation is empty")]
    pub const fn len(self) -> usize {
        self.planes * self.height * self.width
    }
}

/// The constants of a game.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The name that configuration and trajectories use, with its size where that varies: `hex-11`.
    pub name: String,
    /// How many players take part.
    pub players: Players,
    /// A: how many actions exist, legal or not. Actions are indices below it.
    pub actions: usize,
    /// The observation's `[C, H, W]`.
    pub observation: ObservationShape,
    /// No episode is longer than this.
    pub max_plies: usize,
}
