//! A naive reference search that follows the formulas, with hash maps keyed by the path and no cached values.

use std::collections::{HashMap, HashSet};

use game::Action;

use super::toy::Toy;
use crate::edges::NodeId;
use crate::{Proven, Settings, Solver, Tree, ValueRange};

#[derive(Debug, Clone, PartialEq)]
struct Visited {
    toy: Toy,
    reward: f32,
    discount: f32,
    visits: u32,
    in_flight: u32,
    value_sum: f64,
}

/// The result of a descent, like [`Selection`](crate::Selection) but with a path in place of a request.
enum Descent {
    Leaf(Vec<Action>),
    Completed,
    Busy,
}

pub(super) struct Reference {
    settings: Settings,
    tree: HashMap<Vec<Action>, Visited>,
    /// The paths of the leaves in flight.
    requested: HashSet<Vec<Action>>,
    /// The least and the greatest action value so far.
    bounds: (f32, f32),
}

impl Reference {
    pub(super) fn new(toy: Toy, settings: Settings) -> Self {
        let mut reference = Self {
            settings,
            tree: HashMap::new(),
            requested: HashSet::new(),
            bounds: (f32::INFINITY, f32::NEG_INFINITY),
        };
        reference.insert(&[], toy, 0.0, 1.0);
        reference
    }

    /// Searches until all root actions have `simulations` visits in total, or the root is proven. Up to `leaves` leaves
    /// are selected before the first leaf is evaluated.
    pub(super) fn search(&mut self, simulations: u32, leaves: usize) {
        while self.tree[&vec![]].visits < simulations + 1 && self.proven(&[]) == Proven::Unknown {
            let mut chosen = Vec::new();
            while chosen.len() < leaves {
                match self.descend(simulations) {
                    Descent::Leaf(path) => chosen.push(path),
                    Descent::Completed => {}
                    Descent::Busy => break,
                }
            }
            for path in chosen {
                self.requested.remove(&path);
                let (action, parent) = path.split_last().unwrap();
                let step = self.tree[parent].toy.step(*action);
                self.insert(&path, step.toy, step.reward, step.discount);
            }
        }
    }

    /// Adds a position. The evaluation counts as the first visit.
    fn insert(&mut self, path: &[Action], toy: Toy, reward: f32, discount: f32) {
        let visited = Visited { toy, reward, discount, visits: 0, in_flight: 1, value_sum: 0.0 };
        self.tree.insert(path.to_vec(), visited);
        self.back_up(path, toy.outcome().unwrap_or_else(|| toy.value()));
    }

    fn descend(&mut self, simulations: u32) -> Descent {
        let root = &self.tree[&vec![]];
        let is_spent = root.visits - 1 + root.in_flight >= simulations;
        if is_spent || self.proven(&[]) != Proven::Unknown || !self.leads_to_leaves(&[]) {
            return Descent::Busy;
        }
        let mut path = Vec::new();
        while let Some(here) = self.tree.get(&path).cloned() {
            let exact = here.toy.outcome().or(self.proven(&path).value());
            let action = exact.is_none().then(|| self.choose(&path, &here));
            self.tree.get_mut(&path).unwrap().in_flight += 1;
            if let Some(value) = exact {
                self.back_up(&path, value);
                return Descent::Completed;
            }
            path.extend(action);
        }
        self.requested.insert(path.clone());
        Descent::Leaf(path)
    }

    /// Completes the visit in flight at `path` and at each position before it.
    fn back_up(&mut self, path: &[Action], mut value: f32) {
        for len in (0..=path.len()).rev() {
            let path = &path[..len];
            value = self.proven(path).value().unwrap_or(value);
            let here = self.tree.get_mut(path).unwrap();
            here.visits += 1;
            here.in_flight -= 1;
            here.value_sum += f64::from(value);
            value = here.reward + here.discount * value;
            if len > 0 {
                let met = self.action_value(path);
                self.bounds = (self.bounds.0.min(met), self.bounds.1.max(met));
            }
        }
    }

    /// Returns the actions available to a descent. Proven wins and losses are not visited again: a win decides the
    /// node, and no choice is worse than a loss.
    fn open(&self, path: &[Action]) -> Vec<Action> {
        let is_open = |&action: &Action| {
            let is_decided = matches!(self.proven_for_chooser(path, action), Proven::Win | Proven::Loss);
            !is_decided && !self.is_in_flight(&[path, &[action]].concat())
        };
        self.tree[path].toy.actions().into_iter().filter(is_open).collect()
    }

    /// Returns true if a descent from `path` can reach a leaf. Descents stop at proven draws.
    fn leads_to_leaves(&self, path: &[Action]) -> bool {
        self.open(path).into_iter().any(|action| self.proven_for_chooser(path, action) == Proven::Unknown)
    }

