use super::*;
use crate::arena::{UNAVAILABLE, UNVISITED};

fn terms(visits: u32, first_play: f32) -> Terms {
    Terms { factor: ExplorationFactors::new(19_652.0, 1.25).at(visits), first_play, scale: Scale::IDENTITY }
}

#[test]
fn ties_go_to_the_lowest_action() {
    assert_eq!(best(&[0.5; 3], &[2.0; 3], &[0.25; 3], terms(7, 0.0)), Some(0));
}

#[test]
fn before_any_visit_the_prior_decides() {
    assert_eq!(best(&[UNVISITED; 3], &[0.0; 3], &[0.2, 0.5, 0.3], terms(1, 0.0)), Some(1));
}

#[test]
fn an_unvisited_child_has_the_first_play_value() {
    let choose = |first_play| best(&[0.5, UNVISITED], &[9.0, 0.0], &[0.9, 0.1], terms(10, first_play));
    assert_eq!((choose(-1.0), choose(0.9)), (Some(0), Some(1)));
}

#[test]
fn an_unavailable_child_is_never_chosen() {
    assert_eq!(best(&[UNAVAILABLE, -1.0], &[0.0, 50.0], &[1.0, 0.0], terms(51, 0.0)), Some(1));
    assert_eq!(best(&[UNAVAILABLE; 2], &[0.0; 2], &[0.5; 2], terms(1, 0.0)), None);
}

/// The published formula, in f64.
#[test]
fn factors_are_the_formula_inside_the_table_and_beyond() {
    let factors = ExplorationFactors::new(19_652.0, 1.25);
    for visits in [0_u32, 1, 2, 100, 1023, 1024, 1025, 50_000, 1_000_000] {
        let n = f64::from(visits);
        let expected = n.sqrt() * (1.25 + ((n + 19_652.0 + 1.0) / 19_652.0).ln());
        assert!((f64::from(factors.at(visits)) - expected).abs() <= 1e-5 * expected);
    }
}
