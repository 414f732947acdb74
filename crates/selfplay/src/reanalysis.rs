//! Reanalysis: searches the positions of stored trajectories again, with batched evaluation (MuZero Reanalyze,
//! Schrittwieser et al. 2020, appendix H; Schrittwieser et al. 2021).
//!
//! `course` recomputes positions from the seed and the actions, or reads stored observations, and collects the results;
//! [`Reanalysis`] drives the searches. Start with [`Reanalysis`].

mod course;

use std::collections::BTreeMap;

use experience::Trajectory;
use game::Game;
use inference::{Error, Evaluator, LatentModel, Slot, WeightsCache};
use rand_chacha::ChaCha8Rng;
use search::{Exploration, Tree};

use crate::driver::{ByRules, Driver, SearchRoot};
use crate::latent::batcher::{InModel, LatentBatcher};
use crate::latent::search_settings;
use crate::leaf_batcher::{BatchContext, Buffers, LeafBatcher, Limits, NetworkLeaves};
use crate::record::sparse;
use crate::round::Round;
use crate::settings::Settings;
use crate::tree_search::{TreeSearch, Trees, settings_by_rules};
pub use course::Unusable;
use course::{Answer, Course, Position, Purpose};

/// Maximum number of simulations and positions that one slot completes in one round without adding a leaf to the batch.
/// Without this limit, a round would never end if all positions were in the cache.
const WORK_PER_ROUND_MAX: usize = 256;

/// Searches the positions of stored trajectories again with the latest network, many positions at once.
///
/// Each step chosen by a search is searched from a new root. Full steps get `full_simulations` and the exploration
/// noise of self-play, so that all policies of a table come from the same procedure. Fast steps get
/// `fast_simulations` without noise, and only the value is replaced. In truncated episodes the last observation is
/// evaluated again. Random opening plies stay unchanged. Each search depends on the seed, the trajectory, the ply and
/// the network, but not on other searches.
///
/// The kind of network determines the search: by the rules ([`advance`](Self::advance)) or in a learned model
/// ([`advance_latent`](Self::advance_latent)). The kind may change between rounds.
pub struct Reanalysis<G: Game> {
    game: G,
    settings: Settings,
    /// The discount γ for each step of the game.
    discount: f32,
    seed: u64,
    searches: Option<Searches<G>>,
    /// The position being searched in each slot; `None` for a free slot.
    slots: Vec<Option<Position<G>>>,
    /// The slot that gathers leaves first in the next round. This slot changes with every round, so that every slot
    /// advances even if batches are too small for all slots.
    first: usize,
    /// The trajectories in progress. The keys number the trajectories in order of arrival.
    courses: BTreeMap<u64, Course<G>>,
    /// The number of the next trajectory.
    next_course: u64,
    finished: Vec<Reanalysed>,
    /// The weights version of all evaluations in the trees.
    version: u64,
    /// Counters of failed rounds, which are added to the result of the next successful round.
    unreported: Round,
}

/// A reanalysed trajectory.
#[derive(Debug, Clone, PartialEq)]
pub struct Reanalysed {
    /// The same episode with new search policies, values and weights versions. Stored observations are not included.
    pub trajectory: Trajectory,
    /// Number of positions searched or evaluated.
    pub positions: usize,
}

/// The searches of one kind, with one tree for each slot.
enum Searches<G: Game> {
    Rules { trees: Trees<G::Position>, batcher: Box<LeafBatcher<G>>, buffers: Buffers },
    Latent { trees: Trees<Slot>, batcher: Box<LatentBatcher> },
}

