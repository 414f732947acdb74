//! One of many concurrent episodes: position, search tree and record.

use experience::{Invalid, Observations, Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Game, Outcome, stored_seed};
use search::Tree;

use crate::images::Images;
use crate::leaf_batcher::{BatchContext, LeafBatcher, Limits};
use crate::record::{Choice, EpisodeRecord};
use crate::round::Round;
use crate::settings::{Settings, SubtreeReuse};
use crate::tree_search::TreeSearch;

/// Maximum number of simulations and moves completed by one game in one round without a leaf for the batch. The limit
/// keeps a round finite if all positions are in the cache.
const WORK_PER_ROUND_MAX: usize = 256;

/// A complete episode, from the first ply to the result.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedEpisode {
    /// Slot of the episode: the index among the concurrent games.
    pub slot: usize,
    /// Number of the episode in the slot, from 0. The run seed, the slot and this number determine all random draws.
    pub number: u64,
    /// The steps in order, at least one.
    pub steps: Vec<Step>,
    /// The seed, the outcome and the truncation value of the episode.
    pub facts: experience::Episode,
    /// The reason why the episode ended.
    pub ending: Ending,
    /// The observations of every step and the final observation; `None` if the rules can recompute observations.
    pub observations: Option<Observations>,
    /// Position hash of each step with a full search, equal for all images of a position under the game symmetries.
    /// Empty after search in a learned model.
    pub positions: Vec<u64>,
    /// Divergence of the search policy from the prior for each step with a full search, in nats.
    pub surprises: Vec<f32>,
}

impl FinishedEpisode {
    /// Converts the episode to a trajectory of the game named `game` with the id `id`.
    ///
    /// # Errors
    /// [`Invalid`] if the steps do not form a valid trajectory, which indicates a bug in self-play.
    pub fn trajectory(&self, id: TrajectoryId, game: &str) -> Result<Trajectory, Invalid> {
        let trajectory = match &self.observations {
            Some(observations) => Trajectory::of_recorded(id, game, &self.steps, self.facts, observations.clone()),
            None => Trajectory::of_episode(id, game, &self.steps, self.facts),
        };
        trajectory?.with_positions(&self.positions, &self.surprises)
    }
}

/// The reason why an episode ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The game ended by the rules.
    Rules,
    /// A player resigned: the opponent wins, although the game is not over at the last position.
    Resignation,
}

pub(crate) struct Episode<G: Game> {
    record: EpisodeRecord,
    position: G::Position,
    pub(crate) search: TreeSearch<G::Position>,
    /// The weights version of all evaluations in the tree, during and after a search.
    tree_version: u64,
    phase: Phase,
    /// Number of leaves and roots of this episode added to batches.
    leaves: u64,
}

/// The progress of an unfinished episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpisodeProgress {
    /// Number of the episode in the slot, as in [`FinishedEpisode::number`].
    pub number: u64,
    /// Number of steps so far.
    pub plies: usize,
    /// Number of positions of this episode added to evaluation batches so far.
    pub leaves: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The episode has not started. The opening is played in the next round, when the weights version is known.
    Fresh,
    /// Between two moves, without a running search.
    AtMove,
    Searching,
    /// The episode was truncated and waits for the value of the last position.
    Truncated,
}

/// Controls whether new searches may start in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Searches and moves continue.
    PlayOn,
    /// Running searches continue to the end, and no new search starts.
    Settle,
}

/// Scratch memory shared by all episodes.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    pub(crate) legal: Vec<Action>,
    pub(crate) policy: Vec<f32>,
}

impl<G: Game> Episode<G> {
    pub(crate) fn new(game: &G, settings: &Settings, seed: u64, slot: usize) -> Self {
        let record = EpisodeRecord::new(game.spec().players, settings, seed, slot);
        Self {
            position: record.start(game),
            search: TreeSearch::new(&settings.search, slot),
            tree_version: 0,
            phase: Phase::Fresh,
            leaves: 0,
            record,
        }
    }

    pub(crate) fn progress(&self) -> EpisodeProgress {
        EpisodeProgress { number: self.record.number(), plies: self.record.plies(), leaves: self.leaves }
    }

    /// Returns true if the episode has started.
    pub(crate) fn is_under_way(&self) -> bool {
        self.phase != Phase::Fresh
    }

    /// Returns true if the episode waits for no evaluation: it has not started or is between two moves.
    pub(crate) fn is_at_move(&self) -> bool {
        matches!(self.phase, Phase::Fresh | Phase::AtMove)
    }

