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

/// Determines how an episode is scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scoring {
    /// By its [`Outcome`](crate::Outcome) alone: every reward is 0.
    Outcome,
    /// By the sum of its rewards, which may have any finite value: every outcome is
    /// [`Finished`](crate::Outcome::Finished) or [`Truncated`](crate::Outcome::Truncated).
    Rewards,
}

/// Determines whether the result of an action depends on chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dynamics {
    /// A position and an action determine the next position. The first position may still depend on the seed.
    Deterministic,
    /// The next position also depends on random numbers, which the seed of the episode determines: a search that plays
    /// actions by the rules would know the future.
    Stochastic,
}

/// The range of the values of an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservationRange {
    /// Values in `[0, 1]`.
    Unit,
    /// Any finite values.
    Finite,
}

/// The form in which the observations of an environment are stored, because its rules are not in this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recording {
    /// The number of frames in an observation, the oldest first. Each frame is stored once.
    pub stack: usize,
}

/// The constants of a game or an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The name in configurations and trajectories, with the board size if the game has several: `hex-11`.
    pub name: String,
    /// The number of players.
    pub players: Players,
    /// A: the number of actions, legal or not. Actions are indices below it.
    ///
    /// Where the actions of a board game name its cells, action `cell · k + direction` is one of the k actions of a
    /// cell. Cells are numbered row by row from the top left, as in the observation of the player to move, whose H x W
    /// is the board; actions without a cell, such as a pass or a swap, have the last numbers. A convolutional policy
    /// head depends on this order.
    pub actions: usize,
    /// The shape of the observation, `[C, H, W]`; `[C, 1, 1]` for a vector.
    pub observation: ObservationShape,
    /// The range of the observation's values.
    pub observation_range: ObservationRange,
    /// The way in which an episode is scored.
    pub scoring: Scoring,
    /// Whether actions have random results.
    pub dynamics: Dynamics,
    /// The form of stored observations; `None` if the rules recompute them from the seed and the actions.
    pub recording: Option<Recording>,
    /// The maximum number of actions of an episode.
    pub max_plies: usize,
}

impl Spec {
    /// Returns the spec of a board game for two players: scored by its outcome, without chance, observed in `[0, 1]`.
    #[must_use]
    pub fn board(name: String, actions: usize, observation: ObservationShape, max_plies: usize) -> Self {
        Self {
            name,
            players: Players::Two,
            actions,
            observation,
            observation_range: ObservationRange::Unit,
            scoring: Scoring::Outcome,
            dynamics: Dynamics::Deterministic,
            recording: None,
            max_plies,
        }
    }
}
