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
