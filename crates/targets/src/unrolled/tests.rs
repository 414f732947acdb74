mod course;

use experience::{ActionProbability, Sample, StepKind, Trajectory, TrajectoryId};
use games::connect_four::ConnectFour;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use training::Examples;
use weights::WeightsVersion;

use self::course::{ACTIONS, Course, opening, searched};
use super::*;
use crate::{Built, Targets};

const FINISHED: Episode = Episode { seed: 0, outcome: Outcome::Finished, truncation_value: 0.0 };
const MONTE_CARLO: usize = 0;

fn unroll(unroll_steps: usize, td_steps: usize, discount: f64) -> Unroll {
    Unroll { unroll_steps, td_steps, discount, next_observations: true, ..Unroll::default() }
}

/// Returns the row for the position at `ply`, or the violation of the rules.
fn row(course: &Course, ply: usize, unroll: Unroll, rng: &mut ChaCha8Rng) -> Result<UnrolledBatch, String> {
    let segment = course.segment(ply, unroll.segment_steps(course.spec()));
    let mut rows = Rows::new(course, unroll, 1);
    rows.push(course, &segment, rng)?;
    Ok(rows.batch(Vec::new()))
}

fn row_of(course: &Course, ply: usize, unroll: Unroll) -> UnrolledBatch {
    row(course, ply, unroll, &mut ChaCha8Rng::seed_from_u64(1)).unwrap()
}

fn truncated(truncation_value: f32) -> Episode {
    Episode { seed: 0, outcome: Outcome::Truncated, truncation_value }
}

