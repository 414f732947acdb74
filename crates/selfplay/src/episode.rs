//! One game of many: its position, its tree and its recorded steps.

use experience::{ActionProbability, Step, StepKind, WeightsVersion};
use game::{Action, Game};
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use search::{Exploration, Proven, SearchAlgorithm, Tree};

use crate::config::{Openings, Settings, SubtreeReuse};
use crate::leaf_batcher::{BatchContext, LeafBatcher, Limits};
use crate::resignation::Watch;
use crate::round::Round;
use crate::tree_search::TreeSearch;

/// The maximum number of simulations and moves that one game may complete in one round without a leaf for the batch. It
/// keeps a round finite when all positions are in the cache.
const WORK_PER_ROUND_MAX: usize = 256;
/// The smallest recorded entry of a search policy. Smaller entries are noise of the softmax and would waste space.
const PROBABILITY_MIN: f32 = 1e-5;
/// The temperature below which the best move is played: powers of shares would underflow.
const TEMPERATURE_MIN: f32 = 0.01;

/// An episode from its first ply to its result.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedEpisode {
    /// The slot (index) of its game among those that advance together.
    pub slot: usize,
    /// The number of the episode in its slot, from zero. The slot, the number and the seed determine all its random
    /// draws.
    pub number: u64,
    /// The steps in order, at least one.
    pub steps: Vec<Step>,
    /// Its seed and its result.
    pub facts: experience::Episode,
    /// The cause of the result.
    pub ending: Ending,
}

/// The cause of an episode's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The game ended by its rules.
    Rules,
    /// A player resigned: the result is a win of the opponent, and the last position is not over.
    Resignation,
}

pub(crate) struct Episode<G: Game> {
    slot: usize,
    number: u64,
    seed: u64,
    rng: ChaCha8Rng,
    position: G::Position,
    pub(crate) search: TreeSearch<G>,
    /// The weights version of every answer in the tree, while a search is under way and after it.
    tree_version: u64,
    /// The kind of search of the next move.
    kind: SearchKind,
    steps: Vec<Step>,
    watch: Watch,
    phase: Phase,
    /// Leaves and roots of this episode that went into batches.
    leaves: u64,
}

/// The progress of an episode that has not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpisodeProgress {
    /// The number of the episode in its slot, as in [`FinishedEpisode::number`].
    pub number: u64,
    /// The number of steps so far.
    pub plies: usize,
    /// The number of positions of its searches that went into batches so far.
    pub leaves: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing was played yet; openings are drawn once there is a weights version to stamp them with.
    Fresh,
    /// Between two moves.
    AtMove,
    Searching,
}

/// Playout cap randomisation's two kinds of search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchKind {
    Full,
    Fast,
}

/// Determines whether searches may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Searches and moves continue.
    PlayOn,
    /// Every search under way is finished, and none begins.
    Settle,
}

/// Scratch memory that all episodes share.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    legal: Vec<Action>,
    policy: Vec<f32>,
}

impl<G: Game> Episode<G> {
    pub(crate) fn new(game: &G, settings: &Settings, seed: u64, slot: usize) -> Self {
        let mut rng = generator(seed, slot, 0);
        Self {
            slot,
            number: 0,
            seed,
            position: game.start(),
            search: TreeSearch::new(&settings.search, slot),
            tree_version: 0,
            kind: SearchKind::Full,
            steps: Vec::new(),
            watch: Watch::new(settings.resignation, game.spec().players, &mut rng),
            phase: Phase::Fresh,
            leaves: 0,
            rng,
        }
    }

    fn start_next(&mut self, game: &G, settings: &Settings) {
        self.number += 1;
        self.rng = generator(self.seed, self.slot, self.number);
        self.position = game.start();
        self.watch = Watch::new(settings.resignation, game.spec().players, &mut self.rng);
        self.phase = Phase::Fresh;
        self.leaves = 0;
    }

    pub(crate) fn progress(&self) -> EpisodeProgress {
        EpisodeProgress { number: self.number, plies: self.steps.len(), leaves: self.leaves }
    }

    /// True if anything was played in the episode.
    pub(crate) fn is_under_way(&self) -> bool {
        self.phase != Phase::Fresh
    }