    /// Discards the running search, if any. The move is searched again from a new root.
    pub(crate) fn abandon(&mut self, settings: &Settings) {
        if self.phase == Phase::Searching {
            self.search = TreeSearch::new(&settings.search, self.record.slot());
            self.phase = Phase::AtMove;
        }
    }

    /// Advances the episode in a round: adds leaves to the batch, and plays all moves possible without an evaluation.
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
                    let (simulations, exploration) = self.record.budget(settings);
                    let limits = Limits { leaves: settings.leaves_per_tree, completed: WORK_PER_ROUND_MAX - work };
                    let Self { search, record, position, .. } = self;
                    let begin = |tree: &mut Tree<G::Position>| tree.begin(simulations, exploration, record.rng());
                    let gathered = batcher.gather(context, search, position, limits, begin);
                    self.leaves += gathered.waiting as u64;
                    round.simulations += gathered.completed;
                    if !gathered.is_finished {
                        return;
                    }
                    self.play(context.game, settings, workspace, finished, round);
                    work += gathered.completed + 1;
                }
                Phase::Truncated => {
                    self.leaves += u64::from(batcher.gather_last(context, self.record.slot(), &self.position));
                    return;
                }
            }
        }
    }

    /// Restarts a running search with evaluations by another weights version, so that no tree mixes two versions. No
    /// leaf is in flight between rounds.
    fn keep_to(&mut self, weights_version: u64) {
        if !self.is_at_move() && self.tree_version != weights_version {
            self.tree_version = weights_version;
            self.search.restart();
        }
    }

    /// Plays the opening plies of an episode and prepares the first search.
    fn open(&mut self, context: &BatchContext<'_, G>, settings: &Settings, workspace: &mut Workspace) {
        let weights_version = context.leaves.weights_version;
        self.record.open(context.game, &mut self.position, settings, weights_version, &mut workspace.legal);
        self.record.draw_kind(settings);
        // The tree still holds the previous episode.
        self.search.restart();
        self.phase = Phase::Searching;
        self.tree_version = weights_version;
    }

    fn prepare(&mut self, weights_version: u64, settings: &Settings) {
        self.record.draw_kind(settings);
        if settings.subtree_reuse == SubtreeReuse::Keep && self.tree_version == weights_version {
            self.search.resume();
        } else {
            self.search.restart();
        }
        self.phase = Phase::Searching;
        self.tree_version = weights_version;
    }

    /// Records a finished search and plays the chosen move. If the move ends the episode, starts the next episode.
    fn play(
        &mut self,
        game: &G,
        settings: &Settings,
        workspace: &mut Workspace,
        finished: &mut Vec<FinishedEpisode>,
        round: &mut Round,
    ) {
        let Choice { action, kind, value } = self.record.choose(settings, &self.search.tree, &mut workspace.policy);
        if matches!(kind, StepKind::Full { .. }) {
            self.record.keep_position(Images::smallest(game, &self.position).0);
        }
        let mover = game.to_move(&self.position);
        let reward = game.play(&mut self.position, action);
        self.record.push(action, reward, kind, self.tree_version);
        round.moves += 1;

        let resigned = self.record.resigned(mover, value).map(|outcome| (outcome, Ending::Resignation));
        let Some(end) = game.outcome(&self.position).map(|outcome| (outcome, Ending::Rules)).or(resigned) else {
            // The result is ignored: the next search checks whether the tree still has a root.
            let _ = self.search.tree.advance(action);
            self.phase = Phase::AtMove;
            return;
        };
        match end {
            (Outcome::Truncated, _) => self.phase = Phase::Truncated,
            _ => finished.push(self.finish(game, settings, end, 0.0, round)),
        }
    }

    /// Finishes a truncated episode with the value of the last position.
    pub(crate) fn finish_truncated(
        &mut self,
        game: &G,
        settings: &Settings,
        value: f32,
        round: &mut Round,
    ) -> FinishedEpisode {
        self.finish(game, settings, (Outcome::Truncated, Ending::Rules), value, round)
    }

    fn finish(
        &mut self,
        game: &G,
        settings: &Settings,
        end: (Outcome, Ending),
        truncation_value: f32,
        round: &mut Round,
    ) -> FinishedEpisode {
        let seed = stored_seed(game, self.record.start_seed());
        let finished = self.record.finish(seed, settings, end, truncation_value, round);
        self.position = self.record.start(game);
        self.phase = Phase::Fresh;
        self.leaves = 0;
        finished
    }
}
