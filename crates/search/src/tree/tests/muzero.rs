//! pUCT with normalised values against the pseudocode of MuZero (Schrittwieser et al. 2020), in f64.
//!
//! It differs from the pseudocode in what the settings document: the root's own evaluation is a visit, the bounds are
//! those of action values, and unvisited actions have the first-play value. mctx is no reference here: it rescales by
//! the values of each node and its children rather than by those met in the search.

use super::tabular::{Golden, State, each_search, searched};
use super::*;
use crate::settings::ValueRange;

struct Visited {
    state: usize,
    reward: f64,
    visits: f64,
    value_sum: f64,
    children: Vec<Option<Visited>>,
}

struct Muzero<'a> {
    model: &'a [State],
    discount: f64,
    fpu_reduction: f64,
    /// The least and the greatest action value met.
    bounds: (f64, f64),
}

impl Muzero<'_> {
    fn visited(&self, state: usize, reward: f64) -> Visited {
        let State { value, logits, .. } = &self.model[state];
        let children = logits.iter().map(|_| None).collect();
        Visited { state, reward, visits: 1.0, value_sum: *value, children }
    }

    fn action_value(&self, child: &Visited) -> f64 {
        child.reward + self.discount * child.value_sum / child.visits
    }

    fn normalised(&self, value: f64) -> f64 {
        let (least, greatest) = self.bounds;
        if greatest > least { (value - least) / (greatest - least) } else { value }
    }

    fn choose(&self, node: &Visited, valid: &[f64]) -> usize {
        let State { logits, .. } = &self.model[node.state];
        let shares: Vec<f64> = logits.iter().zip(valid).map(|(logit, valid)| logit.exp() * valid).collect();
        let total: f64 = shares.iter().sum();
        let seen =
            node.children.iter().zip(&shares).filter(|(child, _)| child.is_some()).map(|(_, share)| share / total);
        let first_play = self.normalised(node.value_sum / node.visits) - self.fpu_reduction * seen.sum::<f64>().sqrt();
        let rate = 1.25 + ((node.visits + 19_652.0 + 1.0) / 19_652.0).ln();
        let score = |action: usize| {
            let child = node.children[action].as_ref();
            let value = child.map_or(first_play, |child| self.normalised(self.action_value(child)));
            value + rate * shares[action] / total * node.visits.sqrt() / (1.0 + child.map_or(0.0, |child| child.visits))
        };
        let mut actions = (0..valid.len()).filter(|&action| valid[action] > 0.0);
        let first = actions.next().unwrap();
        actions.fold(first, |best, action| if score(action) > score(best) { action } else { best })
    }

    /// Runs one simulation from `node`; returns its value to the player to move there.
    fn simulate(&mut self, node: &mut Visited, valid: &[f64]) -> f64 {
        let action = self.choose(node, valid);
        let from = &self.model[node.state];
        let mut child = node.children[action].take();
        let value = match &mut child {
            Some(child) => self.simulate(child, &vec![1.0; valid.len()]),
            None => child.insert(self.visited(from.next[action], from.rewards[action])).value_sum,
        };
        let met = self.action_value(child.as_ref().unwrap());
        self.bounds = (self.bounds.0.min(met), self.bounds.1.max(met));
        node.children[action] = child;
        let value = from.rewards[action] + self.discount * value;
        node.visits += 1.0;
        node.value_sum += value;
        value
    }
}

#[test]
fn puct_with_normalised_values_makes_the_searches_of_muzero() {
    for fpu_reduction in [0.0, 0.2] {
        let settings =
            Settings { fpu_reduction, solver: Solver::Off, values: ValueRange::Normalised, ..Settings::default() };
        each_search(|model, golden| {
            let Golden { root, discount, simulations, valid, .. } = golden;
            let bounds = (f64::INFINITY, f64::NEG_INFINITY);
            let mut muzero = Muzero { model, discount: *discount, fpu_reduction: f64::from(fpu_reduction), bounds };
            let mut expected = muzero.visited(*root, 0.0);
            for _ in 0..*simulations {
                muzero.simulate(&mut expected, valid);
            }
            let tree = searched(model, golden, &settings);
            let visits = |action: &Action| expected.children[action.index()].as_ref().map_or(0, |c| c.visits as u32);
            let expected_visits: Vec<u32> = tree.root().actions().iter().map(visits).collect();
            assert_eq!(tree.root().visit_counts(), expected_visits, "{golden:?}");
            let mean = expected.value_sum / expected.visits;
            assert!((f64::from(tree.node().mean_value) - mean).abs() < 1e-5 * mean.abs().max(1.0), "{golden:?}");
        });
    }
}
