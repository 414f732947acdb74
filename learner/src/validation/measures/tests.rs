//! Tests of measures against explicit float64 sums, and against published properties.

use experience::TrajectoryId;
use game::Action;
use inference::Predictions;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use training::Observations;
use transport::servers::Server;

use super::super::buffer::{Row, ValueTarget};
use super::*;
use crate::priorities::Item;

fn row(policy: &[f32], value: ValueTarget, score: Option<f32>) -> Row {
    let trajectory = TrajectoryId { actor: 1, epoch: 1, sequence: 1 };
    Row {
        item: Item { server: Server::at("http://a:7001"), trajectory, ply: 0 },
        observation: Observations::default(),
        actions: (0..policy.len()).map(|action| Action(action as u16)).collect(),
        policy: policy.to_vec(),
        policy_weight: 1.0,
        value,
        score,
        is_new: true,
    }
}

/// Returns random shares with the sum 1.
fn shares(rng: &mut ChaCha8Rng, count: usize) -> Vec<f32> {
    let shares: Vec<f32> = (0..count).map(|_| rng.random_range(0.0..1.0)).collect();
    let sum: f32 = shares.iter().sum();
    shares.iter().map(|share| share / sum).collect()
}

/// A row and the logits of the predictions.
struct Case {
    row: Row,
    policy_logits: Vec<f32>,
    wdl_logits: [f32; 3],
}

fn cases(count: usize) -> Vec<Case> {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let case = |index: usize| {
        let actions = 1 + index % 6;
        let target = shares(&mut rng, 3);
        let outcome = [0.0, 0.5, 1.0][index % 3];
        let mut row =
            row(&shares(&mut rng, actions), ValueTarget::Wdl([target[0], target[1], target[2]]), Some(outcome));
        row.policy_weight = if index.is_multiple_of(5) { 0.0 } else { 1.0 };
        Case {
            row,
            policy_logits: (0..actions).map(|_| rng.random_range(-4.0..4.0)).collect(),
            wdl_logits: std::array::from_fn(|_| rng.random_range(-3.0..3.0)),
        }
    };
    (0..count).map(case).collect()
}

fn softmax(logits: &[f32]) -> Vec<f64> {
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
    logits.iter().map(|&logit| f64::from(logit).exp() / sum).collect()
}

/// Computes the documented measures directly, with a separate loop over all rows for every sum.
fn by_brute_force(cases: &[Case]) -> Measures {
    let wanted: Vec<&Case> = cases.iter().filter(|case| case.row.policy_weight > 0.0).collect();
    let mut policy_loss = 0.0;
    let mut right = 0.0;
    for Case { row, policy_logits, .. } in &wanted {
        let priors = softmax(policy_logits);
        policy_loss -= row.policy.iter().zip(&priors).map(|(&pi, p)| f64::from(pi) * p.ln()).sum::<f64>();
        let best =
            |values: &[f64]| (0..values.len()).find(|&i| values.iter().all(|value| *value <= values[i])).unwrap();
        let visited: Vec<f64> = row.policy.iter().copied().map(f64::from).collect();
        right += f64::from(u8::from(best(&priors) == best(&visited)));
    }
    let scores: Vec<(f64, f64)> = cases
        .iter()
        .map(|case| {
            let wdl = softmax(&case.wdl_logits);
            (wdl[0] + wdl[1] / 2.0, f64::from(case.row.score.unwrap()))
        })
        .collect();
    let mut calibration_error = 0.0;
    for bin in 0..15 {
        let of_bin: Vec<_> =
            scores.iter().filter(|(p, _)| (f64::from(bin) / 15.0..f64::from(bin + 1) / 15.0).contains(p)).collect();
        if of_bin.is_empty() {
            continue;
        }
        let rows = of_bin.len() as f64;
        let predicted = of_bin.iter().map(|(p, _)| p).sum::<f64>() / rows;
        let realised = of_bin.iter().map(|(_, z)| z).sum::<f64>() / rows;
        calibration_error += rows / scores.len() as f64 * (realised - predicted).abs();
    }
    let (mut value_loss, mut squares) = (0.0, 0.0);
    for Case { row, wdl_logits, .. } in cases {
        let ValueTarget::Wdl(target) = &row.value else { unreachable!("made with probabilities") };
        let wdl = softmax(wdl_logits);
        value_loss -= target.iter().zip(&wdl).map(|(&z, v)| f64::from(z) * v.ln()).sum::<f64>();
        squares += (wdl[0] - wdl[2] - (f64::from(target[0]) - f64::from(target[2]))).powi(2);
    }
    let rows = cases.len() as f64;
    Measures {
        positions: cases.len(),
        policy_loss: policy_loss / wanted.len() as f64,
        policy_accuracy: right / wanted.len() as f64,
        value_loss: Some(value_loss / rows),
        value_squared_error: squares / rows,
        calibration_error: Some(calibration_error),
    }
}

