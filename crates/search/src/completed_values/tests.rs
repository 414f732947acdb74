use super::*;

#[test]
fn the_mixed_value_of_nothing_is_the_networks() {
    assert_eq!(MixedValue::default().mix(0.25), 0.25);
}

#[test]
fn the_mixed_value_weighs_visited_actions_by_their_priors() {
    let mut mixed = MixedValue::default();
    mixed.add(0.5, 3.0, 1.0);
    mixed.add(0.25, 1.0, -0.5);
    // (0.25 + 4 · (0.5 − 0.125) / 0.75) / 5
    assert_eq!(mixed.mix(0.25), 0.45);
}

#[test]
fn visited_actions_without_prior_do_not_divide_by_zero() {
    let mut mixed = MixedValue::default();
    mixed.add(0.0, 3.0, 1.0);
    assert_eq!(mixed.mix(0.25), 0.25);
}

#[test]
fn sigma_grows_with_the_greatest_count() {
    assert_eq!(Sigma { c_visit: 50.0, c_scale: 1.0 }.factor(14.0), 64.0);
    assert_eq!(Sigma { c_visit: 50.0, c_scale: 0.1 }.factor(0.0), 5.0);
}

#[test]
fn softmax_survives_what_exp_does_not() {
    let mut logits = [1000.0, f32::NEG_INFINITY, 1000.0, -1000.0];
    softmax(&mut logits);
    assert_eq!(logits, [0.5, 0.0, 0.5, 0.0]);
}

#[test]
fn a_prior_of_zero_has_a_finite_logit() {
    assert!(logit(0.0).is_finite() && logit(0.0) < -80.0);
}
