//! Compares pUCT and Gumbel with values normalised over the tree to the formulas in f64.
//!
//! pUCT follows the pseudocode of MuZero (Schrittwieser et al. 2020), except where the settings document otherwise: the
//! root evaluation is a visit, the bounds are over action values, and unvisited actions have the first-play value.
//! Gumbel follows Danihelka et al. 2022. mctx is not a reference here: it rescales values over a node and the child
//! nodes, rather than over the tree.

use super::tabular::{Golden, State, each_search, searched};
use super::*;
use crate::settings::{ValueRange, ValueSpan};

struct Visited {
    state: usize,
    reward: f64,
    visits: f64,
    value_sum: f64,
    children: Vec<Option<Visited>>,
}

struct Muzero<'a> {
    model: &'a [State],
    golden: &'a Golden,
    choice: Choice,
    /// The least and the greatest action value so far.
    bounds: (f64, f64),
}

/// The rule that chooses actions.
enum Choice {
    Puct {
        fpu_reduction: f64,
    },
    Gumbel {
        /// For each simulation, the visits of the chosen root action before the simulation.
        considered_visits: Vec<f64>,
    },
}

/// Returns, for each simulation, the visits of the chosen action before the simulation, with `considered` actions in
/// sequential halving as in mctx.
fn considered_visits(considered: usize, simulations: usize) -> Vec<f64> {
    let halvings = considered.next_power_of_two().ilog2().max(1) as usize;
    let (mut sequence, mut visits, mut width) = (Vec::new(), vec![0.0; considered], considered);
    while sequence.len() < simulations {
        for _ in 0..(simulations / (halvings * width)).max(1) {
            sequence.extend_from_slice(&visits[..width]);
            visits[..width].iter_mut().for_each(|visits| *visits += 1.0);
        }
        width = (width / 2).max(2).min(considered);
    }
    sequence.truncate(simulations);
    sequence
}

impl Muzero<'_> {
    fn new<'a>(model: &'a [State], golden: &'a Golden, choice: Choice) -> Muzero<'a> {
        Muzero { model, golden, choice, bounds: (f64::INFINITY, f64::NEG_INFINITY) }
    }

    /// Returns the root after all simulations.
    fn searched(mut self) -> (Self, Visited) {
        let mut root = self.visited(self.golden.root, 0.0);
        for _ in 0..self.golden.simulations {
            self.simulate(&mut root, true);
        }
        (self, root)
    }

    fn visited(&self, state: usize, reward: f64) -> Visited {
        let State { value, logits, .. } = &self.model[state];
        let children = logits.iter().map(|_| None).collect();
        Visited { state, reward, visits: 1.0, value_sum: *value, children }
    }

    fn action_value(&self, child: &Visited) -> f64 {
        child.reward + self.golden.discount * child.value_sum / child.visits
    }

    /// Rescales a value to 0 at the least value so far and 1 at the greatest. `None` until two values differ.
    fn normalised(&self, value: f64) -> Option<f64> {
        let (least, greatest) = self.bounds;
        (greatest > least).then(|| (value - least) / (greatest - least))
    }

    /// Returns the prior of each action; 0 for illegal actions.
    fn priors(&self, node: &Visited, is_root: bool) -> Vec<f64> {
        let State { logits, .. } = &self.model[node.state];
        let is_legal = |action: usize| !is_root || self.golden.valid[action] > 0.0;
        let shares: Vec<f64> =
            logits.iter().enumerate().map(|(action, logit)| if is_legal(action) { logit.exp() } else { 0.0 }).collect();
        let total: f64 = shares.iter().sum();
        shares.into_iter().map(|share| share / total).collect()
    }

    fn choose(&self, node: &Visited, is_root: bool) -> usize {
        let priors = self.priors(node, is_root);
        let scores = match &self.choice {
            Choice::Puct { fpu_reduction } => self.puct(node, &priors, *fpu_reduction),
            Choice::Gumbel { considered_visits } if is_root => self.halved(node, &priors, considered_visits),
            Choice::Gumbel { .. } => {
                let (policy, total) = (self.improved_policy(node, &priors), node.visits - 1.0);
                policy.iter().zip(visits(node)).map(|(share, visits)| share - visits / (1.0 + total)).collect()
            }
        };
        let mut actions = (0..priors.len()).filter(|&action| priors[action] > 0.0);
        let first = actions.next().unwrap();
        actions.fold(first, |best, action| if scores[action] > scores[best] { action } else { best })
    }

    fn puct(&self, node: &Visited, priors: &[f64], fpu_reduction: f64) -> Vec<f64> {
        let seen: f64 = priors.iter().zip(visits(node)).filter(|(_, n)| *n > 0.0).map(|(prior, _)| prior).sum();
        let mean = node.value_sum / node.visits;
        let first_play = self.normalised(mean).unwrap_or(mean) - fpu_reduction * seen.sqrt();
        let rate = 1.25 + ((node.visits + 19_652.0 + 1.0) / 19_652.0).ln();
        let score = |(child, prior): (&Option<Visited>, &f64)| {
            let q = child.as_ref().map(|child| self.action_value(child));
            let value = q.map_or(first_play, |q| self.normalised(q).unwrap_or(q));
            value + rate * prior * node.visits.sqrt() / (1.0 + child.as_ref().map_or(0.0, |child| child.visits))
        };
        node.children.iter().zip(priors).map(score).collect()
    }

    /// Returns the root scores for the next simulation: −∞ for an action without the scheduled number of visits.
    fn halved(&self, node: &Visited, priors: &[f64], considered_visits: &[f64]) -> Vec<f64> {
        let due = considered_visits[node.visits as usize - 1];
        let logits = self.improved_logits(node, priors);
        let gumbel = &self.golden.gumbel;
        let score = |((logit, gumbel), visits): ((f64, &f64), f64)| {
            if visits == due { logit + gumbel } else { f64::NEG_INFINITY }
        };
        logits.into_iter().zip(gumbel).zip(visits(node)).map(score).collect()
    }

    /// Returns `ln P + σ(completed Q)` with the published constants.
    fn improved_logits(&self, node: &Visited, priors: &[f64]) -> Vec<f64> {
        let q = |child: &Option<Visited>| child.as_ref().map(|child| self.action_value(child));
        let (mut mass, mut weighted) = (0.0, 0.0);
        for (prior, q) in priors.iter().zip(node.children.iter().map(q)).filter_map(|(prior, q)| Some((prior, q?))) {
            mass += prior;
            weighted += prior * q;
        }
        let (network, total) = (self.model[node.state].value, node.visits - 1.0);
        let mixed = if mass > 0.0 { (network + total * weighted / mass) / (1.0 + total) } else { network };
        let factor = (50.0 + visits(node).fold(0.0, f64::max)) * 0.1;
        let sigma = |child| factor * self.normalised(q(child).unwrap_or(mixed)).unwrap_or(0.0);
        priors.iter().zip(&node.children).map(|(prior, child)| prior.ln() + sigma(child)).collect()
    }

    fn improved_policy(&self, node: &Visited, priors: &[f64]) -> Vec<f64> {
        let logits = self.improved_logits(node, priors);
        let greatest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = logits.iter().map(|logit| (logit - greatest).exp()).sum();
        logits.iter().map(|logit| (logit - greatest).exp() / total).collect()
    }

    /// Runs one simulation from `node`. Returns the backed-up value for the player to move at `node`.
    fn simulate(&mut self, node: &mut Visited, is_root: bool) -> f64 {
        let action = self.choose(node, is_root);
        let from = &self.model[node.state];
        let mut child = node.children[action].take();
        let value = match &mut child {
            Some(child) => self.simulate(child, false),
            None => child.insert(self.visited(from.next[action], from.rewards[action])).value_sum,
        };
        let met = self.action_value(child.as_ref().unwrap());
        self.bounds = (self.bounds.0.min(met), self.bounds.1.max(met));
        node.children[action] = child;
        let value = from.rewards[action] + self.golden.discount * value;
        node.visits += 1.0;
        node.value_sum += value;
        value
    }
}

