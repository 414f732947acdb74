use super::*;
use crate::edges::{Edges, UNAVAILABLE, UNVISITED};
use crate::value_range::Scale;

fn choose(values: &[f32], counts: &[f32], priors: &[f32], terms: Terms<Scale>) -> Option<usize> {
    best(Edges::of(values, counts, priors).all(), terms).map(|Choice { octet, lane }| octet * LANES + lane)
}

fn terms(visits: u32, first_play: f32) -> Terms<Scale> {
    Terms { factor: ExplorationFactors::new(19_652.0, 1.25).at(visits), first_play, scale: Scale::IDENTITY }
}

#[test]
fn ties_go_to_the_lowest_action() {
    assert_eq!(choose(&[0.5; 3], &[2.0; 3], &[0.25; 3], terms(7, 0.0)), Some(0));
}

#[test]
fn before_any_visit_the_prior_decides() {
    assert_eq!(choose(&[UNVISITED; 3], &[0.0; 3], &[0.2, 0.5, 0.3], terms(1, 0.0)), Some(1));
}

#[test]
fn an_unvisited_child_has_the_first_play_value() {
    let with = |first_play| choose(&[0.5, UNVISITED], &[9.0, 0.0], &[0.9, 0.1], terms(10, first_play));
    assert_eq!((with(-1.0), with(0.9)), (Some(0), Some(1)));
}

#[test]
fn an_unavailable_child_is_never_chosen() {
    assert_eq!(choose(&[UNAVAILABLE, -1.0], &[0.0, 50.0], &[1.0, 0.0], terms(51, 0.0)), Some(1));
    assert_eq!(choose(&[UNAVAILABLE; 2], &[0.0; 2], &[0.5; 2], terms(1, 0.0)), None);
}

/// With more actions than are looked at together.
#[test]
fn the_best_of_many_is_found_wherever_it_stands() {
    for len in [1, 7, 8, 9, 16, 17, 40] {
        for at in 0..len {
            let mut values = vec![0.25; len];
            values[at] = 0.5;
            assert_eq!(choose(&values, &vec![3.0; len], &vec![0.1; len], terms(7, 0.0)), Some(at), "of {len}");
            let ties = vec![UNAVAILABLE; at].into_iter().chain(vec![0.5; len - at]).collect::<Vec<_>>();
            assert_eq!(choose(&ties, &vec![3.0; len], &vec![0.1; len], terms(7, 0.0)), Some(at), "of {len}");
        }
    }
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
