use std::time::{Duration, Instant};

use game::{Action, Environments, Game, Spec};
use inference::{Batch, Error, LatentModel, LatentPredictions, Slot, Unroll};
use search::{Expansion, Request, Selection, Tree};

use crate::driver::{Driver, SearchRoot};
use crate::latent::step_discount;
use crate::leaf_batcher::{Gathered, Limits};
use crate::round::Round;
use crate::tree_search::{State, TreeSearch, TreeSet, every_action};

/// Descends the trees of many searches and collects the requests to a learned model. Each round has at most one
/// observation batch and one recurrent step batch. Models with chance also get a batch of actions to afterstates.
///
/// The latent state of a node is in the slot `tree · nodes_per_tree + node` of the model pool, so a new search
/// overwrites the states of the previous search in the same tree.
pub(crate) struct LatentBatcher {
    trees: usize,
    nodes_per_tree: usize,
    /// Factor that converts a value after a step to the view of the player who took the step, including γ.
    discount: f32,
    batch_max: usize,
    /// All actions of the game, in ascending order.
    actions: Vec<Action>,
    /// All chance codes of the model, as chance outcomes; empty for a model without chance.
    codes: Vec<Action>,
    observations: Batch,
    observed: Vec<Observed>,
    observed_to: Vec<Slot>,
    steps: Vec<Unroll>,
    /// The batch of actions to afterstates.
    acts: Vec<Unroll>,
    requests: Vec<Requested>,
    predictions: LatentPredictions,
    /// Predictions for afterstates.
    afterstates: LatentPredictions,
    /// Pairs of the owner and the value of the last observation, one for each truncated episode, until the caller takes
    /// the pairs.
    pub(crate) last_values: Vec<(usize, f32)>,
    legal: Vec<Action>,
    priors: Vec<f32>,
    /// The clock for measuring `observing`; `None` disables the measurement.
    pub(crate) clock: Option<fn() -> Instant>,
    observing: Duration,
}

/// A request of a tree.
struct Requested {
    /// The number of the tree that made the request.
    owner: usize,
    request: Request,
    answer: AnswerTo,
}

/// The prediction that answers a request, by index in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerTo {
    /// The recurrent step at this index.
    Step(usize),
    /// The action to an afterstate at this index.
    Act(usize),
}

/// A state from which a search can start.
pub(crate) trait Root {
    /// Replaces `actions` with the legal actions in ascending order.
    fn legal_actions(&self, actions: &mut Vec<Action>);

    /// Writes the observation `[C, H, W]` into `planes`.
    fn observe(&self, planes: &mut [f32]);
}

/// A position by the rules of a game, or a stored observation.
impl<G: Game> Root for (&G, &SearchRoot<G>) {
    fn legal_actions(&self, actions: &mut Vec<Action>) {
        match self.1 {
            SearchRoot::Position(position) => self.0.legal_actions(position, actions),
            SearchRoot::Observation(_) => {
                actions.clear();
                actions.extend(every_action(self.0.spec()));
            }
        }
    }

    fn observe(&self, planes: &mut [f32]) {
        match self.1 {
            SearchRoot::Position(position) => self.0.observe(position, planes),
            SearchRoot::Observation(values) => planes.copy_from_slice(values),
        }
    }
}

/// An environment, by index.
impl Root for (&dyn Environments, usize) {
    fn legal_actions(&self, actions: &mut Vec<Action>) {
        self.0.legal_actions(self.1, actions);
    }

    fn observe(&self, planes: &mut [f32]) {
        self.0.observe(self.1, planes);
    }
}

/// An observation of the batch.
struct Observed {
    owner: usize,
    purpose: Purpose,
}

/// The use of the prediction for an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The observation is the root of a search.
    Root,
    /// The observation is the last of a truncated episode. Only the value is used.
    Last,
}

