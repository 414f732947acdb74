//! Descends trees to leaves, completes terminal and cached positions immediately, and collects the rest in one batch.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;
use std::time::{Duration, Instant};

use game::{Action, Chance, Game, Scoring};
use inference::{Attributes, Batch, Error, Evaluator, PositionHasher, Predictions, WeightsCache};
use search::{Expansion, Request, Selection, Tree};

use crate::images::Images;
use crate::settings::SymmetryReuse;
use crate::tree_search::{Next, State, Step, TreeSearch, TreeSet, every_action};

/// The game, the cache and the evaluator attributes, shared by all descents of a batch.
pub(crate) struct BatchContext<'a, G: Game> {
    pub(crate) game: &'a G,
    /// The discount γ for each step of the game.
    pub(crate) discount: f32,
    pub(crate) cache: Option<WeightsCache<'a>>,
    pub(crate) symmetry_reuse: SymmetryReuse,
    pub(crate) leaves: LeafAttributes,
}

// Deriving would require `G: Copy`.
impl<G: Game> Clone for BatchContext<'_, G> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<G: Game> Copy for BatchContext<'_, G> {}

impl<'a, G: Game> BatchContext<'a, G> {
    /// Creates a context without a cache, in which symmetric positions are evaluated separately.
    pub(crate) fn new(game: &'a G, discount: f32, leaves: &dyn LeafEvaluator<G>) -> Self {
        Self { game, discount, cache: None, symmetry_reuse: SymmetryReuse::Apart, leaves: leaves.attributes() }
    }

    /// Sets the cache and `symmetry_reuse`, which reduce the number of evaluated positions. Cache entries are win, draw
    /// and loss probabilities, so the cache is ignored in games scored by rewards.
    pub(crate) fn sharing(self, cache: Option<WeightsCache<'a>>, symmetry_reuse: SymmetryReuse) -> Self {
        let is_cached = self.game.spec().scoring == Scoring::Outcome;
        Self { cache: cache.filter(|_| is_cached), symmetry_reuse, ..self }
    }
}

/// Collects the leaves of many searches in one batch, and distributes the predictions.
pub(crate) struct LeafBatcher<G: Game> {
    waiting: Vec<Waiting<G::Position>>,
    /// The distinct positions of the batch, in batch order.
    leaves: Vec<Leaf>,
    /// Legal actions of all leaves, concatenated.
    legal: Vec<Action>,
    /// The index in `leaves` by position hash.
    known: HashMap<u64, usize, BuildHasherDefault<PositionHasher>>,
    /// The legal actions of the current position.
    scratch: Vec<Action>,
    chances: Chances,
    cached: Predictions,
    images: Images,
    /// Pairs of the owner and the value of the last position, one for each truncated episode, until the caller takes
    /// the pairs.
    pub(crate) last_values: Vec<(usize, f32)>,
    pub(crate) cache_lookups: usize,
    pub(crate) cache_hits: usize,
    /// The clock for measuring `observing`; `None` disables the measurement.
    pub(crate) clock: Option<fn() -> Instant>,
    pub(crate) observing: Duration,
}

/// The chance outcomes after an action, with probabilities.
#[derive(Debug, Default)]
struct Chances {
    chances: Vec<Chance>,
    outcomes: Vec<Action>,
    probabilities: Vec<f32>,
}

impl Chances {
    /// Adds a chance node if the action of a request has several outcomes, and returns the request for the first
    /// outcome. Otherwise returns the request unchanged. The state of a chance node is the position before the action.
    fn branch<G: Game>(&mut self, game: &G, tree: &mut Tree<G::Position>, request: Request) -> Request {
        if request.outcome.is_some() {
            return request;
        }
        let position = tree.parent_state(&request);
        game.chances(position, request.action, &mut self.chances);
        if self.chances.is_empty() {
            return request;
        }
        let position = position.clone();
        self.outcomes.clear();
        self.outcomes.extend(self.chances.iter().map(|chance| Action(chance.outcome)));
        self.probabilities.clear();
        self.probabilities.extend(self.chances.iter().map(|chance| chance.probability));
        tree.branch(request, position, &self.outcomes, &self.probabilities)
    }
}

struct Waiting<P> {
    owner: usize,
    place: Place,
    position: P,
    leaf: usize,
    /// The symmetry that maps the position to the evaluated image.
    symmetry: usize,
}

enum Place {
    Root,
    Child {
        request: Request,
        reward: f32,
        discount: f32,
        /// True if a step limit truncates the episode at this position: only the predicted value is used.
        is_truncated: bool,
    },
    /// The last position of a truncated episode, which belongs to no tree.
    Last,
}

struct Leaf {
    hash: u64,
    legal: Range<usize>,
}

