//! Compares chance nodes to a naive search and to brute-force expectimax, on small random trees with dyadic values.

use std::collections::HashMap;

use game::mix;

use super::*;

/// The use of afterstates.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Afterstates {
    /// Afterstates have no value, and simulations pass through them.
    Passed,
    /// Afterstates have a value, and simulations may end there.
    Evaluated,
}

/// A position of a random game with chance, or an afterstate; the hash determines the whole subtree.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Dice {
    hash: u64,
    plies_left: u32,
    /// The discount of a step: −1 in a two-player game, where only the final position has a result.
    discount: f32,
}

impl Dice {
    fn draw(&self, salt: u64, below: u64) -> u64 {
        mix(self.hash ^ mix(salt)) % below
    }

    fn is_for_two(&self) -> bool {
        self.discount < 0.0
    }

    fn end(&self) -> Option<f32> {
        let is_over = self.plies_left == 0 || self.draw(1, 8) == 0;
        is_over.then(|| if self.is_for_two() { self.draw(2, 3) as f32 - 1.0 } else { 0.0 })
    }

    fn actions(&self) -> Vec<Action> {
        (0..1 + self.draw(3, 3) as u16).map(|action| Action(2 * action)).collect()
    }

    fn priors(&self) -> Vec<f32> {
        match self.actions().len() {
            1 => vec![1.0],
            2 => vec![0.375, 0.625],
            _ => vec![0.25, 0.5, 0.25],
        }
    }

    fn value(&self) -> f32 {
        (self.draw(4, 127) as f32 - 63.0) / 64.0
    }

    fn after(&self, action: Action) -> Self {
        Self { hash: mix(self.hash ^ mix(1000 + u64::from(action.0))), ..*self }
    }

    /// Returns the outcomes of an afterstate, with probabilities.
    fn outcomes(&self) -> (Vec<Action>, Vec<f32>) {
        let probabilities: &[f32] = match self.draw(5, 4) {
            0 => &[1.0],
            1 => &[0.125, 0.875],
            2 => &[0.5, 0.25, 0.25],
            _ => &[0.0625, 0.3125, 0.125, 0.5],
        };
        ((0..probabilities.len() as u16).map(|outcome| Action(3 * outcome + 1)).collect(), probabilities.to_vec())
    }

    /// Returns the position after an outcome at an afterstate, and the reward.
    fn follow(&self, outcome: Action) -> (Self, f32) {
        let next =
            Self { hash: mix(self.hash ^ mix(2000 + u64::from(outcome.0))), plies_left: self.plies_left - 1, ..*self };
        let reward = if self.is_for_two() { 0.0 } else { (next.draw(6, 17) as f32 - 8.0) / 4.0 };
        (next, reward)
    }

    /// Returns the value under optimal play, by expectimax.
    fn exact(&self) -> f64 {
        let best = || self.actions().into_iter().map(|action| self.after(action).expected()).fold(f64::MIN, f64::max);
        self.end().map_or_else(best, f64::from)
    }

    /// Returns the exact value of an afterstate for the player who took the action into the afterstate.
    fn expected(&self) -> f64 {
        let (outcomes, probabilities) = self.outcomes();
        let term = |(outcome, probability): (Action, f32)| {
            let (next, reward) = self.follow(outcome);
            f64::from(probability) * (f64::from(reward) + f64::from(self.discount) * next.exact())
        };
        outcomes.into_iter().zip(probabilities).map(term).sum()
    }