impl<G: Game> std::fmt::Debug for Reanalysis<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reanalysis").field("game", &self.game).field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl<G: Game> Reanalysis<G> {
    /// Creates a reanalysis of `settings.games` positions at a time. `discount` is γ for one step of the game, as in
    /// [`LatentEpisodes::new`](crate::LatentEpisodes::new).
    #[must_use]
    pub fn new(game: G, settings: Settings, discount: f32, seed: u64) -> Self {
        Self {
            slots: (0..settings.games).map(|_| None).collect(),
            game,
            settings,
            discount,
            seed,
            searches: None,
            first: 0,
            courses: BTreeMap::new(),
            next_course: 0,
            finished: Vec::new(),
            version: 0,
            unreported: Round::default(),
        }
    }

    /// Adds a trajectory to reanalyse.
    ///
    /// # Errors
    /// [`Unusable`] if the trajectory is not a valid episode of this game, or has no step chosen by a search.
    pub fn push(&mut self, trajectory: &Trajectory) -> Result<(), Unusable> {
        self.courses.insert(self.next_course, Course::new(&self.game, trajectory)?);
        self.next_course += 1;
        Ok(())
    }

    /// Returns true if fewer positions wait for a search than there are slots. The caller should then push another
    /// trajectory, to keep the batches full.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.courses.values().map(Course::left).sum::<usize>() < self.slots.len()
    }

    /// Returns true if no trajectory is in progress.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.courses.is_empty()
    }

    /// Returns the trajectories completed since the last call.
    pub fn drain_finished(&mut self) -> impl Iterator<Item = Reanalysed> + '_ {
        self.finished.drain(..)
    }

    /// Restarts every running search. Required for a new network with the same weights version.
    pub fn restart(&mut self) {
        match &mut self.searches {
            None => {}
            Some(Searches::Rules { trees, .. }) => trees.restart(),
            Some(Searches::Latent { trees, .. }) => trees.restart(),
        }
    }

    /// Runs one round of searches by the rules. If the weights version of the evaluator has changed since the last
    /// round, every running search restarts. Trajectories with stored observations are dropped.
    ///
    /// # Errors
    /// The evaluator fails. The searches can continue in later calls, with this evaluator or another.
    pub fn advance(&mut self, evaluator: &mut dyn Evaluator, cache: Option<WeightsCache<'_>>) -> Result<Round, Error> {
        self.keep_to(evaluator.attributes().weights_version);
        self.leave_recorded();
        let (game, slots) = (self.game.clone(), self.slots.len());
        let (mut trees, mut batcher, mut buffers) = match self.searches.take() {
            Some(Searches::Rules { trees, batcher, buffers }) => (trees, batcher, buffers),
            _ => {
                let trees = Trees::new(&settings_by_rules(game.spec(), &self.settings.search), slots);
                (trees, Box::new(LeafBatcher::new(&game)), Buffers::new(&game))
            }
        };
        let mut leaves = NetworkLeaves::new(evaluator, &mut buffers);
        let context = BatchContext::new(&game, self.discount, &leaves).sharing(cache, self.settings.symmetry_reuse);
        let round = self.round(&mut ByRules { context, batcher: &mut batcher, leaves: &mut leaves }, &mut trees);
        self.searches = Some(Searches::Rules { trees, batcher, buffers });
        round
    }

    /// Runs one round of searches in a learned model. If the weights version of the model has changed since the last
    /// round, every running search restarts.
    ///
    /// # Errors
    /// The model fails. The searches can continue in later calls, with this model or another.
    pub fn advance_latent(&mut self, model: &mut dyn LatentModel) -> Result<Round, Error> {
        self.keep_to(model.attributes().weights_version);
        let (game, slots) = (self.game.clone(), self.slots.len());
        let (mut trees, mut batcher) = match self.searches.take() {
            Some(Searches::Latent { trees, batcher }) => (trees, batcher),
            _ => {
                let simulations = self.settings.full_simulations.max(self.settings.fast_simulations);
                let trees = Trees::new(&search_settings(&self.settings.search), slots);
                (trees, Box::new(LatentBatcher::new(game.spec(), slots, simulations, self.discount)))
            }
        };
        let begun = batcher.begin(model);
        let round =
            begun.and_then(|()| self.round(&mut InModel { game: &game, batcher: &mut batcher, model }, &mut trees));
        self.searches = Some(Searches::Latent { trees, batcher });
        round
    }

    fn round<D: Driver<G>>(&mut self, driver: &mut D, trees: &mut Trees<D::State>) -> Result<Round, Error> {
        let mut round = std::mem::take(&mut self.unreported);
        self.gather(driver, trees, &mut round);
        let resolved = driver.resolve(trees, &mut round);
        for (slot, value) in driver.last_values().drain(..) {
            self.answer(slot, Answer::Last(value));
        }
        resolved.map(|()| round).inspect_err(|_| self.unreported = round)
    }

    /// Gathers the leaves of all slots, and records the results of finished searches.
    fn gather<D: Driver<G>>(&mut self, driver: &mut D, trees: &mut Trees<D::State>, round: &mut Round) {
        for slot in self.order() {
            if driver.is_full() {
                break;
            }
            let search = &mut trees.0[slot];
            let mut work = 0;
            while work < WORK_PER_ROUND_MAX && self.fill(slot, search) {
                let Some(Position { root, rng, purpose, .. }) = &mut self.slots[slot] else { break };
                if *purpose == Purpose::Last {
                    driver.gather_last(slot, root);
                    // The value arrives with this round, or with a later round if the batch is full.
                    break;
                }
                let (simulations, exploration) = budget(&self.settings, *purpose);
                let limits = Limits { leaves: self.settings.leaves_per_tree, completed: WORK_PER_ROUND_MAX - work };
                let begin = |tree: &mut Tree<D::State>| tree.begin(simulations, exploration, &mut rng.clone());
                let gathered = driver.gather(root, search, limits, begin);
                round.simulations += gathered.completed;
                if !gathered.is_finished {
                    break;
                }
                work += gathered.completed + 1;
                self.conclude(slot, &search.tree);
            }
        }
    }

    /// Returns the slots in the gathering order of this round, and rotates the order for the next round.
    fn order(&mut self) -> impl Iterator<Item = usize> + use<G> {
        let (first, slots) = (self.first, self.slots.len());
        self.first = (first + 1) % slots.max(1);
        (0..slots).map(move |i| (first + i) % slots)
    }

    /// Restarts all searches if the weights version has changed, so that no tree mixes two versions.
    fn keep_to(&mut self, weights_version: u64) {
        if self.version != weights_version {
            self.version = weights_version;
            self.restart();
        }
    }

    /// Assigns the next position to a free slot. Returns true if the slot has a position.
    fn fill<S>(&mut self, slot: usize, search: &mut TreeSearch<S>) -> bool {
        if self.slots[slot].is_none() {
            let mut courses = self.courses.iter_mut();
            let position = courses.find_map(|(&number, course)| course.next(&self.game, number, self.seed));
            if position.is_some() {
                search.restart();
            }
            self.slots[slot] = position;
        }
        self.slots[slot].is_some()
    }

    /// Abandons trajectories with stored observations: search by the rules cannot start from an observation.
    fn leave_recorded(&mut self) {
        self.courses.values_mut().filter(|course| course.is_recorded()).for_each(Course::abandon);
        for slot in 0..self.slots.len() {
            let is_recorded = |position: &Position<G>| matches!(position.root, SearchRoot::Observation(_));
            if self.slots[slot].as_ref().is_some_and(is_recorded) {
                self.answer(slot, Answer::Kept);
            }
        }
        self.collect();
    }

    /// Records the result of a finished search and frees the slot.
    fn conclude<S>(&mut self, slot: usize, tree: &Tree<S>) {
        let mut policy = Vec::new();
        tree.search_policy(&mut policy);
        let value = tree.root().value_under(&policy);
        self.answer(slot, Answer::Searched { policy: sparse(tree.root().actions(), &policy), value });
    }

    fn answer(&mut self, slot: usize, answer: Answer) {
        let Some(Position { course: number, ply, .. }) = self.slots[slot].take() else { return };
        // An abandoned course has already been removed.
        if let Some(course) = self.courses.get_mut(&number) {
            course.answer(ply, answer, self.version);
            if course.is_finished() {
                self.collect();
            }
        }
    }

    /// Moves finished courses to the results and drops abandoned courses.
    fn collect(&mut self) {
        let finished = self.courses.extract_if(.., |_, course| course.is_finished());
        self.finished.extend(finished.filter_map(|(_, course)| course.finish()));
    }
}

/// Returns the simulation budget and the exploration of a search.
fn budget(settings: &Settings, purpose: Purpose) -> (u32, Exploration) {
    match purpose {
        Purpose::Full => (settings.full_simulations, Exploration::Explore),
        Purpose::Fast | Purpose::Last => (settings.fast_simulations, Exploration::Greedy),
    }
}

/// Returns the random number generator for the search of one position.
fn generator(seed: u64, trajectory: &Trajectory, ply: usize) -> ChaCha8Rng {
    use game::mix;
    use rand_chacha::rand_core::SeedableRng as _;
    let id = trajectory.id();
    let parts = [id.actor, id.epoch, id.sequence, ply as u64, trajectory.last_weights_version().0];
    ChaCha8Rng::seed_from_u64(parts.into_iter().fold(seed, |seed, part| mix(seed ^ part)))
}

#[cfg(test)]
mod tests;
