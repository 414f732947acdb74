//! The gatherer: descends trees to leaves, answers at once what is over or cached, and collects the rest for one batch.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;
use std::time::{Duration, Instant};

use game::{Action, Game};
use inference::{Cache, CacheKey, Error, PositionHasher, Predictions};
use search::{Expansion, Request, Selection, Tree};

use crate::images::Images;
use crate::leaves::LeafEvaluator;
use crate::settings::SymmetryReuse;
use crate::step::Step;

/// The trees being searched, by the number that the frontier knows them by.
pub(crate) trait Forest<G: Game> {
    /// The tree of `owner`.
    fn tree(&mut self, owner: usize) -> &mut Tree<G::Position>;

    /// The tree of `owner` has got the root it was waiting for.
    fn rooted(&mut self, owner: usize);
}

/// What every descent of a round shares.
pub(crate) struct Scene<'a, G: Game> {
    pub(crate) game: &'a G,
    pub(crate) cache: Option<&'a Cache>,
    pub(crate) symmetry_reuse: SymmetryReuse,
    pub(crate) leaves: &'a mut dyn LeafEvaluator<G>,
}

/// Leaves that wait for the batch.
pub(crate) struct Frontier<G: Game> {
    waiting: Vec<Waiting<G::Position>>,
    /// The distinct positions of the batch, in its order.
    leaves: Vec<Leaf>,
    /// Legal actions of all leaves, one after another.
    legal: Vec<Action>,
    /// Which leaf a position hash is.
    known: HashMap<u64, usize, BuildHasherDefault<PositionHasher>>,
    /// The legal actions of the position that is evaluated.
    scratch: Vec<Action>,
    cached: Predictions,
    images: Images,
    pub(crate) cache_lookups: usize,
    pub(crate) cache_hits: usize,
    /// Asked before and after a batch is observed; without one that is not timed.
    pub(crate) clock: Option<fn() -> Instant>,
    pub(crate) observing: Duration,
}

struct Waiting<P> {
    owner: usize,
    place: Place,
    position: P,
    leaf: usize,
    /// What takes the position to the leaf.
    symmetry: usize,
}

enum Place {
    Root,
    Child { request: Request, reward: f32, discount: f32 },
}

struct Leaf {
    hash: u64,
    legal: Range<usize>,
}

/// Where the answer to a position comes from.
enum Source {
    /// It lies in `cached`, for the legal actions in `scratch`, of the image under this symmetry.
    Cache { symmetry: usize },
    /// It will be the answer to this leaf, which is the image under this symmetry.
    Leaf { leaf: usize, symmetry: usize },
    /// The batch has no room for it.
    NoRoom,
}

/// How far a descent came.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Descent {
    /// Leaves of this tree that now wait for the batch.
    pub(crate) waiting: usize,
    /// Simulations that were completed without the batch.
    pub(crate) completed: usize,
    /// Whether the batch had no room for another leaf.
    pub(crate) is_full: bool,
}

/// Whether a root could be answered at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rooting {
    /// The tree has its root.
    Done,
    /// It waits for the batch.
    Waits,
    /// The batch has no room for it.
    NoRoom,
}

impl<G: Game> Frontier<G> {
    pub(crate) fn new(game: &G) -> Self {
        Self {
            waiting: Vec::new(),
            leaves: Vec::new(),
            legal: Vec::new(),
            known: HashMap::default(),
            scratch: Vec::new(),
            cached: Predictions::new(),
            images: Images::new(game),
            cache_lookups: 0,
            cache_hits: 0,
            clock: None,
            observing: Duration::ZERO,
        }
    }

    /// How many positions the batch holds.
    pub(crate) fn batch(&self) -> usize {
        self.leaves.len()
    }

    /// Gives `tree` the root `position`, which is not over.
    pub(crate) fn root(
        &mut self,
        scene: &mut Scene<'_, G>,
        owner: usize,
        tree: &mut Tree<G::Position>,
        position: &G::Position,
    ) -> Rooting {
        match self.source(scene, position) {
            Source::Cache { symmetry } => {
                tree.reset(position.clone(), self.images.expansion(symmetry, &self.scratch, &self.cached, 0));
                Rooting::Done
            }
            Source::Leaf { leaf, symmetry } => {
                self.waiting.push(Waiting { owner, place: Place::Root, position: position.clone(), leaf, symmetry });
                Rooting::Waits
            }
            Source::NoRoom => Rooting::NoRoom,
        }
    }

    /// Descends `tree` until `leaves_max` leaves wait, `completed_max` simulations are complete, or nothing is left.
    pub(crate) fn descend(
        &mut self,
        scene: &mut Scene<'_, G>,
        owner: usize,
        tree: &mut Tree<G::Position>,
        leaves_max: usize,
        completed_max: usize,
    ) -> Descent {
        let mut descent = Descent::default();
        while descent.waiting < leaves_max && descent.completed < completed_max {
            let request = match tree.select() {
                Selection::Busy => break,
                Selection::Completed => {
                    descent.completed += 1;
                    continue;
                }
                Selection::Leaf(request) => request,
            };
            let mut position = tree.parent_state(&request).clone();
            let Step { reward, discount, terminal } = Step::play(scene.game, &mut position, request.action);
            if let Some(value) = terminal {
                tree.answer(request, position, reward, discount, Expansion::Terminal { value });
                descent.completed += 1;
                continue;
            }
            match self.source(scene, &position) {
                Source::Cache { symmetry } => {
                    let expansion = self.images.expansion(symmetry, &self.scratch, &self.cached, 0);
                    tree.answer(request, position, reward, discount, expansion);
                    descent.completed += 1;
                }
                Source::Leaf { leaf, symmetry } => {
                    let place = Place::Child { request, reward, discount };
                    self.waiting.push(Waiting { owner, place, position, leaf, symmetry });
                    descent.waiting += 1;
                }
                Source::NoRoom => {
                    tree.cancel(request);
                    descent.is_full = true;
                    break;
                }
            }
        }
        descent
    }