/// The source of the prediction for a position.
enum Source {
    /// The prediction is in `cached`, for the image under `symmetry` with the legal actions in `scratch`.
    Cache { symmetry: usize },
    /// The prediction for a leaf of the batch: the image of the position under `symmetry`.
    Leaf { leaf: usize, symmetry: usize },
    /// The batch is full.
    NoRoom,
}

/// The limits of one call of [`LeafBatcher::gather`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Maximum number of leaves to add to the batch.
    pub(crate) leaves: usize,
    /// Maximum number of simulations that may complete without an evaluation, because the position is terminal or in
    /// the cache.
    pub(crate) completed: usize,
}

/// The result of one call of [`LeafBatcher::gather`].
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Gathered {
    /// Number of leaves added to the batch; 1 if the root was added.
    pub(crate) waiting: usize,
    /// Number of simulations that completed without an evaluation.
    pub(crate) completed: usize,
    /// True if the batch had no room for another leaf.
    pub(crate) is_full: bool,
    /// True if the search is finished.
    pub(crate) is_finished: bool,
}

impl Gathered {
    /// Returns true if the search waits for a batch: the current batch, or a later batch because the current batch is
    /// full.
    pub(crate) fn goes_on(&self) -> bool {
        self.waiting > 0 || self.is_full
    }
}

impl<G: Game> LeafBatcher<G> {
    pub(crate) fn new(game: &G) -> Self {
        Self {
            waiting: Vec::new(),
            leaves: Vec::new(),
            legal: Vec::new(),
            known: HashMap::default(),
            scratch: Vec::new(),
            chances: Chances::default(),
            cached: Predictions::new(),
            images: Images::new(game),
            last_values: Vec::new(),
            cache_lookups: 0,
            cache_hits: 0,
            clock: None,
            observing: Duration::ZERO,
        }
    }

    /// Returns the number of positions in the batch.
    pub(crate) fn batch(&self) -> usize {
        self.leaves.len()
    }

    /// Advances a search of `position`: evaluates the root, starts the search with `begin`, and descends until a limit
    /// is reached, no leaf can be selected, the batch is full or the search is finished. The game must not be over.
    pub(crate) fn gather(
        &mut self,
        context: &BatchContext<'_, G>,
        search: &mut TreeSearch<G::Position>,
        position: &G::Position,
        limits: Limits,
        begin: impl FnOnce(&mut Tree<G::Position>),
    ) -> Gathered {
        let mut gathered = Gathered::default();
        if search.state == State::Unrooted {
            match self.source(context, position) {
                Source::Cache { symmetry } => {
                    let expansion = self.images.expansion(symmetry, &self.scratch, &self.cached, 0);
                    search.root(position.clone(), expansion);
                }
                Source::Leaf { leaf, symmetry } => {
                    let (owner, position) = (search.owner, position.clone());
                    self.waiting.push(Waiting { owner, place: Place::Root, position, leaf, symmetry });
                    search.state = State::AwaitingRoot;
                    gathered.waiting = 1;
                }
                Source::NoRoom => gathered.is_full = true,
            }
        }
        if search.start(begin) {
            self.descend(context, search, limits, &mut gathered);
        }
        gathered
    }

    /// Descends until a limit is reached, no leaf can be selected, the batch is full or the search is finished.
    fn descend(
        &mut self,
        context: &BatchContext<'_, G>,
        search: &mut TreeSearch<G::Position>,
        limits: Limits,
        gathered: &mut Gathered,
    ) {
        let TreeSearch { tree, owner, .. } = search;
        while gathered.waiting < limits.leaves && gathered.completed < limits.completed {
            let request = match tree.select() {
                Selection::Busy => break,
                Selection::Completed => {
                    gathered.completed += 1;
                    continue;
                }
                Selection::Leaf(request) => request,
            };
            let request = match context.game.knows_chances() {
                true => self.chances.branch(context.game, tree, request),
                false => request,
            };
            let mut position = tree.parent_state(&request).clone();
            let Step { reward, discount, next } = match request.outcome {
                None => Step::play(context.game, &mut position, request.action),
                Some(outcome) => Step::play_chance(context.game, &mut position, request.action, outcome.0),
            };
            let discount = discount * context.discount;
            let source = match next {
                Next::Action => self.source(context, &position),
                Next::Truncated => self.source_of_ended(context, &position),
                Next::Terminal { value } => {
                    tree.answer(request, position, reward, discount, Expansion::Terminal { value });
                    gathered.completed += 1;
                    continue;
                }
            };
            match source {
                Source::Cache { symmetry } => {
                    let expansion = self.images.expansion(symmetry, &self.scratch, &self.cached, 0);
                    tree.answer(request, position, reward, discount, expansion);
                    gathered.completed += 1;
                }
                Source::Leaf { leaf, symmetry } => {
                    let is_truncated = next == Next::Truncated;
                    let place = Place::Child { request, reward, discount, is_truncated };
                    self.waiting.push(Waiting { owner: *owner, place, position, leaf, symmetry });
                    gathered.waiting += 1;
                }
                Source::NoRoom => {
                    tree.cancel(request);
                    gathered.is_full = true;
                    break;
                }
            }
        }
        gathered.is_finished = tree.is_finished();
    }

