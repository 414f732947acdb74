use std::time::{Duration, Instant};

use game::{Action, Environments, Game, Spec};
use inference::{Batch, Error, LatentModel, LatentPredictions, Slot, Unroll};
use search::{Expansion, Request, Selection, Tree};

use crate::latent::step_discount;
use crate::leaf_batcher::Gathered;
use crate::round::Round;
use crate::tree_search::{State, TreeSearch, TreeSet};

/// Descends the trees of many searches and collects the requests to a learned model: in each round at most one batch of
/// observations and one of recurrent steps, and in a model with chance one of actions to afterstates.
///
/// A node of a tree is the slot `tree · nodes_per_tree + node` of the model's pool, so that a search overwrites the
/// states of the one before it.
pub(crate) struct LatentBatcher {
    trees: usize,
    nodes_per_tree: usize,
    /// Discount of every step in a tree.
    discount: f32,
    batch_max: usize,
    /// All actions of the game, ascending.
    actions: Vec<Action>,
    /// All chance codes of the model, as the actions of chance; none in a model without chance.
    codes: Vec<Action>,
    observations: Batch,
    observed: Vec<Observed>,
    observed_to: Vec<Slot>,
    steps: Vec<Unroll>,
    /// The actions to afterstates.
    acts: Vec<Unroll>,
    requests: Vec<Requested>,
    predictions: LatentPredictions,
    /// Predictions for afterstates.
    afterstates: LatentPredictions,
    /// The values of the last observations of truncated episodes, by owner, until taken.
    pub(crate) last_values: Vec<(usize, f32)>,
    legal: Vec<Action>,
    priors: Vec<f32>,
    /// The clock that measures the time spent on observing; without a clock it is not measured.
    pub(crate) clock: Option<fn() -> Instant>,
    observing: Duration,
}

/// A request of a tree.
struct Requested {
    /// The number of the tree.
    owner: usize,
    request: Request,
    answer: AnswerTo,
}

/// The prediction that answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerTo {
    /// The recurrent step of this index.
    Step(usize),
    /// The action of this index, which leads to an afterstate.
    Act(usize),
}

/// The state from which a search starts.
pub(crate) trait Root {
    /// Replaces `actions` with the legal actions in ascending order.
    fn legal_actions(&self, actions: &mut Vec<Action>);

    /// Writes the observation `[C, H, W]`.
    fn observe(&self, planes: &mut [f32]);
}

/// A position by the rules of a game.
impl<G: Game> Root for (&G, &G::Position) {
    fn legal_actions(&self, actions: &mut Vec<Action>) {
        self.0.legal_actions(self.1, actions);
    }

    fn observe(&self, planes: &mut [f32]) {
        self.0.observe(self.1, planes);
    }
}

/// One of many environments.
impl Root for (&dyn Environments, usize) {
    fn legal_actions(&self, actions: &mut Vec<Action>) {
        self.0.legal_actions(self.1, actions);
    }

    fn observe(&self, planes: &mut [f32]) {
        self.0.observe(self.1, planes);
    }
}

/// A stored observation `[C, H, W]` with `actions` actions, all legal.
pub(crate) struct StoredObservation<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) actions: usize,
}

impl Root for StoredObservation<'_> {
    fn legal_actions(&self, actions: &mut Vec<Action>) {
        actions.clear();
        actions.extend((0..self.actions).filter_map(|action| u16::try_from(action).ok()).map(Action));
    }

    fn observe(&self, planes: &mut [f32]) {
        planes.copy_from_slice(self.values);
    }
}

/// An observation of the batch.
struct Observed {
    owner: usize,
    purpose: Purpose,
}

/// The use of the answer to an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The observation is the root of a search.
    Root,
    /// The observation is the last of a truncated episode, and only the value is needed.
    Last,
}

impl LatentBatcher {
    /// Creates a batcher for `trees` searches of at most `simulations_max`. `discount` is γ for one step of the game.
    pub(crate) fn new(spec: &Spec, trees: usize, simulations_max: u32, discount: f32) -> Self {
        let mut batcher = Self {
            trees,
            nodes_per_tree: 0,
            discount: step_discount(spec.players, discount),
            batch_max: 0,
            actions: (0..spec.actions).map(|action| Action(action.try_into().expect("actions are 16-bit"))).collect(),
            codes: Vec::new(),
            observations: Batch::new(spec.observation),
            observed: Vec::new(),
            observed_to: Vec::new(),
            steps: Vec::new(),
            acts: Vec::new(),
            requests: Vec::new(),
            predictions: LatentPredictions::default(),
            afterstates: LatentPredictions::default(),
            last_values: Vec::new(),
            legal: Vec::new(),
            priors: Vec::new(),
            clock: None,
            observing: Duration::ZERO,
        };
        batcher.allow(simulations_max);
        batcher
    }

