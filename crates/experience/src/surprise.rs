use game::{Outcome, Player};

use crate::{StepKind, Trajectory};

impl Trajectory {
    /// How far off the searches were: the mean over all searched steps of `|search value - outcome|`, both as the player
    /// to move sees them, 0 to 2 where values are within `[-1, 1]`. Players are taken to alternate.
    ///
    /// `None` without a searched step, and in a game scored by its rewards alone.
    #[must_use]
    pub fn surprise(&self) -> Option<f64> {
        if self.outcome == Outcome::Finished {
            return None;
        }
        let (mut sum, mut steps) = (0.0, 0_u32);
        for (step, player) in self.steps.iter().zip([Player::First, Player::Second].into_iter().cycle()) {
            let (StepKind::Full { value, .. } | StepKind::Fast { value }) = step.kind else { continue };
            sum += f64::from((value - self.outcome.value_for(player)).abs());
            steps += 1;
        }
        (steps > 0).then(|| sum / f64::from(steps))
    }
}

#[cfg(test)]
mod tests;
