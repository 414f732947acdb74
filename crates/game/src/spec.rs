/// Number of players of a game.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Players {
    /// One player against the rules.
    One,
    /// Two players with opposite rewards. They need not strictly alternate.
    Two,
}

/// Shape of an observation, `[C, H, W]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObservationShape {
    /// C, the number of planes.
    pub planes: usize,
    /// H, the number of rows.
    pub height: usize,
    /// W, the number of columns.
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

/// The scoring of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scoring {
    /// By the [`Outcome`](crate::Outcome) alone: every reward is 0.
    Outcome,
    /// By the sum of rewards, which may have any finite value: every outcome is
    /// [`Finished`](crate::Outcome::Finished) or [`Truncated`](crate::Outcome::Truncated).
    Rewards,
}

/// Determines whether the result of an action depends on chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dynamics {
    /// A position and an action determine the next position. The first position may still depend on the seed.
    Deterministic,
    /// The next position also depends on random numbers, which the seed of the episode determines: a search that
    /// plays actions by the rules would know the future.
    Stochastic,
}

/// Range of the values in an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservationRange {
    /// Values in `[0, 1]`.
    Unit,
    /// Any finite values.
    Finite,
}

/// The storage format for observations of an environment without rules in this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recording {
    /// Number of frames in an observation, oldest first. Each frame is stored once.
    pub stack: usize,
}

/// The constants of a game or an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Name in configurations and trajectories, with the board size if the game has several: `hex-11`.
    pub name: String,
    /// Number of players.
    pub players: Players,
    /// A, the number of actions, legal or not. Actions are indices below A.
    ///
    /// If the actions of a board game name cells, action `cell · k + direction` is one of the k actions for a cell.
    /// Cells are numbered row by row from the top left, as in the observation of the player to move, where H x W is
    /// the board; actions without a cell, such as a pass or a swap, have the last numbers. A convolutional policy
    /// head depends on this order.
    pub actions: usize,
    /// Shape of the observation, `[C, H, W]`; `[C, 1, 1]` for a vector.
    pub observation: ObservationShape,
    /// Range of the observed values.
    pub observation_range: ObservationRange,
    /// Scoring of an episode.
    pub scoring: Scoring,
    /// Deterministic or random results of actions.
    pub dynamics: Dynamics,
    /// Storage format of observations; `None` if the rules recompute them from the seed and the actions.
    pub recording: Option<Recording>,
    /// Maximum number of actions in an episode.
    pub max_plies: usize,
}

impl Spec {
    /// Returns the spec of a board game for two players: scored by the outcome, without chance, observed in `[0, 1]`.
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
