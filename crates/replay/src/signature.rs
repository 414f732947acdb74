use experience::{Invalid, Limits, Trajectory, TrajectoryId};

/// The trajectories that a table takes: those of one game, within bounds. The game is a name here and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The name of the game, as in its spec.
    pub game: String,
    /// The most steps, and below what actions are.
    pub limits: Limits,
}

impl Signature {
    /// Reads a trajectory that fits, with everything that [`Trajectory::parse`] checks.
    ///
    /// # Errors
    /// [`Invalid`] names the first field that does not fit, and why.
    pub fn parse(&self, id: TrajectoryId, columns: &[u8]) -> Result<Trajectory, Invalid> {
        let trajectory = Trajectory::parse(id, columns, self.limits)?;
        if trajectory.game() != self.game {
            let reason = format!("is {:?}, the table holds {:?}", trajectory.game(), self.game);
            return Err(Invalid { field: "game".to_owned(), reason });
        }
        Ok(trajectory)
    }
}

#[cfg(test)]
mod tests {
    use experience::{Step, StepKind, WeightsVersion};
    use game::{Action, Outcome};

    use super::*;

    const ID: TrajectoryId = TrajectoryId { actor: 1, epoch: 1, sequence: 1 };

    fn signature() -> Signature {
        Signature { game: "connect_four".to_owned(), limits: Limits { steps_max: 2, actions: 7 } }
    }

    fn trajectory(game: &str, actions: &[u16]) -> Trajectory {
        let step = |&action| Step {
            action: Action(action),
            reward: 0.0,
            kind: StepKind::Opening,
            weights_version: WeightsVersion(0),
        };
        Trajectory::of(ID, game, &actions.iter().map(step).collect::<Vec<_>>(), Outcome::Draw).unwrap()
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let parse = |game, actions: &[u16]| signature().parse(ID, trajectory(game, actions).columns());
        let said = |game, actions: &[u16]| parse(game, actions).unwrap_err().to_string();
        assert_eq!(said("chess", &[1]), "game: is \"chess\", the table holds \"connect_four\"");
        assert_eq!(said("connect_four", &[1, 2, 3]), "steps: has 3 steps, the limit is 2");
        assert_eq!(said("connect_four", &[1, 7]), "steps[1].action: 7 is not below 7");
        assert_eq!(parse("connect_four", &[1, 6]), Ok(trajectory("connect_four", &[1, 6])));
    }
}
