use super::Mass;

fn mass(weight: f64, log2_scale: f64) -> Mass {
    Mass { weight, log2_scale }
}

#[test]
fn shares_are_proportional_to_masses_and_sum_to_one() {
    let shares = Mass::shares(&[Mass::of_items(100), Mass::of_items(0), Mass::of_items(300)]);
    for (share, expected) in shares.iter().zip([0.25, 0.0, 0.75]) {
        assert!((share - expected).abs() < 1e-12, "{shares:?}");
    }
}

#[test]
fn the_only_one_that_weighs_something_has_exactly_all() {
    for weight in [f64::MIN_POSITIVE, 0.3, 1e300] {
        assert_eq!(Mass::shares(&[mass(weight, 700.0), Mass::default()]), [1.0, 0.0]);
    }
}

#[test]
fn scales_beyond_every_float_are_compared_all_the_same() {
    let shares = Mass::shares(&[mass(1.0, 1e6), mass(2.0, 1e6), mass(1.0, 0.0)]);
    assert!((shares[0] - 1.0 / 3.0).abs() < 1e-9 && (shares[1] - 2.0 / 3.0).abs() < 1e-9, "{shares:?}");
    assert_eq!(shares[2], 0.0);
}

#[test]
fn where_nothing_weighs_anything_nobody_has_a_share() {
    assert_eq!(Mass::shares(&[]), Vec::<f64>::new());
    assert_eq!(Mass::shares(&[Mass::default(); 2]), [0.0, 0.0]);
}
