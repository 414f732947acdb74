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
mod tests {
    use game::{Action, Outcome, Player};
    use weights::WeightsVersion;

    use crate::{Step, StepKind, Trajectory, TrajectoryId};

    fn trajectory(kinds: Vec<StepKind>, outcome: Outcome) -> Trajectory {
        let step = |kind| Step { action: Action(0), reward: 0.0, kind, weights_version: WeightsVersion(1) };
        let id = TrajectoryId { actor: 1, epoch: 1, sequence: 1 };
        Trajectory { id, game: "test".into(), steps: kinds.into_iter().map(step).collect(), outcome }
    }

    #[test]
    fn surprise_is_the_mean_distance_of_searched_values_from_the_outcome_as_the_player_to_move_sees_it() {
        let kinds = vec![
            StepKind::Opening,
            // The second player lost: right by a half, then wrong altogether.
            StepKind::Fast { value: -0.5 },
            StepKind::Opening,
            StepKind::Full { policy: Vec::new(), value: 1.0 },
        ];
        assert_eq!(trajectory(kinds, Outcome::Win(Player::First)).surprise(), Some((0.5 + 2.0) / 2.0));
    }

    #[test]
    fn nothing_is_surprising_without_searches_or_without_a_result() {
        assert_eq!(trajectory(vec![StepKind::Opening], Outcome::Draw).surprise(), None);
        assert_eq!(trajectory(vec![StepKind::Fast { value: 0.5 }], Outcome::Finished).surprise(), None);
    }
}