    fn expansion<R>(&self, then: impl FnOnce(Expansion<'_>) -> R) -> R {
        match self.end() {
            Some(value) => then(Expansion::Terminal { value }),
            None => {
                then(Expansion::Evaluated { actions: &self.actions(), priors: &self.priors(), value: self.value() })
            }
        }
    }

    fn tree(self, settings: &Settings) -> Tree<Self> {
        let mut tree = Tree::new(settings.clone());
        self.expansion(|expansion| tree.reset(self, expansion));
        tree
    }
}

/// Returns the first `count` random games that are not over at the start.
fn dice(count: usize, plies_left: u32, discount: f32) -> impl Iterator<Item = Dice> {
    let games = (0..).map(move |seed| Dice { hash: mix(seed), plies_left, discount });
    games.filter(|dice| dice.end().is_none()).take(count)
}

fn answer(tree: &mut Tree<Dice>, request: Request, afterstates: Afterstates) {
    let request = match request.outcome {
        Some(_) => request,
        None => {
            let after = tree.parent_state(&request).after(request.action);
            let (outcomes, probabilities) = after.outcomes();
            if afterstates == Afterstates::Evaluated {
                let (outcomes, probabilities) = (&outcomes[..], &probabilities[..]);
                let expansion = Expansion::Chance { outcomes, probabilities, value: after.value() };
                return tree.answer(request, after, 0.0, 1.0, expansion);
            }
            tree.branch(request, after, &outcomes, &probabilities)
        }
    };
    let (next, reward) = tree.parent_state(&request).follow(request.outcome.unwrap());
    next.expansion(|expansion| tree.answer(request, next, reward, next.discount, expansion));
}

fn searched(dice: Dice, settings: &Settings, simulations: u32, leaves: usize, afterstates: Afterstates) -> Tree<Dice> {
    let mut tree = dice.tree(settings);
    tree.begin(simulations, Exploration::Greedy, &mut Silent);
    run_with(&mut tree, leaves, |tree, request| answer(tree, request, afterstates));
    tree
}

fn rewarded(algorithm: SearchAlgorithm) -> Settings {
    Settings { algorithm, solver: Solver::Off, values: ValueRange::Normalised, ..settings() }
}

/// The tested algorithms, for values of any range.
const ALGORITHMS: [SearchAlgorithm; 2] = [SearchAlgorithm::Puct, SearchAlgorithm::GUMBEL_NORMALISED];
const AFTERSTATES: [Afterstates; 2] = [Afterstates::Passed, Afterstates::Evaluated];

#[derive(Debug, Clone)]
struct Visited {
    dice: Dice,
    reward: f32,
    visits: u32,
    value_sum: f64,
}

/// A naive pUCT search with chance nodes: recursive, with a hash map keyed by the path and no cached values. Nodes at
/// even depth are decision nodes, and all other nodes are chance nodes.
struct Naive {
    settings: Settings,
    afterstates: Afterstates,
    tree: HashMap<Vec<Action>, Visited>,
    bounds: (f32, f32),
}

impl Naive {
    fn searched(dice: Dice, settings: &Settings, simulations: u32, afterstates: Afterstates) -> Self {
        let bounds = (f32::INFINITY, f32::NEG_INFINITY);
        let mut naive = Self { settings: settings.clone(), afterstates, tree: HashMap::new(), bounds };
        naive.tree.insert(Vec::new(), Visited { dice, reward: 0.0, visits: 0, value_sum: 0.0 });
        (0..=simulations).for_each(|_| _ = naive.simulate(&[]));
        naive
    }

    fn simulate(&mut self, path: &[Action]) -> f32 {
        let here = self.tree[path].clone();
        let value = if path.len() % 2 == 1 {
            if here.visits == 0 && self.afterstates == Afterstates::Evaluated {
                here.dice.value()
            } else {
                let outcome = self.lagging(path, &here);
                let (dice, reward) = here.dice.follow(outcome);
                let next = self.insert(path, outcome, dice, reward);
                reward + dice.discount * self.simulate(&next)
            }
        } else if let Some(end) = here.dice.end() {
            end
        } else if here.visits == 0 {
            here.dice.value()
        } else {
            let action = self.best(path, &here);
            let next = self.insert(path, action, here.dice.after(action), 0.0);
            let value = self.simulate(&next);
            let met = self.mean(&next);
            self.bounds = (self.bounds.0.min(met), self.bounds.1.max(met));
            value
        };
        let here = self.tree.get_mut(path).unwrap();
        here.visits += 1;
        here.value_sum += f64::from(value);
        value
    }

    fn insert(&mut self, path: &[Action], step: Action, dice: Dice, reward: f32) -> Vec<Action> {
        let next = [path, &[step]].concat();
        self.tree.entry(next.clone()).or_insert(Visited { dice, reward, visits: 0, value_sum: 0.0 });
        next
    }

    fn mean(&self, path: &[Action]) -> f32 {
        let here = &self.tree[path];
        here.value_sum as f32 / here.visits as f32
    }

