use super::*;

fn full(probabilities: &[(u16, f32)]) -> StepKind {
    let policy = probabilities
        .iter()
        .map(|&(action, probability)| ActionProbability { action: Action(action), probability })
        .collect();
    StepKind::Full { policy, value: 0.25 }
}

fn check(kind: StepKind, expected: &str) {
    let step = Step { action: Action(1), reward: 0.0, kind, weights_version: WeightsVersion(3) };
    let id = TrajectoryId { actor: 1, epoch: 2, sequence: 3 };
    let trajectory = Trajectory { id, game: "tic_tac_toe".into(), steps: vec![step], outcome: Outcome::Draw };
    let result = trajectory.validate(Limits { steps_max: 9, actions: 9 });
    assert_eq!(
        result.map_err(|invalid| invalid.to_string()),
        if expected.is_empty() { Ok(()) } else { Err(expected.into()) }
    );
}

#[test]
fn a_policy_that_sums_to_one_is_accepted() {
    check(full(&[(0, 0.25), (8, 0.75)]), "");
}

#[test]
fn a_step_without_a_search_needs_no_policy() {
    check(StepKind::Opening, "");
}

#[test]
fn a_nan_is_refused_by_name() {
    check(StepKind::Fast { value: f32::NAN }, "steps[0].value: is not finite");
    check(full(&[(0, f32::NAN)]), "steps[0].policy: NaN is not a probability");
}

#[test]
fn a_policy_must_sum_to_one() {
    check(full(&[(0, 0.25), (1, 0.25)]), "steps[0].policy: sums to 0.5");
    check(full(&[]), "steps[0].policy: is empty");
}

#[test]
fn a_policy_lists_each_action_once_and_below_the_number_of_actions() {
    check(full(&[(1, 0.5), (1, 0.5)]), "steps[0].policy: is not ascending by action");
    check(full(&[(9, 1.0)]), "steps[0].policy: 9 is not below 9");
}
