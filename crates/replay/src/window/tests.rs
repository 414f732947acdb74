use proptest::prelude::*;

use super::*;

fn katago() -> Window {
    Window { items_min: 250_000, exponent: 0.75, slope: 0.4, capacity_items: u64::MAX }
}

#[test]
fn until_c_items_the_window_is_everything() {
    for inserted in [0, 1, 1000, 250_000] {
        assert_eq!(katago().items(inserted), inserted);
    }
}

/// KataGo's paper, appendix C: 250 k at the start and about 22 M of 241 M samples at the end of its main run.
#[test]
fn the_window_of_katagos_main_run_ends_near_22_million_of_241_million() {
    let items = katago().items(241_000_000);
    assert!((21_000_000..23_500_000).contains(&items), "{items}");
}

#[test]
fn the_capacity_is_never_exceeded() {
    let window = Window { capacity_items: 300_000, ..katago() };
    assert_eq!(window.items(1_000_000_000), 300_000);
}

#[test]
fn parameters_out_of_range_are_named() {
    let said = |window: Window| window.check().unwrap_err().to_string();
    assert_eq!(said(Window { items_min: 0, ..katago() }), "the smallest window is 0 items, it must be at least 1");
    assert_eq!(said(Window { exponent: 0.0, ..katago() }), "the exponent 0 is not above 0 and at most 1");
    assert_eq!(said(Window { slope: f64::NAN, ..katago() }), "the slope NaN is not above 0 and at most 1");
    assert_eq!(
        said(Window { capacity_items: 9, ..katago() }),
        "the capacity of 9 items is below the smallest window of 250000"
    );
}

proptest! {
    #[test]
    fn the_window_never_shrinks_and_never_exceeds_what_came_in(
        c in 1_u64..10_000, exponent in 0.01_f64..=1.0, slope in 0.01_f64..=1.0, inserted in 0_u64..10_000_000,
    ) {
        let window = Window { items_min: c, exponent, slope, capacity_items: u64::MAX };
        prop_assert!(window.items(inserted) <= inserted);
        prop_assert!(window.items(inserted) <= window.items(inserted + 1));
    }
}