    /// True if no search is under way.
    pub(crate) fn is_at_move(&self) -> bool {
        matches!(self.phase, Phase::Fresh | Phase::AtMove)
    }

    /// Abandons the search under way, if there is one.
    pub(crate) fn abandon(&mut self, settings: &Settings) {
        if !self.is_at_move() {
            self.search = TreeSearch::new(&settings.search, self.slot);
            self.phase = Phase::AtMove;
        }
    }

    /// Gathers this game's share of a round: leaves for the batch, and all moves that require none.
    #[expect(clippy::too_many_arguments, reason = "the parts of one round, each borrowed from another field")]
    pub(crate) fn gather(
        &mut self,
        context: &BatchContext<'_, G>,
        batcher: &mut LeafBatcher<G>,
        settings: &Settings,
        pace: Pace,
        workspace: &mut Workspace,
        finished: &mut Vec<FinishedEpisode>,
        round: &mut Round,
    ) {
        self.keep_to(context.leaves.weights_version);
        let mut work = 0;
        while work < WORK_PER_ROUND_MAX {
            match self.phase {
                Phase::Fresh if pace == Pace::Settle => return,
                Phase::Fresh => self.open(context, settings, workspace),
                Phase::AtMove if pace == Pace::Settle => return,
                Phase::AtMove => self.prepare(context.leaves.weights_version, settings),
                Phase::Searching => {
                    let (simulations, exploration) = self.budget(settings);
                    let limits = Limits { leaves: settings.leaves_per_tree, completed: WORK_PER_ROUND_MAX - work };
                    let Self { search, rng, position, .. } = self;
                    let begin = |tree: &mut Tree<G::Position>| tree.begin(simulations, exploration, rng);
                    let gathered = batcher.gather(context, search, position, limits, begin);
                    self.leaves += gathered.waiting as u64;
                    round.simulations += gathered.completed;
                    if !gathered.is_finished {
                        return;
                    }
                    self.play(context.game, settings, workspace, finished, round);
                    work += gathered.completed + 1;
                }
            }
        }
    }

    /// Restarts a search under way that has answers of other weights, so that no tree mixes two versions. Between
    /// rounds no leaf is in flight.
    fn keep_to(&mut self, weights_version: u64) {
        if !self.is_at_move() && self.tree_version != weights_version {
            self.tree_version = weights_version;
            self.search.restart();
        }
    }

    /// Plays the random plies, if any, at the start of an episode.
    fn open(&mut self, context: &BatchContext<'_, G>, settings: &Settings, workspace: &mut Workspace) {
        let weights_version = WeightsVersion(context.leaves.weights_version);
        for _ in 0..draw_length(&settings.openings, &mut self.rng) {
            let played = play_random(context.game, &mut self.position, &mut workspace.legal, &mut self.rng);
            let Some((action, reward)) = played else { break };
            self.steps.push(Step { action, reward, kind: StepKind::Opening, weights_version });
        }
        self.draw_kind(settings);
        // The tree still holds the previous episode.
        self.search.restart();
        self.phase = Phase::Searching;
        self.tree_version = context.leaves.weights_version;
    }

    fn prepare(&mut self, weights_version: u64, settings: &Settings) {
        self.draw_kind(settings);
        if settings.subtree_reuse == SubtreeReuse::Keep && self.tree_version == weights_version {
            self.search.resume();
        } else {
            self.search.restart();
        }
        self.phase = Phase::Searching;
        self.tree_version = weights_version;
    }

    /// Draws the kind of the next search, once for each move: if it were drawn again with every restarted search, full
    /// searches would become rarer, because they take longer.
    fn draw_kind(&mut self, settings: &Settings) {
        let is_full = self.rng.random::<f32>() < settings.full_search_probability && !self.watch.is_resigned();
        self.kind = if is_full { SearchKind::Full } else { SearchKind::Fast };
    }

    /// The simulations of the next search, and the randomness of its move.
    fn budget(&self, settings: &Settings) -> (u32, Exploration) {
        match self.kind {
            SearchKind::Full => (settings.full_simulations, Exploration::Explore),
            SearchKind::Fast if self.temperature(settings) < TEMPERATURE_MIN => {
                (settings.fast_simulations, Exploration::Greedy)
            }
            SearchKind::Fast => (settings.fast_simulations, Exploration::Sample),
        }
    }

