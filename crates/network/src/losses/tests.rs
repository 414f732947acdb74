use tch::Tensor;

use super::{Targets, losses};
use crate::{
    Error, TrainingBatch,
    testing::{batch, tiny},
    tower::Logits,
};

/// Two positions with three actions; the second has no policy target, the first may not play action 2.
fn example() -> (Logits, Targets) {
    let logits = Logits {
        policy: Tensor::from_slice(&[0.0_f32, 1.0, 9.0, 5.0, -5.0, 0.0]).view([2, 3]),
        value: Tensor::from_slice(&[2.0_f32, 0.0, 0.0, 0.0, 0.0, 1.0]).view([2, 3]),
    };
    let targets = Targets {
        policies: Tensor::from_slice(&[0.25_f32, 0.75, 0.0, 0.0, 0.0, 0.0]).view([2, 3]),
        illegal: Tensor::from_slice(&[false, false, true, false, false, false]).view([2, 3]),
        wdl: Tensor::from_slice(&[1.0_f32, 0.0, 0.0, 0.5, 0.5, 0.0]).view([2, 3]),
        policy_weights: Tensor::from_slice(&[1.0_f32, 0.0]),
        importance: None,
    };
    (logits, targets)
}

fn close(got: &Tensor, expected: f64) {
    let got = got.double_value(&[]);
    assert!((got - expected).abs() < 1e-5, "{got} instead of {expected}");
}

#[test]
fn losses_are_cross_entropies_over_legal_actions_and_results() {
    let (logits, targets) = example();
    let losses = losses(&logits, &targets, 0.5).unwrap();
    let e = std::f64::consts::E;
    let policy = -(0.25 * (1.0 / (1.0 + e)).ln() + 0.75 * (e / (1.0 + e)).ln());
    let value = -((e * e / (e * e + 2.0)).ln() + (1.0 / (2.0 + e)).ln()) / 2.0;
    close(&losses.policy, policy);
    close(&losses.value, value);
    close(&losses.total, policy + 0.5 * value);
}

#[test]
fn the_first_value_is_right_and_the_second_wrong() {
    let (logits, targets) = example();
    close(&losses(&logits, &targets, 1.0).unwrap().value_accuracy, 0.5);
}

#[test]
fn rows_count_by_their_importance_and_tell_how_wrong_their_values_were() {
    let (logits, mut targets) = example();
    targets.importance = Some(Tensor::from_slice(&[0.5_f32, 0.25]));
    let weighted = losses(&logits, &targets, 0.5).unwrap();
    let e = std::f64::consts::E;
    let policy = -(0.25 * (1.0 / (1.0 + e)).ln() + 0.75 * (e / (1.0 + e)).ln());
    close(&weighted.policy, 0.5 * policy);
    close(&weighted.value, -(0.5 * (e * e / (e * e + 2.0)).ln() + 0.25 * (1.0 / (2.0 + e)).ln()) / 2.0);
    let errors = weighted.value_errors.unwrap();
    let (first, second) = ((e * e - 1.0) / (e * e + 2.0), (1.0 - e) / (2.0 + e));
    close(&errors.get(0), 1.0 - first);
    close(&errors.get(1), 0.5 - second);
    targets.importance = Some(Tensor::from_slice(&[1.0_f32, 1.0]));
    close(&losses(&logits, &targets, 0.5).unwrap().total, policy + 0.5 * weighted_alike(e));
}

/// The value loss of the example where both rows count alike.
fn weighted_alike(e: f64) -> f64 {
    -((e * e / (e * e + 2.0)).ln() + (1.0 / (2.0 + e)).ln()) / 2.0
}

#[test]
fn a_batch_without_any_policy_target_has_a_policy_loss_of_zero() {
    let (logits, mut targets) = example();
    targets.policy_weights = Tensor::from_slice(&[0.0_f32, 0.0]);
    close(&losses(&logits, &targets, 1.0).unwrap().policy, 0.0);
}

#[test]
fn a_batch_that_does_not_fit_is_refused_by_field() {
    let spoilt = |spoil: fn(&mut TrainingBatch)| {
        let mut batch = batch(&tiny(), 3, 41);
        spoil(&mut batch);
        match batch.positions(&tiny()) {
            Err(Error::Batch { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(spoilt(|batch| batch.observations.truncate(5)), "observations");
    assert_eq!(spoilt(|batch| batch.policies.push(0.0)), "policies");
    assert_eq!(spoilt(|batch| batch.legal.clear()), "legal");
    assert_eq!(spoilt(|batch| batch.wdl.push(0.0)), "wdl");
    assert_eq!(spoilt(|batch| batch.importance.push(1.0)), "importance");
    assert_eq!(spoilt(|batch| *batch = TrainingBatch::default()), "policy_weights");
}
