//! One game of many: its position, its tree, what it has recorded.

use experience::{ActionProbability, Step, StepKind, WeightsVersion};
use game::{Action, Game, Outcome, Player};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use search::{Exploration, Proven, SearchAlgorithm, Tree};

use crate::episodes::Round;
use crate::frontier::{Frontier, Rooting, Scene};
use crate::opening;
use crate::resignation::{Verdict, Watch};
use crate::settings::{Settings, SubtreeReuse};

/// Simulations and moves that one game may complete in one round without a leaf for the batch. It keeps a round finite
/// where everything is in the cache.
const WORK_PER_ROUND_MAX: usize = 256;
/// Entries of a search policy below this are noise of the softmax, and not worth their bytes.
const PROBABILITY_MIN: f32 = 1e-5;
/// Colder than this is the best move: powers of shares would underflow.
const TEMPERATURE_MIN: f32 = 0.01;

/// An episode from its first ply to its result.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedEpisode {
    /// Which of the games that advance together played it.
    pub slot: usize,
    /// Counts the episodes of the slot from zero. Slot, number and the seed decide everything that was drawn.
    pub number: u64,
    /// Its steps in order, at least one.
    pub steps: Vec<Step>,
    /// Its result.
    pub outcome: Outcome,
    /// What gave the result.
    pub ending: Ending,
}

/// What ended an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The rules.
    Rules,
    /// A resignation: the result is that of the opponent's win, and the last position is not over.
    Resignation,
}

pub(crate) struct Episode<G: Game> {
    slot: usize,
    number: u64,
    seed: u64,
    rng: ChaCha8Rng,
    position: G::Position,
    tree: Tree<G::Position>,
    /// The weights behind every answer in the tree, while a search is under way and after it.
    tree_version: u64,
    /// How the move that comes next is searched.
    depth: Depth,
    steps: Vec<Step>,
    watch: Watch,
    phase: Phase,
    /// Leaves and roots of this episode that went into batches.
    leaves: u64,
}

/// How far an episode is that has not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// As in [`FinishedEpisode::number`].
    pub number: u64,
    /// Steps so far.
    pub plies: usize,
    /// Positions of its searches that went into batches so far.
    pub leaves: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing was played yet; openings wait for a weights version to be stamped with.
    Fresh,
    /// Between two moves.
    AtMove,
    /// The root waits for its evaluation.
    Rooting,
    /// The tree has its root, the search has not begun.
    Rooted,
    Searching,
}

/// Playout cap randomisation's two kinds of search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    Full,
    Fast,
}

/// Whether searches may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Moves follow each other.
    PlayOn,
    /// Every search under way is finished; none begins.
    Settle,
}

