use super::*;

#[test]
fn it_agrees_with_the_exponential_function_to_three_units_in_the_last_place() {
    let mut worst = 0.0_f64;
    for step in 0..=870_000 {
        let x = -step as f32 / 10_000.0;
        let expected = f64::from(x).exp();
        worst = worst.max((f64::from(exp_of_negative(x)) - expected).abs() / expected);
    }
    assert!(worst < 3.0 * f64::from(f32::EPSILON) / 2.0, "{worst}");
}

#[test]
fn zero_is_exact_and_what_is_far_below_is_next_to_nothing() {
    assert_eq!(exp_of_negative(0.0), 1.0);
    for x in [-87.0, -1e3, -1e30, f32::NEG_INFINITY] {
        assert!((0.0..1e-37).contains(&exp_of_negative(x)), "{x}");
    }
}
