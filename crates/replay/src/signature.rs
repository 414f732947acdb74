use experience::{Invalid, Limits, Trajectory};

/// What a table takes: a trajectory of one game, within bounds.
///
/// Checked while the trajectory still is one, before [`PackedTrajectory`](experience::PackedTrajectory) packs it; the
/// table itself trusts what it gets. The game is a name here and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The name of the game, as in its spec.
    pub game: String,
    /// The most steps, and below what actions are.
    pub limits: Limits,
}

impl Signature {
    /// Whether a trajectory fits, with everything that [`Trajectory::validate`] checks.
    ///
    /// # Errors
    /// [`Invalid`] names the first field that does not fit, and why.
    pub fn check(&self, trajectory: &Trajectory) -> Result<(), Invalid> {
        if trajectory.game != self.game {
            let reason = format!("is {:?}, the table holds {:?}", trajectory.game, self.game);
            return Err(Invalid { field: "game".to_owned(), reason });
        }
        trajectory.validate(self.limits)
    }
}

#[cfg(test)]
mod tests;