#[test]
fn measures_agree_with_brute_force_in_float64() {
    let cases = cases(500);
    let mut predictions = Predictions::new();
    let mut sums = Sums::default();
    for (index, Case { row, policy_logits, wdl_logits }) in cases.iter().enumerate() {
        assert!(predictions.push_logits(policy_logits, &row.actions, *wdl_logits));
        let error = sums.add(row, predictions.priors(index), predictions.value(index), Some(predictions.wdl()[index]));
        let (target, _) = row.value.scalar();
        assert!((error - (predictions.value(index) - target).abs()).abs() < 1e-6);
    }
    let (got, expected) = (sums.measures().unwrap(), by_brute_force(&cases));
    assert_eq!((got.positions, got.policy_accuracy), (500, expected.policy_accuracy));
    assert!(0.1 < got.policy_accuracy && got.policy_accuracy < 0.9);
    let pairs = [
        (got.policy_loss, expected.policy_loss),
        (got.value_loss.unwrap(), expected.value_loss.unwrap()),
        (got.value_squared_error, expected.value_squared_error),
        (got.calibration_error.unwrap(), expected.calibration_error.unwrap()),
    ];
    for (got, expected) in pairs {
        assert!((got - expected).abs() < 1e-5 && expected > 0.01, "{got} instead of {expected}");
    }
}

#[test]
fn a_move_that_ties_for_the_most_visits_is_right_and_the_first_of_equal_priors_is_the_likeliest() {
    let accuracy = |policy: &[f32], priors: &[f32]| {
        let mut sums = Sums::default();
        sums.add(&row(policy, ValueTarget::Wdl([1.0, 0.0, 0.0]), None), priors, 0.0, None);
        sums.measures().unwrap().policy_accuracy
    };
    assert_eq!(accuracy(&[0.4, 0.4, 0.2], &[0.1, 0.8, 0.1]), 1.0);
    assert_eq!(accuracy(&[0.4, 0.4, 0.2], &[0.1, 0.1, 0.8]), 0.0);
    assert_eq!(accuracy(&[0.6, 0.2, 0.2], &[0.4, 0.2, 0.4]), 1.0);
    assert_eq!(accuracy(&[0.2, 0.2, 0.6], &[0.4, 0.2, 0.4]), 0.0);
}

#[test]
fn returns_have_a_weighted_squared_error_and_neither_cross_entropy_nor_calibration() {
    let mut sums = Sums::default();
    let of = |value, weight| row(&[1.0], ValueTarget::Return { value, weight }, None);
    assert_eq!(sums.add(&of(5.0, 1.0), &[1.0], 3.0, None), 2.0);
    assert_eq!(sums.add(&of(7.0, 0.0), &[1.0], -100.0, None), 0.0);
    assert_eq!(sums.add(&of(-1.0, 1.0), &[1.0], 3.0, None), 4.0);
    let measures = sums.measures().unwrap();
    assert_eq!((measures.value_squared_error, measures.value_loss, measures.calibration_error), (10.0, None, None));
    assert_eq!(Sums::default().measures(), None);
}

#[test]
fn an_impossible_prior_of_a_visited_move_gives_a_finite_loss() {
    let mut sums = Sums::default();
    sums.add(&row(&[1.0, 0.0], ValueTarget::Wdl([1.0, 0.0, 0.0]), None), &[0.0, 1.0], 0.0, None);
    let loss = sums.measures().unwrap().policy_loss;
    assert!((loss - 87.336_544).abs() < 1e-3, "{loss}");
}

#[test]
fn calibrated_predictions_have_no_error_and_overconfident_ones_their_distance() {
    let error = |rows: &[(f64, f64)]| {
        let mut calibration = Calibration::default();
        rows.iter().for_each(|&(predicted, realised)| calibration.add(predicted, realised));
        calibration.error()
    };
    let close = |got: Option<f64>, expected: f64| (got.unwrap() - expected).abs() < 1e-12;
    assert_eq!(error(&[]), None);
    // Three of four predictions of 75 % are correct.
    assert!(close(error(&[(0.75, 1.0), (0.75, 1.0), (0.75, 1.0), (0.75, 0.0)]), 0.0));
    // One of two certain predictions is correct.
    assert!(close(error(&[(1.0, 1.0), (1.0, 0.0)]), 0.5));
    // Errors with opposite signs cancel within a bin, but not between bins.
    assert!(close(error(&[(0.9, 0.0), (0.1, 1.0)]), 0.9));
    assert!(close(error(&[(0.5, 0.0), (0.5, 1.0)]), 0.0));
    // Predictions out of range are counted in the first or last bin.
    assert!(close(error(&[(1.5, 1.0), (-0.5, 0.0)]), 0.0));
}