    /// Looks up a position in the cache and the batch, and adds the position to the batch if not found. The game must
    /// not be over at the position.
    fn source(&mut self, context: &BatchContext<'_, G>, position: &G::Position) -> Source {
        let (hash, image) = match context.symmetry_reuse {
            SymmetryReuse::Share => Images::smallest(context.game, position),
            SymmetryReuse::Apart => (context.game.hash(position), None),
        };
        let (symmetry, position) = image.as_ref().map_or((0, position), |(symmetry, image)| (*symmetry, image));
        context.game.legal_actions(position, &mut self.scratch);
        if let Some(cache) = context.cache {
            self.cached.clear();
            self.cache_lookups += 1;
            if cache.get(hash, self.scratch.len(), &mut self.cached) {
                self.cache_hits += 1;
                return Source::Cache { symmetry };
            }
        }
        if context.leaves.is_deterministic
            && let Some(&leaf) = self.known.get(&hash)
        {
            // Different positions with equal hashes are improbable but possible.
            if self.legal[self.leaves[leaf].legal.clone()] == self.scratch[..] {
                return Source::Leaf { leaf, symmetry };
            }
        }
        if self.leaves.len() >= context.leaves.batch_max {
            return Source::NoRoom;
        }
        let leaf = self.leaves.len();
        let start = self.legal.len();
        self.legal.extend_from_slice(&self.scratch);
        self.leaves.push(Leaf { hash, legal: start..self.legal.len() });
        if context.leaves.is_deterministic {
            self.known.insert(hash, leaf);
        }
        Source::Leaf { leaf, symmetry }
    }

    /// Adds a position without legal actions to the batch, to evaluate only the value.
    fn source_of_ended(&mut self, context: &BatchContext<'_, G>, position: &G::Position) -> Source {
        if self.leaves.len() >= context.leaves.batch_max {
            return Source::NoRoom;
        }
        // The priors are not used, but an evaluation requires at least one action.
        let start = self.legal.len();
        self.legal.extend(every_action(context.game.spec()));
        self.leaves.push(Leaf { hash: context.game.hash(position), legal: start..self.legal.len() });
        Source::Leaf { leaf: self.leaves.len() - 1, symmetry: 0 }
    }

    /// Requests the value of the last position of a truncated episode. Returns false if the batch is full.
    pub(crate) fn gather_last(&mut self, context: &BatchContext<'_, G>, owner: usize, position: &G::Position) -> bool {
        let Source::Leaf { leaf, symmetry } = self.source_of_ended(context, position) else { return false };
        self.waiting.push(Waiting { owner, place: Place::Last, position: position.clone(), leaf, symmetry });
        true
    }

    /// Pushes the observations of all leaves in the batch to `leaves`, in one pass so that one measurement covers all
    /// observations.
    pub(crate) fn observe(&mut self, context: &BatchContext<'_, G>, leaves: &mut dyn LeafEvaluator<G>) {
        let start = self.clock.map(|clock| clock());
        let mut next = 0;
        for Waiting { position, leaf, symmetry, .. } in &self.waiting {
            // For each leaf, only the first waiting entry pushes the observation.
            if *leaf == next {
                let legal = &self.legal[self.leaves[next].legal.clone()];
                match symmetry {
                    0 => leaves.push(context.game, position, legal),
                    _ => leaves.push(context.game, &context.game.image(position, *symmetry), legal),
                }
                next += 1;
            }
        }
        if let Some((clock, start)) = self.clock.zip(start) {
            self.observing += clock().saturating_duration_since(start);
        }
    }

    /// Evaluates the batch and answers all waiting requests. Returns the number of simulations completed by the batch.
    ///
    /// On an error, all waiting leaves are cancelled, so nothing is in flight. Simulations completed without the batch
    /// are kept.
    pub(crate) fn resolve(
        &mut self,
        context: &BatchContext<'_, G>,
        leaves: &mut dyn LeafEvaluator<G>,
        trees: &mut impl TreeSet<G::Position>,
    ) -> Result<usize, Error> {
        if self.leaves.is_empty() {
            return Ok(0);
        }
        self.observe(context, leaves);
        match leaves.evaluate() {
            Ok(predictions) => Ok(self.answer(context, predictions, trees)),
            Err(error) => {
                self.cancel(trees);
                Err(error)
            }
        }
    }