    /// Ends a search: records it, plays its move, and starts the next episode if that was the last one.
    fn play(
        &mut self,
        game: &G,
        settings: &Settings,
        workspace: &mut Workspace,
        finished: &mut Vec<FinishedEpisode>,
        round: &mut Round,
    ) {
        let tree = &self.search.tree;
        tree.search_policy(&mut workspace.policy);
        let value = tree.root().value_under(&workspace.policy);
        let kind = match self.kind {
            SearchKind::Full => StepKind::Full { policy: sparse(tree.root().actions(), &workspace.policy), value },
            SearchKind::Fast => StepKind::Fast { value },
        };
        let action = self.choose(settings);
        let mover = game.to_move(&self.position);
        let reward = game.play(&mut self.position, action);
        self.steps.push(Step { action, reward, kind, weights_version: WeightsVersion(self.tree_version) });
        round.moves += 1;

        let resigned = self.watch.observe(mover, value).map(|outcome| (outcome, Ending::Resignation));
        let Some((outcome, ending)) = game.outcome(&self.position).map(|outcome| (outcome, Ending::Rules)).or(resigned)
        else {
            // The result is not used here: the next search checks whether a subtree was kept.
            let _ = self.search.tree.advance(action);
            self.phase = Phase::AtMove;
            return;
        };
        round.episodes_finished += 1;
        round.calibration.count(&self.watch, outcome);
        let steps = std::mem::take(&mut self.steps);
        finished.push(FinishedEpisode {
            slot: self.slot,
            number: self.number,
            steps,
            facts: experience::Episode::of(outcome),
            ending,
        });
        self.start_next(game, settings);
    }

    /// The temperature of the next move.
    fn temperature(&self, settings: &Settings) -> f32 {
        settings.temperature.at(self.steps.len())
    }

    fn choose(&mut self, settings: &Settings) -> Action {
        let temperature = self.temperature(settings);
        // Gumbel's noise has already randomised the move, so the best action is played.
        let is_drawn =
            matches!(settings.search.algorithm, SearchAlgorithm::Gumbel { .. }) && self.kind == SearchKind::Full;
        let tree = &self.search.tree;
        if is_drawn || temperature < TEMPERATURE_MIN || tree.root().proven() == Proven::Win {
            tree.best_action()
        } else {
            tree.sample_action(temperature, &mut self.rng)
        }
    }
}

/// The entries of a search policy that are recorded, renormalised.
fn sparse(actions: &[Action], policy: &[f32]) -> Vec<ActionProbability> {
    let kept = || actions.iter().zip(policy).filter(|&(_, &share)| share >= PROBABILITY_MIN);
    let sum: f32 = kept().map(|(_, &share)| share).sum();
    kept().map(|(&action, &share)| ActionProbability { action, probability: share / sum }).collect()
}

/// Creates a separate random number generator for every episode, so that its draws do not depend on other games.
fn generator(seed: u64, slot: usize, number: u64) -> ChaCha8Rng {
    /// The distance between the streams of two slots; a slot plays fewer episodes, so that no two episodes share a
    /// stream.
    const EPISODES_PER_SLOT: u64 = 1 << 40;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream((slot as u64).wrapping_mul(EPISODES_PER_SLOT).wrapping_add(number));
    rng
}

/// Draws the number of random plies that an episode begins with.
fn draw_length(openings: &Openings, rng: &mut impl Rng) -> u16 {
    if openings.random_plies_max == 0 || rng.random::<f32>() >= openings.probability {
        return 0;
    }
    rng.random_range(1..=openings.random_plies_max)
}

/// Plays a uniformly random action that does not end the game; `None` if every action would.
///
/// `legal` is scratch memory.
fn play_random<G: Game>(
    game: &G,
    position: &mut G::Position,
    legal: &mut Vec<Action>,
    rng: &mut impl Rng,
) -> Option<(Action, f32)> {
    game.legal_actions(position, legal);
    while !legal.is_empty() {
        let action = legal.swap_remove(rng.random_range(0..legal.len()));
        let mut next = position.clone();
        let reward = game.play(&mut next, action);
        if game.outcome(&next).is_none() {
            *position = next;
            return Some((action, reward));
        }
    }
    None
}