/// Memory that all episodes work in.
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
            tree: Tree::new(settings.search.clone()),
            tree_version: 0,
            depth: Depth::Full,
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

    pub(crate) fn standing(&self) -> Standing {
        Standing { number: self.number, plies: self.steps.len(), leaves: self.leaves }
    }

    /// Whether anything was played in it.
    pub(crate) fn is_under_way(&self) -> bool {
        self.phase != Phase::Fresh
    }

    /// Whether no search is under way.
    pub(crate) fn is_at_move(&self) -> bool {
        matches!(self.phase, Phase::Fresh | Phase::AtMove)
    }

    /// Gives up the search under way, if one is.
    pub(crate) fn abandon(&mut self, settings: &Settings) {
        if !self.is_at_move() {
            self.tree = Tree::new(settings.search.clone());
            self.phase = Phase::AtMove;
        }
    }

    pub(crate) fn tree(&mut self) -> &mut Tree<G::Position> {
        &mut self.tree
    }

    pub(crate) fn rooted(&mut self) {
        self.phase = Phase::Rooted;
    }

    /// Gathers this game's share of a round: leaves for the batch, and as many moves as need none.
    #[expect(clippy::too_many_arguments, reason = "the parts of one round, each borrowed from another field")]
    pub(crate) fn gather(
        &mut self,
        scene: &mut Scene<'_, G>,
        frontier: &mut Frontier<G>,
        settings: &Settings,
        pace: Pace,
        workspace: &mut Workspace,
        finished: &mut Vec<FinishedEpisode>,
        round: &mut Round,
    ) {
        self.keep_to(scene.leaves.weights_version());
        let mut work = 0;
        while work < WORK_PER_ROUND_MAX {
            match self.phase {
                Phase::Fresh if pace == Pace::Settle => return,
                Phase::Fresh => self.open(scene, settings, workspace),
                Phase::AtMove if pace == Pace::Settle => return,
                Phase::AtMove => self.prepare(scene.leaves.weights_version(), settings),
                Phase::Rooting => match frontier.root(scene, self.slot, &mut self.tree, &self.position) {
                    Rooting::Done => self.phase = Phase::Rooted,
                    Rooting::Waits => {
                        self.leaves += 1;
                        return;
                    }
                    Rooting::NoRoom => return,
                },
                Phase::Rooted => self.begin(settings),
                Phase::Searching if self.tree.is_finished() => {
                    self.play(scene.game, settings, workspace, finished, round);
                    work += 1;
                }
                Phase::Searching => {
                    let leaves_max = settings.leaves_per_tree;
                    let completed_max = WORK_PER_ROUND_MAX - work;
                    let descent = frontier.descend(scene, self.slot, &mut self.tree, leaves_max, completed_max);
                    work += descent.completed;
                    self.leaves += descent.waiting as u64;
                    round.simulations += descent.completed;
                    if descent.waiting > 0 || descent.is_full || descent.completed == 0 {
                        return;
                    }
                }
            }
        }
    }

    /// Begins a search anew that is under way with answers of other weights: no tree knows two versions. Between rounds no
    /// leaf is in flight.
    fn keep_to(&mut self, weights_version: u64) {
        if !self.is_at_move() && self.tree_version != weights_version {
            self.tree_version = weights_version;
            self.phase = Phase::Rooting;
        }
    }

    /// Plays the random plies an episode may begin with.
    fn open(&mut self, scene: &Scene<'_, G>, settings: &Settings, workspace: &mut Workspace) {
        let weights_version = WeightsVersion(scene.leaves.weights_version());
        for _ in 0..opening::draw_length(&settings.openings, &mut self.rng) {
            let played = opening::play_random(scene.game, &mut self.position, &mut workspace.legal, &mut self.rng);
            let Some((action, reward)) = played else { break };
            self.steps.push(Step { action, reward, kind: StepKind::Opening, weights_version });
        }
        self.draw_depth(settings);
        // What the tree holds belongs to the episode before.
        self.phase = Phase::Rooting;
        self.tree_version = scene.leaves.weights_version();
    }

    fn prepare(&mut self, weights_version: u64, settings: &Settings) {
        self.draw_depth(settings);
        let reuses = settings.subtree_reuse == SubtreeReuse::Keep;
        let keeps = reuses && self.tree.is_ready() && self.tree_version == weights_version;
        self.phase = if keeps { Phase::Rooted } else { Phase::Rooting };
        self.tree_version = weights_version;
    }

    /// Once for each move: drawn again with every search begun anew, full searches would become rarer for being longer.
    fn draw_depth(&mut self, settings: &Settings) {
        let is_full = self.rng.random::<f32>() < settings.full_search_probability && !self.watch.is_resigned();
        self.depth = if is_full { Depth::Full } else { Depth::Fast };
    }

    fn begin(&mut self, settings: &Settings) {
        let (simulations, exploration) = match self.depth {
            Depth::Full => (settings.full_simulations, Exploration::Explore),
            Depth::Fast if self.temperature(settings) < TEMPERATURE_MIN => {
                (settings.fast_simulations, Exploration::Greedy)
            }
            Depth::Fast => (settings.fast_simulations, Exploration::Sample),
        };
        self.tree.begin(simulations, exploration, &mut self.rng);
        self.phase = Phase::Searching;
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
        self.tree.search_policy(&mut workspace.policy);
        let value = self.tree.root().value_under(&workspace.policy);
        let kind = match self.depth {
            Depth::Full => StepKind::Full { policy: sparse(self.tree.root().actions(), &workspace.policy), value },
            Depth::Fast => StepKind::Fast { value },
        };
        let action = self.choose(settings);
        let mover = game.to_move(&self.position);
        let reward = game.play(&mut self.position, action);
        self.steps.push(Step { action, reward, kind, weights_version: WeightsVersion(self.tree_version) });
        round.moves += 1;

        let verdict = self.watch.observe(mover, value);
        match (game.outcome(&self.position), verdict) {
            (Some(outcome), _) => self.finish(game, settings, outcome, Ending::Rules, finished, round),
            (None, Verdict::Decided(outcome)) => {
                self.finish(game, settings, outcome, Ending::Resignation, finished, round);
            }
            (None, Verdict::PlayOn) => {
                // Whether it kept a subtree is asked when the next search begins.
                let _ = self.tree.advance(action);
                self.phase = Phase::AtMove;
            }
        }
    }

    /// The temperature of the next move.
    fn temperature(&self, settings: &Settings) -> f32 {
        settings.temperature.at(self.steps.len())
    }

    fn choose(&mut self, settings: &Settings) -> Action {
        let temperature = self.temperature(settings);
        // Gumbel's noise has drawn the move already: it is the best action.
        let is_drawn = matches!(settings.search.algorithm, SearchAlgorithm::Gumbel { .. }) && self.depth == Depth::Full;
        if is_drawn || temperature < TEMPERATURE_MIN || self.tree.root().proven() == Proven::Win {
            self.tree.best_action()
        } else {
            self.tree.sample_action(temperature, &mut self.rng)
        }
    }

    fn finish(
        &mut self,
        game: &G,
        settings: &Settings,
        outcome: Outcome,
        ending: Ending,
        finished: &mut Vec<FinishedEpisode>,
        round: &mut Round,
    ) {
        round.episodes_finished += 1;
        round.calibration.count(&self.watch, outcome);
        let steps = std::mem::take(&mut self.steps);
        finished.push(FinishedEpisode { slot: self.slot, number: self.number, steps, outcome, ending });
        self.start_next(game, settings);
    }
}

/// The entries of a search policy that are worth recording.
fn sparse(actions: &[Action], policy: &[f32]) -> Vec<ActionProbability> {
    let kept = || actions.iter().zip(policy).filter(|&(_, &share)| share >= PROBABILITY_MIN);
    let sum: f32 = kept().map(|(_, &share)| share).sum();
    kept().map(|(&action, &share)| ActionProbability { action, probability: share / sum }).collect()
}

/// Whether the player who resigned, or would have, did not lose.
pub(crate) fn was_wrong(resigner: Player, outcome: Outcome) -> bool {
    outcome.value_for(resigner) > -1.0
}

/// A generator of its own for every episode: what one game draws does not depend on the others.
fn generator(seed: u64, slot: usize, number: u64) -> ChaCha8Rng {
    /// Slots are far fewer than this, so that no two episodes share a stream.
    const EPISODES_PER_SLOT: u64 = 1 << 40;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream((slot as u64).wrapping_mul(EPISODES_PER_SLOT).wrapping_add(number));
    rng
}
