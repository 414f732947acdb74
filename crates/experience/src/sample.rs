use game::{Action, Outcome};
use weights::WeightsVersion;

use crate::{ActionProbability, Step, StepKind, Trajectory, TrajectoryId};

/// A position and the K steps the learner unrolls from it; K is zero for AlphaZero.
///
/// The position is given by the actions that lead to it, so that the rules can rebuild any plane.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// The trajectory it was cut from.
    pub trajectory: TrajectoryId,
    /// Its position is the one after this many actions.
    pub ply: usize,
    /// The actions from the start of the episode: `ply` that lead to the position, then those that are unrolled.
    pub actions: Vec<Action>,
    /// What was concluded at the position and after each unrolled action that has a searched position: `1 + K` at most.
    pub targets: Vec<Target>,
    /// How the episode ended.
    pub outcome: Outcome,
    /// How many plies the episode had.
    pub plies: usize,
}

/// What the search concluded at one position.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The search policy, ascending by action; empty where none was recorded.
    pub policy: Vec<ActionProbability>,
    /// What the search policy expected for the player to move; 0 where none was recorded.
    pub value: f32,
    /// The reward of the action played here.
    pub reward: f32,
    /// Which weights searched it.
    pub weights_version: WeightsVersion,
}

impl From<Step> for Target {
    fn from(step: Step) -> Self {
        let (policy, value) = match step.kind {
            StepKind::Full { policy, value } => (policy, value),
            StepKind::Fast { value } => (Vec::new(), value),
            StepKind::Opening => (Vec::new(), 0.0),
        };
        Self { policy, value, reward: step.reward, weights_version: step.weights_version }
    }
}

/// A segment as drawn from a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// What was drawn.
    pub segment: Segment,
    /// With which probability, given the table at that moment.
    pub probability: f64,
    /// How many items the table could have drawn.
    pub table_items: u64,
}

impl Segment {
    /// Cuts the segment of `unroll_steps` that begins at `ply`; shorter where the episode ends sooner. `None` if the
    /// trajectory has no such ply.
    #[must_use]
    pub fn cut(trajectory: &Trajectory, ply: usize, unroll_steps: usize) -> Option<Self> {
        if ply >= trajectory.steps.len() {
            return None;
        }
        let end = ply.saturating_add(unroll_steps).min(trajectory.steps.len() - 1);
        let targets = trajectory.steps[ply..=end].iter().cloned().map(Target::from).collect();
        Some(Self {
            trajectory: trajectory.id,
            ply,
            actions: trajectory.actions().take(end).collect(),
            targets,
            outcome: trajectory.outcome,
            plies: trajectory.steps.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Step;

    fn trajectory() -> Trajectory {
        let step =
            |action: u16, kind| Step { action: Action(action), reward: 0.0, kind, weights_version: WeightsVersion(7) };
        let full =
            StepKind::Full { policy: vec![ActionProbability { action: Action(2), probability: 1.0 }], value: 0.5 };
        Trajectory {
            id: TrajectoryId { actor: 1, epoch: 1, sequence: 0 },
            game: "any".into(),
            steps: vec![step(4, StepKind::Opening), step(2, full), step(0, StepKind::Fast { value: -0.5 })],
            outcome: Outcome::Draw,
        }
    }

    #[test]
    fn a_segment_without_unroll_holds_the_actions_that_lead_to_its_position() {
        let segment = Segment::cut(&trajectory(), 1, 0).unwrap();
        assert_eq!(segment.actions, [Action(4)]);
        assert_eq!(segment.targets.len(), 1);
        assert_eq!(segment.targets[0].value, 0.5);
    }

    #[test]
    fn a_segment_near_the_end_is_shorter() {
        let segment = Segment::cut(&trajectory(), 1, 5).unwrap();
        assert_eq!(segment.actions, [Action(4), Action(2)]);
        assert_eq!(segment.targets.iter().map(|target| target.value).collect::<Vec<_>>(), [0.5, -0.5]);
        assert_eq!(Segment::cut(&trajectory(), 1, usize::MAX), Some(segment));
    }

    #[test]
    fn there_is_no_segment_past_the_end() {
        assert_eq!(Segment::cut(&trajectory(), 3, 0), None);
    }
}