impl LatentBatcher {
    /// Creates a batcher for `trees` searches of at most `simulations_max` simulations each. `discount` is γ for one
    /// step of the game.
    pub(crate) fn new(spec: &Spec, trees: usize, simulations_max: u32, discount: f32) -> Self {
        let mut batcher = Self {
            trees,
            nodes_per_tree: 0,
            discount: step_discount(spec.players, discount),
            batch_max: 0,
            actions: every_action(spec).collect(),
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

    /// Raises the maximum number of simulations of a search to `simulations_max`, if lower. Returns true if the slots
    /// of the latent states moved; all running searches must then restart.
    pub(crate) fn allow(&mut self, simulations_max: u32) -> bool {
        let nodes = simulations_max as usize + 1;
        let grows = nodes > self.nodes_per_tree;
        self.nodes_per_tree = self.nodes_per_tree.max(nodes);
        grows
    }

    /// Prepares a round with `model`: reserves pool slots for all trees and reads the batch limit and chance codes.
    ///
    /// # Errors
    /// The model fails, or [`Error::Backend`] if slot numbers exceed 32 bits or chance codes exceed 16 bits.
    pub(crate) fn begin(&mut self, model: &mut dyn LatentModel) -> Result<(), Error> {
        let slots = self.trees.saturating_mul(self.nodes_per_tree);
        if u32::try_from(slots).is_err() {
            return Err(Error::Backend(format!("{slots} latent states do not fit in a pool with 32-bit slot numbers")));
        }
        self.batch_max = model.attributes().max_batch;
        if model.codes() != self.codes.len() {
            let code = |code: usize| u16::try_from(code).map(Action);
            let codes = (0..model.codes()).map(code).collect::<Result<_, _>>();
            self.codes = codes.map_err(|_| Error::Backend(format!("{} chance codes exceed 16 bits", model.codes())))?;
        }
        model.reserve(slots)
    }

    /// Advances a search of `root`: requests the prediction for the root, starts the search with `begin`, and descends
    /// until `leaves` requests wait, the batch is full or the search is finished. The episode must not be over at
    /// `root`.
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
        let mut gathered = Gathered::default();
        if search.start(begin) {
            self.descend(search, leaves, &mut gathered);
        }
        gathered
    }

    /// Requests the value of the last observation of a truncated episode. Returns false if the batch is full.
    pub(crate) fn gather_last(&mut self, owner: usize, last: &impl Root) -> bool {
        // No action is legal here and the priors are not used, but a prediction requires at least one action.
        self.legal.clone_from(&self.actions);
        self.observe(owner, last, Purpose::Last)
    }

    /// Adds an observation with the legal actions in `self.legal` to the batch. Returns false if the batch is full.
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
            // Requests are answered in this order, so the response becomes this node.
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
        assert!(node < self.nodes_per_tree, "a search has at most one node per simulation plus the root");
        Slot(u32::try_from(tree * self.nodes_per_tree + node).expect("the slots were counted before the round"))
    }

    /// Evaluates the gathered requests, answers every search and adds the counters to `round`.
    ///
    /// On an error, all unanswered roots and steps are cancelled, so nothing is in flight.
    pub(crate) fn resolve(
        &mut self,
        model: &mut dyn LatentModel,
        trees: &mut impl TreeSet<Slot>,
        round: &mut Round,
    ) -> Result<(), Error> {
        round.batch = self.observed.len() + self.acts.len() + self.steps.len();
        round.observing += std::mem::take(&mut self.observing);
        model.start(&self.observations, &self.observed_to, &self.acts, &self.steps);
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
        assert_eq!(predictions.len(), observed.len(), "a model returns a prediction for every observation");
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
        // Both calls precede the first response, so that no tree has partial responses after an error.
        if !acts.is_empty() {
            model.act(acts, afterstates)?;
            assert_eq!(afterstates.len(), acts.len(), "a model returns a prediction for every action");
            (round.batches, round.evaluated) = (round.batches + 1, round.evaluated + acts.len());
        }
        if !steps.is_empty() {
            model.recurrent(steps, predictions)?;
            assert_eq!(predictions.len(), steps.len(), "a model returns a prediction for every step");
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
                    // An afterstate is valued for the same player. The reward and discount belong to the step of the
                    // chance code.
                    let (probabilities, value) = (afterstates.priors(i), afterstates.value(i));
                    let expansion = Expansion::Chance { outcomes: codes, probabilities, value };
                    tree.answer(request, acts[i].to, 0.0, 1.0, expansion);
                }
            }
        }
        Ok(())
    }

    /// Cancels every unanswered request and empties the batches.
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

/// Search in a learned model, from positions of a game or from stored observations. The batcher has
/// [begun](LatentBatcher::begin) with the model.
pub(crate) struct InModel<'a, G> {
    pub(crate) game: &'a G,
    pub(crate) batcher: &'a mut LatentBatcher,
    pub(crate) model: &'a mut dyn LatentModel,
}

impl<G: Game> Driver<G> for InModel<'_, G> {
    type State = Slot;

    /// Returns false: a batch full of observations still has capacity for recurrent steps.
    fn is_full(&self) -> bool {
        false
    }

    fn gather(
        &mut self,
        root: &SearchRoot<G>,
        search: &mut TreeSearch<Slot>,
        limits: Limits,
        begin: impl FnOnce(&mut Tree<Slot>),
    ) -> Gathered {
        self.batcher.gather(&(self.game, root), search, limits.leaves, begin)
    }

    fn gather_last(&mut self, owner: usize, last: &SearchRoot<G>) -> bool {
        self.batcher.gather_last(owner, &(self.game, last))
    }

    fn resolve(&mut self, trees: &mut impl TreeSet<Slot>, round: &mut Round) -> Result<(), Error> {
        self.batcher.resolve(self.model, trees, round)
    }

    fn last_values(&mut self) -> &mut Vec<(usize, f32)> {
        &mut self.batcher.last_values
    }
}