    /// Makes room for searches of `simulations_max`; returns true if that moved the slots, so that running searches
    /// must restart.
    pub(crate) fn allow(&mut self, simulations_max: u32) -> bool {
        let nodes = simulations_max as usize + 1;
        let grows = nodes > self.nodes_per_tree;
        self.nodes_per_tree = self.nodes_per_tree.max(nodes);
        grows
    }

    /// Prepares a round that `model` answers: the pool gets room for all trees.
    ///
    /// # Errors
    /// The model fails; [`Error::Backend`] if no pool is large enough.
    pub(crate) fn begin(&mut self, model: &mut dyn LatentModel) -> Result<(), Error> {
        let slots = self.trees.saturating_mul(self.nodes_per_tree);
        if u32::try_from(slots).is_err() {
            return Err(Error::Backend(format!("searches with {slots} latent states do not fit in a pool")));
        }
        self.batch_max = model.attributes().max_batch;
        if model.codes() != self.codes.len() {
            let code = |code: usize| u16::try_from(code).map(Action);
            let codes = (0..model.codes()).map(code).collect::<Result<_, _>>();
            self.codes = codes.map_err(|_| Error::Backend(format!("{} chance codes are not 16-bit", model.codes())))?;
        }
        model.reserve(slots)
    }

    /// Advances a search of `root`, which is not over: requests the root of the tree, starts the search with `begin`,
    /// and descends until `leaves` wait or the search is finished.
    pub(crate) fn gather(
        &mut self,
        root: &impl Root,
        search: &mut TreeSearch<Slot>,
        leaves: usize,
        begin: impl FnOnce(&mut Tree<Slot>),
    ) -> Gathered {
        if search.state == State::Unrooted {
            root.legal_actions(&mut self.legal);
            let is_full = !self.observe(search.owner, root, Purpose::Root);
            if !is_full {
                search.state = State::AwaitingRoot;
            }
            return Gathered { waiting: usize::from(!is_full), is_full, ..Gathered::default() };
        }
        if search.state == State::Rooted {
            begin(&mut search.tree);
            search.state = State::Searching;
        }
        let mut gathered = Gathered::default();
        if search.state == State::Searching {
            self.descend(search, leaves, &mut gathered);
        }
        gathered
    }

    /// Requests the value of the last position of a truncated episode; returns false if the batch is full.
    pub(crate) fn gather_last(&mut self, owner: usize, last: &impl Root) -> bool {
        // No action is legal in it, but priors, which are not used here, need at least one.
        self.legal.clone_from(&self.actions);
        self.observe(owner, last, Purpose::Last)
    }

    /// Adds an observation with the legal actions in `self.legal`; returns false if the batch is full.
    fn observe(&mut self, owner: usize, root: &impl Root, purpose: Purpose) -> bool {
        if self.observations.len() >= self.batch_max {
            return false;
        }
        let start = self.clock.map(|clock| clock());
        self.observations.push(&self.legal, |planes| root.observe(planes));
        if let Some((clock, start)) = self.clock.zip(start) {
            self.observing += clock().saturating_duration_since(start);
        }
        self.observed.push(Observed { owner, purpose });
        self.observed_to.push(self.slot(owner, 0));
        true
    }

    fn descend(&mut self, search: &mut TreeSearch<Slot>, leaves: usize, gathered: &mut Gathered) {
        let TreeSearch { tree, owner, .. } = search;
        while gathered.waiting < leaves {
            let request = match tree.select() {
                Selection::Busy => break,
                Selection::Completed => unreachable!("a learned model has no terminal state"),
                Selection::Leaf(request) => request,
            };
            let is_act = request.outcome.is_none() && !self.codes.is_empty();
            let batch = if is_act { self.acts.len() } else { self.steps.len() };
            if batch >= self.batch_max {
                tree.cancel(request);
                gathered.is_full = true;
                break;
            }
            // Requests are answered in this order, so the answer becomes this node.
            let to = self.slot(*owner, tree.node_count() + gathered.waiting);
            let action = request.outcome.unwrap_or(request.action);
            let step = Unroll { from: *tree.parent_state(&request), action, to };
            let answer = if is_act { AnswerTo::Act(batch) } else { AnswerTo::Step(batch) };
            if is_act { &mut self.acts } else { &mut self.steps }.push(step);
            self.requests.push(Requested { owner: *owner, request, answer });
            gathered.waiting += 1;
        }
        gathered.is_finished = tree.is_finished();
    }

