use experience::{ActionProbability, Target};
use game::{Player, Symmetry};
use games::connect_four::ConnectFour;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use weights::WeightsVersion;

use super::*;

const OUTCOME_ONLY: TargetSettings = TargetSettings { search_value_share: 0.0 };

fn sample(actions: &[u16], policy: &[(u16, f32)], value: f32, outcome: Outcome) -> Sample {
    let policy =
        policy.iter().map(|&(action, probability)| ActionProbability { action: Action(action), probability }).collect();
    let segment = Segment {
        trajectory: TrajectoryId { actor: 1, epoch: 1, sequence: 0 },
        ply: actions.len(),
        actions: actions.iter().map(|&action| Action(action)).collect(),
        targets: vec![Target { policy, value, reward: 0.0, weights_version: WeightsVersion(1) }],
        outcome,
        plies: actions.len() + 1,
    };
    Sample { segment, probability: 1.0, table_items: 1 }
}

fn batch(settings: TargetSettings, samples: &[Sample]) -> (TrainingBatch, Vec<Rejected>) {
    let built = training_batch(&ConnectFour::new(), settings, samples, &[], &mut ChaCha8Rng::seed_from_u64(1));
    (built.batch, built.rejected)
}

#[test]
fn the_outcome_is_seen_by_the_player_to_move() {
    let second_wins = Outcome::Win(Player::Second);
    let (batch, rejected) =
        batch(OUTCOME_ONLY, &[sample(&[3], &[(3, 1.0)], 0.0, second_wins), sample(&[], &[(3, 1.0)], 0.0, second_wins)]);
    assert_eq!(rejected, []);
    assert_eq!(batch.wdl, [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn the_search_value_takes_its_share_of_the_value_target() {
    let (batch, _) = batch(TargetSettings { search_value_share: 0.5 }, &[sample(&[], &[(3, 1.0)], 0.5, Outcome::Draw)]);
    assert_eq!(batch.wdl, [0.375, 0.5, 0.125]);
}

/// Planes, policy and legal actions turn together: whichever mirror image is drawn, the policy still points at the
/// column whose stones are shown.
#[test]
fn policy_and_planes_turn_by_the_same_symmetry() {
    let game = ConnectFour::new();
    let spec = game.spec();
    let samples: Vec<Sample> = (0..32).map(|_| sample(&[0, 0], &[(0, 1.0)], 0.0, Outcome::Draw)).collect();
    let (batch, _) = batch(OUTCOME_ONLY, &samples);
    let mut expected = vec![0.0; spec.observation.len()];
    game.observe(&game.replay(&[Action(0), Action(0)]).unwrap(), &mut expected);
    let images: Vec<(usize, Vec<f32>)> = game.symmetries().iter().map(|symmetry| image(symmetry, &expected)).collect();
    let mut seen = vec![false; images.len()];
    for (row, planes) in batch.observations.chunks(spec.observation.len()).enumerate() {
        let action = batch.policies[row * spec.actions..][..spec.actions].iter().position(|&p| p == 1.0).unwrap();
        let which = images.iter().position(|image| *image == (action, planes.to_vec())).expect("an image");
        seen[which] = true;
    }
    assert_eq!(seen, [true, true]);
}

fn image(symmetry: &Symmetry, planes: &[f32]) -> (usize, Vec<f32>) {
    let mut to = vec![0.0; planes.len()];
    symmetry.observation(planes, &mut to);
    (symmetry.action(Action(0)).index(), to)
}

#[test]
fn a_sample_that_breaks_the_rules_is_left_out_and_named() {
    let illegal = sample(&[0, 0, 0, 0, 0, 0, 0], &[(1, 1.0)], 0.0, Outcome::Draw);
    let full_column = sample(&[0, 0, 0, 0, 0, 0], &[(0, 1.0)], 0.0, Outcome::Draw);
    let over = sample(&[0, 1, 0, 1, 0, 1, 0], &[(1, 1.0)], 0.0, Outcome::Draw);
    let good = sample(&[], &[(3, 1.0)], 0.0, Outcome::Draw);
    let (batch, rejected) = batch(OUTCOME_ONLY, &[illegal, full_column, over, good]);
    assert_eq!(batch.policy_weights, [1.0]);
    let reasons: Vec<&str> = rejected.iter().map(|rejected| rejected.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "action 0 is not legal at ply 6 of connect_four",
            "the search policy holds action 0, which is not legal at ply 6",
            "the game is over at ply 7",
        ]
    );
}

#[test]
fn rows_keep_the_importance_of_their_samples_when_others_break_the_rules() {
    let good = || sample(&[3], &[(3, 1.0)], 0.0, Outcome::Draw);
    let samples = [good(), sample(&[99], &[(3, 1.0)], 0.0, Outcome::Draw), good()];
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let built = training_batch(&ConnectFour::new(), OUTCOME_ONLY, &samples, &[0.25, 0.5, 1.0], &mut rng);
    assert_eq!((built.rows, built.batch.importance), (vec![0, 2], vec![0.25, 1.0]));
    assert_eq!(built.rejected.len(), 1);
}