/// Returns the visits of each action.
fn visits(node: &Visited) -> impl Iterator<Item = f64> {
    node.children.iter().map(|child| child.as_ref().map_or(0.0, |child| child.visits))
}

fn check_visits(tree: &Tree<usize>, expected: &Visited, golden: &Golden) {
    let counts: Vec<f64> = visits(expected).collect();
    let of = |action: &Action| counts[action.index()] as u32;
    let expected_visits: Vec<u32> = tree.root().actions().iter().map(of).collect();
    assert_eq!(tree.root().visit_counts(), expected_visits, "{golden:?}");
    let mean = expected.value_sum / expected.visits;
    assert!((f64::from(tree.node().mean_value) - mean).abs() < 1e-5 * mean.abs().max(1.0), "{golden:?}");
}

#[test]
fn puct_with_normalised_values_makes_the_searches_of_muzero() {
    for fpu_reduction in [0.0, 0.2] {
        let settings =
            Settings { fpu_reduction, solver: Solver::Off, values: ValueRange::Normalised, ..Settings::default() };
        each_search(|model, golden| {
            let choice = Choice::Puct { fpu_reduction: f64::from(fpu_reduction) };
            let (_, expected) = Muzero::new(model, golden, choice).searched();
            check_visits(&searched(model, golden, &settings), &expected, golden);
        });
    }
}

#[test]
fn gumbel_with_values_normalised_over_the_tree_follows_the_formulas() {
    let algorithm =
        SearchAlgorithm::Gumbel { considered_actions_max: 16, c_visit: 50.0, c_scale: 0.1, span: ValueSpan::Tree };
    let settings = Settings { algorithm, solver: Solver::Off, values: ValueRange::Normalised, ..settings() };
    let mut policy = Vec::new();
    each_search(|model, golden| {
        let considered = golden.valid.iter().filter(|valid| **valid > 0.0).count().min(16);
        let considered_visits = considered_visits(considered, golden.simulations as usize);
        let (muzero, expected) = Muzero::new(model, golden, Choice::Gumbel { considered_visits }).searched();
        let tree = searched(model, golden, &settings);
        check_visits(&tree, &expected, golden);
        let shares = muzero.improved_policy(&expected, &muzero.priors(&expected, true));
        tree.search_policy(&mut policy);
        for (action, share) in tree.root().actions().iter().zip(&policy) {
            let expected = shares[action.index()];
            assert!((f64::from(*share) - expected).abs() < 1e-5, "{policy:?}, expected {shares:?} of {golden:?}");
        }
    });
}
