use inference::Wdl;

use super::*;

fn answers(priors: &[f32], win: f32) -> Predictions {
    let mut predictions = Predictions::new();
    predictions.push(priors, Wdl { win, draw: 0.0, loss: 1.0 - win });
    predictions
}

#[test]
fn drift_is_divergence_and_distance_on_average() {
    let (mut fine, mut coarse) = (answers(&[0.5, 0.5], 0.75), answers(&[0.25, 0.75], 0.5));
    let one = Drift::between(&fine, &coarse);
    let divergence = 0.5 * 2.0_f64.ln() + 0.5 * (2.0_f64 / 3.0).ln();
    assert!((one.divergence - divergence).abs() < 1e-9 && (one.value - 0.5).abs() < 1e-6, "{one:?}");
    for both in [&mut fine, &mut coarse] {
        both.push(&[1.0, 0.0], Wdl { win: 1.0, draw: 0.0, loss: 0.0 });
    }
    let two = Drift::between(&fine, &coarse);
    assert!((two.divergence - divergence / 2.0).abs() < 1e-9 && (two.value - 0.25).abs() < 1e-6, "{two:?}");
}

#[test]
fn what_is_not_a_number_is_not_small() {
    assert!(Drift { divergence: 0.0, value: 0.0 }.is_small());
    for (divergence, value) in [(f64::NAN, 0.0), (0.0, f64::NAN), (0.5, 0.0), (0.0, 0.5)] {
        assert!(!Drift { divergence, value }.is_small());
    }
}

#[test]
fn an_impossible_prior_is_far_but_finite() {
    let drift = Drift::between(&answers(&[0.5, 0.5], 0.5), &answers(&[1.0, 0.0], 0.5));
    assert!(drift.divergence.is_finite() && !drift.is_small(), "{drift}");
}
