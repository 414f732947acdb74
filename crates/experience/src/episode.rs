use game::Outcome;

/// The facts of an episode other than the steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Episode {
    /// The seed from which the rules recompute the episode; 0 in games without randomness.
    pub seed: u64,
    /// The outcome of the whole episode.
    pub outcome: Outcome,
    /// The value of the last position, from which returns bootstrap if the outcome is
    /// [`Truncated`](Outcome::Truncated); 0 otherwise.
    pub truncation_value: f32,
}

impl Episode {
    /// Returns the facts of an episode without randomness that was not truncated.
    #[must_use]
    pub fn of(outcome: Outcome) -> Self {
        Self { seed: 0, outcome, truncation_value: 0.0 }
    }
}