    fn slot(&self, tree: usize, node: usize) -> Slot {
        assert!(node < self.nodes_per_tree, "a search has a node for each simulation and its root");
        Slot(u32::try_from(tree * self.nodes_per_tree + node).expect("the slots were counted before the round"))
    }

    /// Evaluates the gathered requests, answers every search and adds the counts to `round`.
    ///
    /// After an error nothing is in flight: roots and steps without an answer are cancelled.
    pub(crate) fn resolve(
        &mut self,
        model: &mut dyn LatentModel,
        trees: &mut impl TreeSet<Slot>,
        round: &mut Round,
    ) -> Result<(), Error> {
        round.batch = self.observed.len() + self.acts.len() + self.steps.len();
        round.observing += std::mem::take(&mut self.observing);
        let roots = self.resolve_observations(model, trees, round);
        let resolved = roots.and_then(|()| self.resolve_steps(model, trees, round));
        self.cancel(trees);
        resolved
    }

    fn resolve_observations(
        &mut self,
        model: &mut dyn LatentModel,
        trees: &mut impl TreeSet<Slot>,
        round: &mut Round,
    ) -> Result<(), Error> {
        if self.observed.is_empty() {
            return Ok(());
        }
        model.initial(&self.observations, &self.observed_to, &mut self.predictions)?;
        let Self { observations, observed, observed_to, predictions, priors, last_values, .. } = self;
        assert_eq!(predictions.len(), observed.len(), "a model answers every observation of its batch");
        (round.batches, round.evaluated) = (round.batches + 1, round.evaluated + observed.len());
        for (i, Observed { owner, purpose }) in observed.drain(..).enumerate() {
            let value = predictions.value(i);
            if purpose == Purpose::Last {
                last_values.push((owner, value));
                continue;
            }
            let actions = observations.legal(i);
            priors.clear();
            priors.extend(actions.iter().map(|action| predictions.priors(i)[action.index()]));
            trees.search(owner).root(observed_to[i], Expansion::Evaluated { actions, priors, value });
        }
        Ok(())
    }

    fn resolve_steps(
        &mut self,
        model: &mut dyn LatentModel,
        trees: &mut impl TreeSet<Slot>,
        round: &mut Round,
    ) -> Result<(), Error> {
        let Self { steps, acts, requests, predictions, afterstates, actions, codes, discount, .. } = self;
        // Both calls come before the first answer: after an error, no tree has a part of the answers.
        if !acts.is_empty() {
            model.act(acts, afterstates)?;
            assert_eq!(afterstates.len(), acts.len(), "a model answers every action of its batch");
            (round.batches, round.evaluated) = (round.batches + 1, round.evaluated + acts.len());
        }
        if !steps.is_empty() {
            model.recurrent(steps, predictions)?;
            assert_eq!(predictions.len(), steps.len(), "a model answers every step of its batch");
            (round.batches, round.evaluated) = (round.batches + 1, round.evaluated + steps.len());
        }
        round.simulations += requests.len();
        for Requested { owner, request, answer } in requests.drain(..) {
            let tree = &mut trees.search(owner).tree;
            match answer {
                AnswerTo::Step(i) => {
                    let expansion =
                        Expansion::Evaluated { actions, priors: predictions.priors(i), value: predictions.value(i) };
                    tree.answer(request, steps[i].to, predictions.reward(i), *discount, expansion);
                }
                AnswerTo::Act(i) => {
                    // The view of the same player: the reward and the discount of the step follow with the code.
                    let (probabilities, value) = (afterstates.priors(i), afterstates.value(i));
                    let expansion = Expansion::Chance { outcomes: codes, probabilities, value };
                    tree.answer(request, acts[i].to, 0.0, 1.0, expansion);
                }
            }
        }
        Ok(())
    }

    /// Cancels every request without an answer, and empties the batches.
    pub(crate) fn cancel(&mut self, trees: &mut impl TreeSet<Slot>) {
        for Observed { owner, purpose } in self.observed.drain(..) {
            if purpose == Purpose::Root {
                trees.search(owner).restart();
            }
        }
        for Requested { owner, request, .. } in self.requests.drain(..) {
            trees.search(owner).tree.cancel(request);
        }
        self.observations.clear();
        self.observed_to.clear();
        self.steps.clear();
        self.acts.clear();
    }
}
