use super::{Decay, warm_up};

#[test]
fn a_cosine_falls_from_the_peak_to_its_floor_through_the_middle() {
    let cosine = Decay::Cosine { floor: 0.1 };
    let factors = [0.0, 0.5, 1.0].map(|progress| cosine.factor(progress));
    for (got, expected) in factors.into_iter().zip([1.0, 0.55, 0.1]) {
        assert!((got - expected).abs() < 1e-12, "{factors:?}");
    }
}

#[test]
fn steps_multiply_at_their_places() {
    let steps = Decay::Steps { factor: 0.5, at: vec![0.25, 0.75] };
    assert_eq!([0.0, 0.25, 0.5, 0.75, 1.0].map(|progress| steps.factor(progress)), [1.0, 0.5, 0.5, 0.25, 0.25]);
}

#[test]
fn the_warm_up_is_a_line_that_never_gives_zero() {
    assert_eq!([0, 1, 2, 3, 9].map(|step| warm_up(step, 3)), [0.25, 0.5, 0.75, 1.0, 1.0]);
    assert_eq!(warm_up(0, 0), 1.0);
}

#[test]
fn shares_outside_their_range_are_refused_by_name() {
    let error = Decay::Cosine { floor: f64::NAN }.check().unwrap_err();
    assert_eq!(error.to_string(), "setting `decay.floor` is NaN, expected a share from 0 to 1");
    assert!(Decay::Steps { factor: 0.1, at: vec![0.5, 1.5] }.check().is_err());
}
