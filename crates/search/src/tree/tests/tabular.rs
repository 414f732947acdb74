//! Tabular models, and golden results of mctx searches in these models.
//!
//! `tests/python/mctx_golden.py` generates and documents the golden file.

use super::*;

const GOLDEN: &str = include_str!("../../../tests/mctx_golden.txt");

/// A state of a tabular model.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) logits: Vec<f64>,
    pub(super) value: f64,
    pub(super) rewards: Vec<f64>,
    pub(super) next: Vec<usize>,
}

impl State {
    pub(super) fn expand<R>(&self, valid: &[f64], then: impl FnOnce(Expansion<'_>) -> R) -> R {
        let actions: Vec<Action> = (0..).map(Action).zip(valid).filter(|(_, v)| **v > 0.0).map(|(a, _)| a).collect();
        let total: f64 = actions.iter().map(|action| self.logits[action.index()].exp()).sum();
        let prior = |action: &Action| (self.logits[action.index()].exp() / total) as f32;
        let priors: Vec<f32> = actions.iter().map(prior).collect();
        then(Expansion::Evaluated { actions: &actions, priors: &priors, value: self.value as f32 })
    }
}

/// A golden search by mctx. Lists have one number for each action.
#[derive(Debug, Default)]
pub(super) struct Golden {
    pub(super) simulations: u32,
    pub(super) discount: f64,
    pub(super) root: usize,
    pub(super) valid: Vec<f64>,
    pub(super) gumbel: Vec<f64>,
    pub(super) visits: Vec<f64>,
    pub(super) values: Vec<f64>,
    pub(super) weights: Vec<f64>,
    pub(super) chosen: usize,
    pub(super) root_value: f64,
}

/// Calls `check` with every golden search and the model of the search. Returns the number of searches.
pub(super) fn each_search(mut check: impl FnMut(&[State], &Golden)) -> usize {
    let (mut model, mut golden, mut searches) = (Vec::new(), Golden::default(), 0);
    for line in GOLDEN.lines() {
        let (word, rest) = line.split_once(' ').unwrap();
        let numbers: Vec<f64> = rest.split(' ').map(|number| number.parse().unwrap()).collect();
        match word {
            "model" => model.clear(),
            "state" => {
                let actions = (numbers.len() - 1) / 3;
                let (logits, rest) = numbers.split_at(actions);
                let (rewards, next) = rest[1..].split_at(actions);
                let next = next.iter().map(|&state| state as usize).collect();
                model.push(State { logits: logits.into(), value: rest[0], rewards: rewards.into(), next });
            }
            "search" => {
                let [simulations, discount, root] = numbers[..] else { panic!("{line}") };
                golden = Golden { simulations: simulations as u32, discount, root: root as usize, ..golden };
            }
            "valid" => golden.valid = numbers,
            "gumbel" => golden.gumbel = numbers,
            "visits" => golden.visits = numbers,
            "values" => golden.values = numbers,
            "weights" => golden.weights = numbers,
            "result" => {
                (golden.chosen, golden.root_value) = (numbers[0] as usize, numbers[1]);
                check(&model, &golden);
                searches += 1;
            }
            _ => panic!("{line}"),
        }
    }
    searches
}

/// Searches a tabular model sequentially. Under Gumbel, uses the noise of the golden search.
pub(super) fn searched(model: &[State], golden: &Golden, settings: &Settings) -> Tree<usize> {
    let mut tree = Tree::new(settings.clone());
    model[golden.root].expand(&golden.valid, |expansion| tree.reset(golden.root, expansion));
    tree.begin(golden.simulations, Exploration::Greedy, &mut Silent);
    if tree.sigma().is_some() {
        tree.gumbel = tree.root_actions.iter().map(|action| golden.gumbel[action.index()] as f32).collect();
        tree.begin_halving();
    }
    let all = vec![1.0; golden.valid.len()];
    run_with(&mut tree, 1, |tree, request| {
        let from = &model[*tree.parent_state(&request)];
        let (to, reward) = (from.next[request.action.index()], from.rewards[request.action.index()] as f32);
        model[to].expand(&all, |expansion| tree.answer(request, to, reward, golden.discount as f32, expansion));
    });
    tree
}