#[test]
fn a_reward_in_the_last_step_alone_is_discounted_back_to_the_first_and_nothing_follows_it() {
    let steps = [0.0, 0.0, 0.0, 8.0].map(|reward| searched(reward, 100.0)).to_vec();
    let course = Course::of_one_player(steps, FINISHED);
    for td_steps in [MONTE_CARLO, 4, 20] {
        let batch = row_of(&course, 0, unroll(6, td_steps, 0.5));
        assert_eq!(batch.values, [1.0, 2.0, 4.0, 8.0, 0.0, 0.0, 0.0], "{td_steps} steps");
        assert_eq!(batch.rewards, [0.0, 0.0, 0.0, 8.0, 0.0, 0.0]);
        assert_eq!(batch.value_weights, [1.0; 7]);
        assert_eq!(batch.policy_weights, [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
    }
    assert_eq!(row_of(&course, 3, unroll(2, MONTE_CARLO, 0.5)).values, [8.0, 0.0, 0.0]);
}

#[test]
fn n_rewards_are_followed_by_the_search_value_of_the_next_step() {
    let steps = (0..6_u8).map(|ply| searched(f32::from(ply), 100.0 * f32::from(ply))).collect();
    let batch = row_of(&Course::of_one_player(steps, FINISHED), 1, unroll(2, 2, 0.5));
    let expected = [1.0 + 0.5 * 2.0 + 0.25 * 300.0, 2.0 + 0.5 * 3.0 + 0.25 * 400.0, 3.0 + 0.5 * 4.0 + 0.25 * 500.0];
    assert_eq!((batch.values.as_slice(), batch.rewards), (&expected[..], vec![1.0, 2.0]));
}

#[test]
fn what_the_opponent_wins_or_expects_counts_against_a_player() {
    let course = Course::of_two_players(vec![searched(1.0, 10.0), searched(2.0, 20.0), searched(4.0, 40.0)], FINISHED);
    assert_eq!(row_of(&course, 0, unroll(2, 1, 1.0)).values, [1.0 - 20.0, 2.0 - 40.0, 4.0]);
    assert_eq!(row_of(&course, 0, unroll(2, MONTE_CARLO, 1.0)).values, [1.0 - 2.0 + 4.0, 2.0 - 4.0, 4.0]);
}

#[test]
fn without_a_step_the_targets_are_the_policy_and_the_return_of_the_position() {
    let steps = (0..4_u8).map(|ply| searched(f32::from(ply), 100.0)).collect();
    let batch = row_of(&Course::of_one_player(steps, FINISHED), 1, unroll(0, 2, 0.5));
    assert_eq!((batch.values, batch.value_weights), (vec![1.0 + 0.5 * 2.0 + 0.25 * 100.0], vec![1.0]));
    assert_eq!((batch.policies, batch.policy_weights), (vec![0.5, 0.0, 0.5, 0.0], vec![1.0]));
    assert!(batch.actions.is_empty() && batch.rewards.is_empty());
}

#[test]
fn a_truncated_episode_goes_on_with_its_last_value_and_has_no_targets_behind_its_end() {
    let steps = vec![searched(1.0, 50.0), searched(2.0, 60.0)];
    for td_steps in [MONTE_CARLO, 2, 9] {
        let batch = row_of(&Course::of_one_player(steps.clone(), truncated(8.0)), 0, unroll(4, td_steps, 0.5));
        assert_eq!(batch.values, [1.0 + 0.5 * 2.0 + 0.25 * 8.0, 2.0 + 0.5 * 8.0, 0.0, 0.0, 0.0], "{td_steps} steps");
        assert_eq!(batch.value_weights, [1.0, 1.0, 0.0, 0.0, 0.0]);
        assert_eq!(batch.policy_weights, [1.0, 1.0, 0.0, 0.0, 0.0]);
    }
    // The value of the last position is 8 for the second player.
    let batch = row_of(&Course::of_two_players(vec![searched(1.0, 50.0)], truncated(8.0)), 0, unroll(1, 5, 1.0));
    assert_eq!((batch.values, batch.value_weights), (vec![1.0 - 8.0, 0.0], vec![1.0, 0.0]));
}

#[test]
fn a_return_that_meets_a_random_move_goes_on_to_the_next_search() {
    let steps = vec![searched(1.0, 10.0), opening(2.0), opening(4.0), searched(8.0, 80.0), searched(16.0, 160.0)];
    let course = Course::of_one_player(steps, FINISHED);
    let batch = row_of(&course, 0, unroll(3, 1, 1.0));
    assert_eq!(batch.values, [1.0 + 2.0 + 4.0 + 80.0, 2.0 + 4.0 + 80.0, 4.0 + 80.0, 8.0 + 160.0]);
    assert_eq!((batch.policy_weights, batch.value_weights), (vec![1.0, 0.0, 0.0, 1.0], vec![1.0; 4]));
    // A sample may start with a random move.
    assert_eq!(row_of(&course, 2, unroll(1, 1, 1.0)).values, [4.0 + 80.0, 8.0 + 160.0]);
}

#[test]
fn a_return_without_a_search_at_its_end_is_shorter_or_missing() {
    let steps = vec![searched(1.0, 10.0), searched(2.0, 20.0), opening(4.0), opening(8.0), opening(16.0)];
    let course = Course::of_one_player(steps, FINISHED);
    // The segment contains the steps 0 to 3. After step 1, no searched step is available.
    let batch = row_of(&course, 0, unroll(1, 2, 1.0));
    assert_eq!((batch.values, batch.value_weights), (vec![1.0 + 20.0, 0.0], vec![1.0, 0.0]));
}

/// Computes the return for the first player by the recursion `f(t) = r + γ f(t + 1)`, until n rewards are summed and a
/// search value completes the sum.
fn future(course: &Course, seen: usize, step: usize, left: usize, discount: f64) -> Option<f64> {
    let for_first = |value: f32| match course.players[step] {
        Player::First => f64::from(value),
        Player::Second => -f64::from(value),
    };
    if step == course.steps.len() {
        return Some(for_first(course.episode.truncation_value));
    }
    if step == seen {
        return None;
    }
    match course.steps[step].kind.value() {
        Some(value) if left == 0 => Some(for_first(value)),
        _ => Some(
            for_first(course.steps[step].reward)
                + discount * future(course, seen, step + 1, left.saturating_sub(1), discount)?,
        ),
    }
}

/// Returns the expected value target of a step for the acting player, from the steps before `seen`.
fn expected_value(course: &Course, seen: usize, step: usize, unroll: Unroll) -> Option<f64> {
    let longest = if unroll.td_steps == MONTE_CARLO { usize::MAX } else { unroll.td_steps };
    let shorter = || {
        let searched = |left: &usize| course.steps[step + left].kind.value().is_some();
        let left = (1..longest.min(seen - step)).rev().find(searched)?;
        future(course, seen, step, left, unroll.discount)
    };
    let value = future(course, seen, step, longest, unroll.discount).or_else(shorter)?;
    Some(if course.players[step] == Player::First { value } else { -value })
}

/// Compares a row with the source course. Returns true if the row shows the position under the second symmetry.
fn check(course: &Course, ply: usize, unroll: Unroll, batch: &UnrolledBatch) -> bool {
    let length = course.steps.len();
    let tail = if unroll.td_steps == MONTE_CARLO { length } else { unroll.td_steps };
    let seen = (ply + unroll.unroll_steps + tail + 1).min(length);
    let observation = [(course.episode.seed % 65_536) as f32 + 1000.0, ply as f32];
    let shown = batch.observations.to_floats();
    let is_exchanged = shown != observation;
    assert!(!is_exchanged || shown == [observation[1], observation[0]], "{shown:?}");
    let next = batch.next_observations.to_floats();
    let weights = [batch.next_weights.len(), batch.chance_weights.len()];
    assert_eq!((next.len(), weights), (2 * unroll.unroll_steps, [unroll.unroll_steps; 2]));
    let image = |action: Action| if is_exchanged { [2, 1, 0, 3][action.index()] } else { action.0 };

    assert_eq!(batch.unroll_steps, unroll.unroll_steps);
    for index in 0..=unroll.unroll_steps {
        let (step, context) = (ply + index, format!("state {index} of ply {ply}, {unroll:?}, {course:?}"));
        let (value, weight) = match expected_value_at(course, seen, step, unroll) {
            Some(value) => (value, 1.0),
            None => (0.0, 0.0),
        };
        let got = f64::from(batch.values[index]);
        assert!((got - value).abs() <= 1e-6 * (1.0 + value.abs()), "{got} and not {value}: {context}");
        assert_eq!(batch.value_weights[index], weight, "{context}");
        let policy = course.steps.get(step).map_or(&[][..], |step| step.kind.policy());
        let mut expected = [0.0; ACTIONS];
        policy.iter().for_each(|entry| expected[usize::from(image(entry.action))] = entry.probability);
        assert_eq!(batch.policies[index * ACTIONS..][..ACTIONS], expected, "{context}");
        assert_eq!(batch.policy_weights[index], if policy.is_empty() { 0.0 } else { 1.0 }, "{context}");
        if index == unroll.unroll_steps {
            continue;
        }
        // After the end, the last observation is repeated with weight 0.
        let after = [observation[0], (step + 1).min(length) as f32];
        let expected = if is_exchanged { [after[1], after[0]] } else { after };
        assert_eq!(next[2 * index..][..2], expected, "{context}");
        assert_eq!(batch.chance_weights[index], if step < length { 1.0 } else { 0.0 }, "{context}");
        // The consistency loss also has weight 0 at the end.
        assert_eq!(batch.next_weights[index], if step + 1 < length { 1.0 } else { 0.0 }, "{context}");
        match course.steps.get(step) {
            Some(played) => {
                let of_row = (batch.actions[index], batch.rewards[index]);
                assert_eq!(of_row, (image(played.action), played.reward), "{context}");
            }
            None => {
                assert!(usize::from(batch.actions[index]) < ACTIONS, "{context}");
                assert_eq!(batch.rewards[index], 0.0, "{context}");
            }
        }
    }
    is_exchanged
}

fn expected_value_at(course: &Course, seen: usize, step: usize, unroll: Unroll) -> Option<f64> {
    match course.episode.outcome {
        _ if step < course.steps.len() => expected_value(course, seen, step, unroll),
        Outcome::Truncated => None,
        _ => Some(0.0),
    }
}

/// Checks 4,000 random courses: one or two players who need not alternate, both ends, random moves anywhere, all
/// positions, K from 0 to 8, n from 0 to 14, γ from 0.5 to 1.
#[test]
fn targets_agree_with_a_float64_reference_on_random_episodes() {
    let mut rng = ChaCha8Rng::seed_from_u64(23);
    let mut exchanged = 0;
    for _ in 0..4000 {
        let course = Course::random(&mut rng);
        let ply = rng.random_range(0..course.steps.len());
        let unroll =
            unroll(rng.random_range(0..=8), rng.random_range(0..=14), [0.5, 0.997, 1.0][rng.random_range(0..3)]);
        let batch = row(&course, ply, unroll, &mut rng).unwrap();
        exchanged += usize::from(check(&course, ply, unroll, &batch));
    }
    // Six standard deviations are 190.
    assert!(exchanged.abs_diff(2000) < 200, "{exchanged} of 4000 rows show the image");
}

#[test]
fn later_observations_are_left_out_where_nothing_learns_from_them_and_change_nothing_else() {
    let mut rng = ChaCha8Rng::seed_from_u64(24);
    let course = Course::random(&mut rng);
    let with = row_of(&course, 0, unroll(3, 2, 0.9));
    let without = row_of(&course, 0, Unroll { next_observations: false, ..unroll(3, 2, 0.9) });
    let next_observations = Observations::default();
    let expected = UnrolledBatch { next_observations, next_weights: Vec::new(), chance_weights: Vec::new(), ..with };
    assert_eq!(without, expected);
}

#[test]
fn actions_behind_the_end_are_any() {
    let course = Course::of_one_player(vec![searched(1.0, 1.0)], FINISHED);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut seen = [0; ACTIONS];
    for _ in 0..100 {
        let batch = row(&course, 0, unroll(5, 1, 1.0), &mut rng).unwrap();
        batch.actions[1..].iter().for_each(|&action| seen[usize::from(action)] += 1);
    }
    // The expected count is 100 for each of the 4 actions; six standard deviations are 52.
    assert!(seen.iter().all(|&count| 48 < count && count < 152), "{seen:?}");
}

#[test]
fn a_return_beyond_the_largest_number_is_refused() {
    let course = Course::of_one_player(vec![searched(f32::MAX, 0.0), searched(f32::MAX, 0.0)], FINISHED);
    let refused = row(&course, 0, unroll(1, MONTE_CARLO, 1.0), &mut ChaCha8Rng::seed_from_u64(1)).unwrap_err();
    assert_eq!(refused, "the return at ply 0 is inf");
}

#[test]
fn a_segment_that_ends_before_the_episode_and_before_its_unrolled_steps_is_refused() {
    let course = Course::of_one_player(vec![searched(0.0, 0.0); 6], FINISHED);
    let mut rows = Rows::new(&course, unroll(3, 1, 1.0), 1);
    let mut push = |ply, steps| rows.push(&course, &course.segment(ply, steps), &mut ChaCha8Rng::seed_from_u64(1));
    assert_eq!(push(0, 2).unwrap_err(), "the segment has 3 of the 4 drawn steps");
    assert_eq!((push(0, 3), push(4, 2)), (Ok(()), Ok(())));
}

#[test]
fn a_segment_holds_the_steps_that_its_targets_need_and_no_more() {
    let course = Course::of_one_player(vec![searched(0.0, 0.0); 60], FINISHED);
    let board = ConnectFour::new();
    let needed = |spec, td_steps| unroll(5, td_steps, 1.0).segment_steps(spec);
    assert_eq!([10, MONTE_CARLO].map(|td_steps| needed(course.spec(), td_steps)), [15, 59]);
    assert_eq!([10, MONTE_CARLO].map(|td_steps| needed(board.spec(), td_steps)), [5, 5]);
    let (model, positions) = (Targets::Unrolled(unroll(5, 10, 1.0)), Targets::Positions { search_value_share: 0.0 });
    assert_eq!([&model, &positions].map(Targets::unroll_steps), [5, 0]);
    assert_eq!([&model, &positions].map(|targets| targets.segment_steps(course.spec())), [15, 0]);
}

#[test]
fn each_row_keeps_the_importance_of_its_sample() {
    let samples = [sample_of_board(&[0; 7], 4, Outcome::Draw), sample_of_board(&WON, 5, FIRST_WINS)];
    let targets = Targets::Unrolled(unroll(3, 10, 1.0));
    let built = targets.examples(&ConnectFour::new(), &samples, &[0.25, 0.75], &mut ChaCha8Rng::seed_from_u64(1));
    let Examples::Unrolled(batch) = &built.examples else { panic!("{built:?}") };
    assert_eq!((built.rows, batch.importance.as_slice()), (vec![1], &[0.75][..]));
}

/// Returns a sample from a Connect Four episode with these columns. Every search has a policy of 1 on the played
/// column, and the value 0.5.
fn sample_of_board(columns: &[u16], ply: usize, outcome: Outcome) -> Sample {
    let step = |&column: &u16| Step {
        action: Action(column),
        reward: 0.0,
        kind: StepKind::Full {
            policy: vec![ActionProbability { action: Action(column), probability: 1.0 }],
            value: 0.5,
        },
        weights_version: WeightsVersion(1),
    };
    let steps: Vec<Step> = columns.iter().map(step).collect();
    let id = TrajectoryId { actor: 1, epoch: 1, sequence: 0 };
    let trajectory = Trajectory::of(id, "connect_four", &steps, outcome).unwrap();
    Sample { segment: trajectory.segment(ply, 3).unwrap(), probability: 1.0, table_items: 1 }
}

fn board_rows(search_value_share: f32, samples: &[Sample]) -> (UnrolledBatch, Built) {
    let unroll = Unroll { search_value_share, ..unroll(3, 10, 1.0) };
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let built = Targets::Unrolled(unroll).examples(&ConnectFour::new(), samples, &[], &mut rng);
    let Examples::Unrolled(batch) = &built.examples else { panic!("{built:?}") };
    (batch.clone(), built)
}

/// Columns of a game in which the first player wins with four stones in column 0.
const WON: [u16; 7] = [0, 1, 0, 1, 0, 1, 0];
const FIRST_WINS: Outcome = Outcome::Win(Player::First);

#[test]
fn the_move_that_wins_a_game_has_its_outcome_as_reward_and_absorbing_states_behind_it() {
    let (batch, built) = board_rows(0.0, &[sample_of_board(&WON, 5, FIRST_WINS), sample_of_board(&WON, 0, FIRST_WINS)]);
    assert_eq!(built.rejected, []);
    assert_eq!(batch.values, [-1.0, 1.0, 0.0, 0.0, 1.0, -1.0, 1.0, -1.0]);
    assert_eq!(batch.rewards, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(batch.value_weights, [1.0; 8]);
    assert_eq!(batch.policy_weights, [1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
}

#[test]
fn a_resigned_game_keeps_its_value_behind_its_last_move_and_has_no_targets_further_on() {
    let (batch, _) = board_rows(0.0, &[sample_of_board(&WON[..6], 5, FIRST_WINS)]);
    assert_eq!((batch.values, batch.rewards), (vec![-1.0, 1.0, 0.0, 0.0], vec![0.0; 3]));
    assert_eq!(batch.value_weights, [1.0, 1.0, 0.0, 0.0]);
}

#[test]
fn the_search_value_has_its_share_of_every_unrolled_value_of_a_board_game() {
    let (batch, _) = board_rows(0.5, &[sample_of_board(&WON, 5, FIRST_WINS)]);
    assert_eq!(batch.values, [-0.5 + 0.25, 0.5 + 0.25, 0.0, 0.0]);
}

#[test]
fn an_unrolled_step_that_breaks_the_rules_is_left_out_and_named() {
    let full = [0; 7];
    let over = [0, 1, 0, 1, 0, 1, 0, 1];
    let samples = [
        sample_of_board(&full, 4, Outcome::Draw),
        sample_of_board(&over, 5, FIRST_WINS),
        sample_of_board(&[99, 0], 0, Outcome::Draw),
        sample_of_board(&WON, 5, Outcome::Finished),
        sample_of_board(&WON, 0, FIRST_WINS),
    ];
    let (batch, built) = board_rows(0.0, &samples);
    let reasons: Vec<&str> = built.rejected.iter().map(|rejected| rejected.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "the search policy holds action 0, which is not legal at ply 6",
            "the search policy holds action 1, which is not legal at ply 7",
            "the search policy holds action 99, which is not legal at ply 0",
            "connect_four has no episode with the outcome Finished",
        ]
    );
    assert_eq!((built.rows, batch.policy_weights.len()), (vec![4], 4));
}

#[test]
fn an_illegal_action_behind_a_random_move_is_named_by_its_ply() {
    let mut course = Course::of_one_player(vec![searched(0.0, 0.0), opening(0.0), searched(0.0, 0.0)], FINISHED);
    course.steps[1].action = Action(3);
    let refused = row(&course, 0, unroll(2, 1, 1.0), &mut ChaCha8Rng::seed_from_u64(1)).unwrap_err();
    assert_eq!(refused, "action 3 is not legal at ply 1 of course");
}
