//! Compares Gumbel with normalised values to mctx, the published implementation of Gumbel MuZero.

use super::tabular::{each_search, searched};
use super::*;
use crate::settings::ValueRange;

fn agree(value: f32, expected: f64) -> bool {
    (f64::from(value) - expected).abs() <= 1e-5 * expected.abs().max(1.0)
}

#[test]
fn gumbel_with_normalised_values_makes_the_searches_of_mctx() {
    let settings = Settings {
        algorithm: SearchAlgorithm::GUMBEL_NORMALISED,
        solver: Solver::Off,
        values: ValueRange::Normalised,
        ..settings()
    };
    let mut policy = Vec::new();
    let searches = each_search(|model, golden| {
        let tree = searched(model, golden, &settings);
        let root = tree.root();
        let listed = |list: &[f64]| root.actions().iter().map(|action| list[action.index()]).collect::<Vec<_>>();
        let visits: Vec<f64> = root.visit_counts().into_iter().map(f64::from).collect();
        assert_eq!(visits, listed(&golden.visits), "{golden:?}");
        for ((value, expected), visits) in root.action_values().into_iter().zip(listed(&golden.values)).zip(visits) {
            assert!(visits == 0.0 || agree(value, expected), "{value}, expected {expected} of {golden:?}");
        }
        tree.search_policy(&mut policy);
        for (&weight, expected) in policy.iter().zip(listed(&golden.weights)) {
            assert!(agree(weight, expected), "{policy:?} of {golden:?}");
        }
        assert_eq!(tree.best_action().index(), golden.chosen, "{golden:?}");
        assert!(agree(tree.node().mean_value, golden.root_value), "{golden:?}");
    });
    assert_eq!(searches, 192);
}