    /// Returns true if every leaf at or below `path` is in flight.
    fn is_in_flight(&self, path: &[Action]) -> bool {
        let Some(here) = self.tree.get(path) else { return self.requested.contains(path) };
        here.toy.outcome().is_none() && self.proven(path) == Proven::Unknown && !self.leads_to_leaves(path)
    }

    fn choose(&self, path: &[Action], here: &Visited) -> Action {
        let actions = here.toy.actions();
        let priors = here.toy.priors();
        let child = |action: Action| self.tree.get(&[path, &[action]].concat());
        let n = |action: Action| child(action).map_or(0.0, |child| (child.visits + child.in_flight) as f32);
        let big_n = (here.visits + here.in_flight) as f32;
        let seen: f32 =
            actions.iter().zip(&priors).filter(|(action, _)| n(**action) > 0.0).map(|(_, prior)| prior).sum();
        let mean = here.value_sum as f32 / here.visits as f32;
        let first_play = self.scaled(mean) - self.settings.fpu_reduction * seen.sqrt();
        let (base, init) = (self.settings.c_base, self.settings.c_init);
        let open = self.open(path);
        let mut best = None;
        for (&action, &prior) in actions.iter().zip(&priors).filter(|(action, _)| open.contains(action)) {
            let next = [path, &[action]].concat();
            let q = child(action).map_or(first_play, |_| self.scaled(self.action_value(&next)));
            let u = prior / (1.0 + n(action)) * (big_n.sqrt() * (init + ((big_n + base + 1.0) / base).ln()));
            if best.is_none_or(|(score, _)| q + u > score) {
                best = Some((q + u, action));
            }
        }
        best.unwrap().1
    }

    /// Returns the value of a visited position for the player who moved to the position.
    fn action_value(&self, path: &[Action]) -> f32 {
        let here = &self.tree[path];
        here.reward + here.discount * self.value(path)
    }

    /// Rescales a value to 0 at the least action value so far and 1 at the greatest. Returns the value unchanged for
    /// board games and until two values differ.
    fn scaled(&self, value: f32) -> f32 {
        let (least, greatest) = self.bounds;
        if self.settings.values == ValueRange::Board || least >= greatest {
            return value;
        }
        (value - least) / (greatest - least)
    }

    fn proven(&self, path: &[Action]) -> Proven {
        let Some(here) = self.tree.get(path) else { return Proven::Unknown };
        if self.settings.solver == Solver::Off {
            return Proven::Unknown;
        }
        if let Some(result) = here.toy.outcome() {
            return Proven::from_value(result);
        }
        let children: Vec<Proven> =
            here.toy.actions().into_iter().map(|action| self.proven_for_chooser(path, action)).collect();
        if children.contains(&Proven::Win) {
            Proven::Win
        } else if children.contains(&Proven::Unknown) {
            Proven::Unknown
        } else if children.contains(&Proven::Draw) {
            Proven::Draw
        } else {
            Proven::Loss
        }
    }

    /// Returns the proven result of an action for the player to move at `path`. Unknown unless players alternate and no
    /// reward is paid.
    fn proven_for_chooser(&self, path: &[Action], action: Action) -> Proven {
        let next = [path, &[action]].concat();
        match self.tree.get(&next) {
            Some(child) if child.reward == 0.0 && child.discount == -1.0 => self.proven(&next).reversed(),
            _ => Proven::Unknown,
        }
    }

    /// Returns the value of a visited position for the player to move: the proven result, else the mean, raised to 0 if
    /// a proven draw is available.
    fn value(&self, path: &[Action]) -> f32 {
        let here = &self.tree[path];
        let mean = here.value_sum as f32 / here.visits as f32;
        let draws = here.toy.actions().into_iter().any(|action| self.proven_for_chooser(path, action) == Proven::Draw);
        self.proven(path).value().unwrap_or(if draws && mean < 0.0 { 0.0 } else { mean })
    }

    pub(super) fn check(&self, tree: &Tree<Toy>) {
        assert_eq!(tree.arena.nodes.len(), self.tree.len());
        self.check_node(tree, NodeId::ROOT, &mut Vec::new());
    }

    fn check_node(&self, tree: &Tree<Toy>, id: NodeId, path: &mut Vec<Action>) {
        let (node, expected) = (tree.arena.node(id), &self.tree[path.as_slice()]);
        assert_eq!(tree.states[id.index()], expected.toy);
        assert_eq!((node.visits, node.value_sum), (expected.visits, expected.value_sum), "at {path:?}");
        assert_eq!(node.proven, self.proven(path), "at {path:?}");
        for edge in node.edges() {
            let child = tree.arena.edges.child(edge);
            if child != NodeId::NONE {
                path.push(tree.arena.edges.action(edge));
                self.check_node(tree, child, path);
                path.pop();
            }
        }
    }
}