    /// Looks for the answer to a position that is not over: in the cache, in the batch, else at the end of the batch.
    fn source(&mut self, scene: &mut Scene<'_, G>, position: &G::Position) -> Source {
        let (hash, image) = match scene.symmetry_reuse {
            SymmetryReuse::Share => Images::smallest(scene.game, position),
            SymmetryReuse::Apart => (scene.game.hash(position), None),
        };
        let (symmetry, position) = image.as_ref().map_or((0, position), |(symmetry, image)| (*symmetry, image));
        scene.game.legal_actions(position, &mut self.scratch);
        if let Some(cache) = scene.cache {
            self.cached.clear();
            self.cache_lookups += 1;
            let key = CacheKey { position: hash, weights_version: scene.leaves.weights_version() };
            if cache.get(key, self.scratch.len(), &mut self.cached) {
                self.cache_hits += 1;
                return Source::Cache { symmetry };
            }
        }
        let shares = scene.leaves.is_deterministic();
        if shares && let Some(&leaf) = self.known.get(&hash) {
            // Equal hashes of different positions are improbable, not impossible.
            if self.legal[self.leaves[leaf].legal.clone()] == self.scratch[..] {
                return Source::Leaf { leaf, symmetry };
            }
        }
        if self.leaves.len() >= scene.leaves.batch_max() {
            return Source::NoRoom;
        }
        let leaf = self.leaves.len();
        let start = self.legal.len();
        self.legal.extend_from_slice(&self.scratch);
        self.leaves.push(Leaf { hash, legal: start..self.legal.len() });
        if shares {
            self.known.insert(hash, leaf);
        }
        Source::Leaf { leaf, symmetry }
    }

    /// Fills the batch, in one go once all leaves are known, so that what it takes can be timed at its ends.
    fn observe(&mut self, scene: &mut Scene<'_, G>) {
        let start = self.clock.map(|clock| clock());
        let mut next = 0;
        for Waiting { position, leaf, symmetry, .. } in &self.waiting {
            // Whoever waits for a leaf that is known already was here before.
            if *leaf == next {
                let legal = &self.legal[self.leaves[next].legal.clone()];
                match symmetry {
                    0 => scene.leaves.push(scene.game, position, legal),
                    _ => scene.leaves.push(scene.game, &scene.game.image(position, *symmetry), legal),
                }
                next += 1;
            }
        }
        if let Some((clock, start)) = self.clock.zip(start) {
            self.observing += clock().saturating_duration_since(start);
        }
    }

    /// Evaluates the batch and answers everything that waits; returns how many simulations that completed.
    ///
    /// After an error nothing is in flight: the leaves are given up, and simulations that needed no batch stay.
    pub(crate) fn resolve(&mut self, scene: &mut Scene<'_, G>, forest: &mut impl Forest<G>) -> Result<usize, Error> {
        if self.leaves.is_empty() {
            return Ok(0);
        }
        self.observe(scene);
        let weights_version = scene.leaves.weights_version();
        let result = match scene.leaves.evaluate() {
            Ok(predictions) => {
                assert_eq!(predictions.len(), self.leaves.len(), "an evaluator answers every position of its batch");
                if let Some(cache) = scene.cache {
                    for (i, leaf) in self.leaves.iter().enumerate() {
                        let key = CacheKey { position: leaf.hash, weights_version };
                        cache.insert(key, predictions.priors(i), predictions.value(i));
                    }
                }
                Ok(self.answer(predictions, forest))
            }
            Err(error) => {
                self.cancel(forest);
                Err(error)
            }
        };
        self.leaves.clear();
        self.legal.clear();
        self.known.clear();
        result
    }

    fn answer(&mut self, predictions: &Predictions, forest: &mut impl Forest<G>) -> usize {
        let mut simulations = 0;
        for Waiting { owner, place, position, leaf, symmetry } in self.waiting.drain(..) {
            let legal = &self.legal[self.leaves[leaf].legal.clone()];
            let expansion = self.images.expansion(symmetry, legal, predictions, leaf);
            match place {
                Place::Root => {
                    forest.tree(owner).reset(position, expansion);
                    forest.rooted(owner);
                }
                Place::Child { request, reward, discount } => {
                    forest.tree(owner).answer(request, position, reward, discount, expansion);
                    simulations += 1;
                }
            }
        }
        simulations
    }

    fn cancel(&mut self, forest: &mut impl Forest<G>) {
        for Waiting { owner, place, .. } in self.waiting.drain(..) {
            if let Place::Child { request, .. } = place {
                forest.tree(owner).cancel(request);
            }
        }
    }
}