    /// Answers all waiting requests with the predictions of the batch. Returns the number of completed simulations.
    pub(crate) fn answer(
        &mut self,
        context: &BatchContext<'_, G>,
        predictions: &Predictions,
        trees: &mut impl TreeSet<G::Position>,
    ) -> usize {
        assert_eq!(predictions.len(), self.leaves.len(), "an evaluator returns a prediction for every position");
        if let Some(cache) = context.cache {
            for (i, (leaf, &wdl)) in self.leaves.iter().zip(predictions.wdl()).enumerate() {
                cache.insert(leaf.hash, predictions.priors(i), wdl);
            }
        }
        let mut simulations = 0;
        for Waiting { owner, place, position, leaf, symmetry } in self.waiting.drain(..) {
            let legal = &self.legal[self.leaves[leaf].legal.clone()];
            let expansion = self.images.expansion(symmetry, legal, predictions, leaf);
            let search = trees.search(owner);
            match place {
                Place::Root => search.root(position, expansion),
                Place::Child { request, reward, discount, is_truncated } => {
                    let expansion = match is_truncated {
                        true => Expansion::Terminal { value: predictions.value(leaf) },
                        false => expansion,
                    };
                    search.tree.answer(request, position, reward, discount, expansion);
                    simulations += 1;
                }
                Place::Last => self.last_values.push((owner, predictions.value(leaf))),
            }
        }
        self.clear();
        simulations
    }

    /// Cancels all waiting requests.
    pub(crate) fn cancel(&mut self, trees: &mut impl TreeSet<G::Position>) {
        for Waiting { owner, place, .. } in self.waiting.drain(..) {
            let search = trees.search(owner);
            match place {
                Place::Root => search.restart(),
                Place::Child { request, .. } => search.tree.cancel(request),
                Place::Last => {}
            }
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.leaves.clear();
        self.legal.clear();
        self.known.clear();
    }
}

/// An evaluator of positions for the leaf batcher. Positions are pushed one by one and evaluated as one batch.
pub(crate) trait LeafEvaluator<G: Game> {
    /// Returns the batch limit, the weights version and whether predictions are deterministic.
    fn attributes(&self) -> LeafAttributes;

    /// Adds a position with the legal actions. Positions where the episode was truncated are added with every action.
    fn push(&mut self, game: &G, position: &G::Position, legal: &[Action]);

    /// Returns predictions for all positions pushed since the last call, in order.
    ///
    /// # Errors
    /// The underlying evaluator fails. The pushed positions are dropped.
    fn evaluate(&mut self) -> Result<&Predictions, Error>;
}

/// The properties of a [`LeafEvaluator`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeafAttributes {
    /// Maximum number of positions in one batch.
    pub(crate) batch_max: usize,
    /// Weights version of the predictions.
    pub(crate) weights_version: u64,
    /// True if equal positions always have equal predictions, so that one prediction can be shared.
    pub(crate) is_deterministic: bool,
}

/// A [`LeafEvaluator`] that evaluates the observations of positions with an [`Evaluator`].
pub(crate) struct NetworkLeaves<'a> {
    evaluator: &'a mut dyn Evaluator,
    buffers: &'a mut Buffers,
}

/// The reusable buffers of [`NetworkLeaves`].
#[derive(Debug)]
pub(crate) struct Buffers {
    batch: Batch,
    /// The predictions for the last batch.
    pub(crate) predictions: Predictions,
}

impl Buffers {
    pub(crate) fn new<G: Game>(game: &G) -> Self {
        Self { batch: Batch::new(game.spec().observation), predictions: Predictions::new() }
    }
}

impl<'a> NetworkLeaves<'a> {
    pub(crate) fn new(evaluator: &'a mut dyn Evaluator, buffers: &'a mut Buffers) -> Self {
        buffers.batch.clear();
        Self { evaluator, buffers }
    }
}

impl<G: Game> LeafEvaluator<G> for NetworkLeaves<'_> {
    fn attributes(&self) -> LeafAttributes {
        let Attributes { max_batch: batch_max, weights_version, .. } = self.evaluator.attributes();
        LeafAttributes { batch_max, weights_version, is_deterministic: true }
    }

    fn push(&mut self, game: &G, position: &G::Position, legal: &[Action]) {
        self.buffers.batch.push(legal, |planes| game.observe(position, planes));
    }

    fn evaluate(&mut self) -> Result<&Predictions, Error> {
        let Buffers { batch, predictions } = &mut *self.buffers;
        let evaluated = self.evaluator.evaluate(batch, predictions);
        batch.clear();
        evaluated.map(|()| &*predictions)
    }
}