    fn visits(&self, path: &[Action], step: Action) -> u32 {
        self.tree.get(&[path, &[step]].concat()).map_or(0, |child| child.visits)
    }

    fn lagging(&self, path: &[Action], here: &Visited) -> Action {
        let (outcomes, probabilities) = here.dice.outcomes();
        let total: u32 = outcomes.iter().map(|&outcome| self.visits(path, outcome)).sum();
        let lag = |i: usize| probabilities[i] - self.visits(path, outcomes[i]) as f32 * (1.0 / (1.0 + total as f32));
        outcomes[(1..outcomes.len()).fold(0, |best, i| if lag(i) > lag(best) { i } else { best })]
    }

    fn scaled(&self, value: f32) -> f32 {
        let (least, greatest) = self.bounds;
        let is_scaled = self.settings.values == ValueRange::Normalised && least < greatest;
        if is_scaled { (value - least) * (1.0 / (greatest - least)) } else { value }
    }

    fn best(&self, path: &[Action], here: &Visited) -> Action {
        let (actions, priors, visits) = (here.dice.actions(), here.dice.priors(), here.visits as f32);
        let seen: f32 =
            actions.iter().zip(&priors).filter(|(action, _)| self.visits(path, **action) > 0).map(|(_, p)| p).sum();
        let first_play = self.scaled(self.mean(path)) - self.settings.fpu_reduction * seen.sqrt();
        let (base, init) = (self.settings.c_base, self.settings.c_init);
        let factor = visits.sqrt() * (init + ((visits + base + 1.0) / base).ln());
        let score = |i: usize| {
            let n = self.visits(path, actions[i]);
            let q = if n > 0 { self.scaled(self.mean(&[path, &[actions[i]]].concat())) } else { first_play };
            q + priors[i] / (1.0 + n as f32) * factor
        };
        actions[(1..actions.len()).fold(0, |best, i| if score(i) > score(best) { i } else { best })]
    }
}

#[test]
fn a_search_with_chance_nodes_grows_the_tree_of_a_naive_one() {
    let settings = rewarded(SearchAlgorithm::Puct);
    for afterstates in AFTERSTATES {
        for dice in dice(60, 4, 0.5) {
            let tree = searched(dice, &settings, 150, 1, afterstates);
            let naive = Naive::searched(dice, &settings, 150, afterstates);
            assert_eq!(tree.node_count(), naive.tree.len());
            for id in 0..tree.node_count() {
                let (mut path, mut at) = (Vec::new(), NodeId(id as u32));
                while at != NodeId::ROOT {
                    path.insert(0, tree.arena.edges.action(tree.arena.node(at).edge));
                    at = tree.arena.node(at).parent;
                }
                let (node, expected) = (&tree.arena.nodes[id], &naive.tree[&path]);
                assert_eq!(
                    (node.visits, node.value_sum),
                    (expected.visits, expected.value_sum),
                    "{path:?} of {dice:?}"
                );
                assert_eq!((tree.states[id], node.reward), (expected.dice, expected.reward), "{path:?} of {dice:?}");
            }
        }
    }
}

/// Checks that the visits of every node equal the visits of all children, plus 1 if the node has an evaluation.
fn check_counts(tree: &Tree<Dice>, afterstates: Afterstates) {
    for node in &tree.arena.nodes {
        let children = node.edges().map(|edge| tree.arena.edges.child(edge)).filter(|&child| child != NodeId::NONE);
        let sum: u32 = children.map(|child| tree.arena.node(child).visits).sum();
        let own = !node.is_chance || afterstates == Afterstates::Evaluated;
        let is_leaf = node.is_terminal() && !node.is_chance;
        assert!(is_leaf || node.visits == sum + u32::from(own), "{node:?} with {sum} visits below");
        assert_eq!(node.in_flight, 0);
    }
}

#[test]
fn visit_shares_at_chance_nodes_are_the_probabilities_of_the_outcomes() {
    for (algorithm, afterstates) in ALGORITHMS.into_iter().flat_map(|a| AFTERSTATES.map(|b| (a, b))) {
        for leaves in [1, 4] {
            for dice in dice(30, 4, 0.5) {
                let tree = searched(dice, &rewarded(algorithm), 400, leaves, afterstates);
                check_counts(&tree, afterstates);
                for node in tree.arena.nodes.iter().filter(|node| node.is_chance) {
                    let counts: Vec<f32> = node.edges().map(|edge| tree.arena.edges.count(edge)).collect();
                    let total: f32 = counts.iter().sum();
                    for (edge, count) in node.edges().zip(&counts) {
                        let expected = total * tree.arena.edges.prior(edge);
                        assert!((count - expected).abs() <= 1.5, "{counts:?}, expected {expected}");
                    }
                }
            }
        }
    }
}

#[test]
fn action_values_of_one_step_are_their_expectations() {
    for algorithm in ALGORITHMS {
        for dice in dice(60, 1, 0.5) {
            let tree = searched(dice, &rewarded(algorithm), 3000, 1, Afterstates::Passed);
            let root = tree.root();
            for ((&action, value), visits) in root.actions().iter().zip(root.action_values()).zip(root.visit_counts()) {
                let expected = dice.after(action).expected();
                // Each count deviates by up to 1.5 from the expectation, each reward is at most 2.
                let tolerance = 4.0 * 1.5 * 2.0 / f64::from(visits);
                assert!(visits > 0 && (f64::from(value) - expected).abs() < tolerance, "{value}, exactly {expected}");
            }
        }
    }
}

#[test]
fn the_best_action_is_that_of_expectimax() {
    for (algorithm, afterstates) in ALGORITHMS.into_iter().flat_map(|a| AFTERSTATES.map(|b| (a, b))) {
        for dice in dice(40, 3, 0.5) {
            let tree = searched(dice, &rewarded(algorithm), 4000, 4, afterstates);
            let chosen = dice.after(tree.best_action()).expected();
            let lost = dice.exact() - chosen;
            assert!(lost < 0.1, "{algorithm:?} loses {lost} of {} in {dice:?}", dice.exact());
        }
    }
}

#[test]
fn nothing_is_proven_through_chance_and_the_best_action_of_two_players_is_that_of_expectimax() {
    let mut certain = 0;
    for dice in dice(40, 3, -1.0) {
        let tree = searched(dice, &settings(), 4000, 1, Afterstates::Passed);
        certain += tree.arena.nodes.iter().filter(|node| node.proven != Proven::Unknown).count();
        let mut decisions = tree.arena.nodes.iter().filter(|node| node.edge_count > 0);
        assert!(decisions.all(|node| node.proven == Proven::Unknown && !node.has_draw));
        check_counts(&tree, Afterstates::Passed);
        let lost = dice.exact() - dice.after(tree.best_action()).expected();
        assert!(lost < 0.06, "{lost} of {} is lost in {dice:?}", dice.exact());
    }
    assert!(certain > 0, "no end was reached");
}

#[test]
fn cancelled_outcomes_leave_no_visit_behind() {
    for dice in dice(40, 4, 0.5) {
        let mut tree = dice.tree(&rewarded(SearchAlgorithm::Puct));
        tree.begin(50, Exploration::Greedy, &mut Silent);
        for _ in 0..20 {
            let mut requests = Vec::new();
            while let Selection::Leaf(request) = tree.select() {
                let request = match request.outcome {
                    Some(_) => request,
                    None => {
                        let after = tree.parent_state(&request).after(request.action);
                        let (outcomes, probabilities) = after.outcomes();
                        tree.branch(request, after, &outcomes, &probabilities)
                    }
                };
                requests.push(request);
            }
            requests.into_iter().for_each(|request| tree.cancel(request));
            check_counts(&tree, Afterstates::Passed);
            assert!(tree.root().action_values().iter().all(|value| value.is_finite()));
        }
        run_with(&mut tree, 1, |tree, request| answer(tree, request, Afterstates::Passed));
        check_counts(&tree, Afterstates::Passed);
    }
}

#[test]
fn no_subtree_is_kept_behind_an_action_with_chance() {
    for dice in dice(20, 4, 0.5) {
        let mut tree = searched(dice, &rewarded(SearchAlgorithm::Puct), 50, 1, Afterstates::Passed);
        let mut line = Vec::new();
        tree.principal_variation(&mut line);
        assert_eq!(line, [tree.best_action()]);
        assert!(!tree.advance(tree.best_action()) && !tree.is_ready());
        dice.expansion(|expansion| tree.reset(dice, expansion));
        assert!(!tree.arena.has_chance);
    }
}
