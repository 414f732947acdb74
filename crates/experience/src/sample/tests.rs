use super::*;
use crate::Step;

fn trajectory() -> Trajectory {
    let step =
        |action: u16, kind| Step { action: Action(action), reward: 0.0, kind, weights_version: WeightsVersion(7) };
    let full = StepKind::Full { policy: vec![ActionProbability { action: Action(2), probability: 1.0 }], value: 0.5 };
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
