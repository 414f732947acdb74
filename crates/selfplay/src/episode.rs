//! One of many concurrent episodes: position, search tree and record.

use experience::{Invalid, Observations, Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Game, Outcome, Player, stored_seed};
use search::Tree;

use crate::analysis::searched;
use crate::driver::ByRules;
use crate::images::Images;
use crate::leaf_batcher::{BatchContext, Limits};
use crate::record::{Choice, EpisodeRecord};
use crate::round::Round;
use crate::settings::{Settings, SubtreeReuse};
use crate::tree_search::{TreeSearch, TreeSet};
use crate::watch::{ACTIONS_MAX, Watch, WatchedSearch};

/// Maximum number of simulations and moves that one game completes in one round without adding a leaf to the batch.
/// Without this limit, a round would never end if all positions were in the cache.
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

/// The end of an episode that a step limit truncated.
pub(crate) const TRUNCATED: (Outcome, Ending) = (Outcome::Truncated, Ending::Rules);

/// One of many concurrent episodes. A node of the search tree has the state `S`. `W` is the world state: the position
/// by the rules, or the part of the episode that depends on an environment.
pub(crate) struct Episode<S, W> {
    pub(crate) record: EpisodeRecord,
    pub(crate) search: TreeSearch<S>,
    /// The weights version of all predictions in the tree, during and after a search.
    pub(crate) tree_version: u64,
    pub(crate) phase: Phase,
    /// Number of leaves and roots that this episode has added to batches.
    pub(crate) leaves: u64,
    pub(crate) world: W,
}

/// The current position of an episode by the rules.
pub(crate) struct AtPosition<G: Game>(G::Position);

/// The progress of an unfinished episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpisodeProgress {
    /// Number of the episode in the slot, as in [`FinishedEpisode::number`].
    pub number: u64,
    /// Number of steps so far.
    pub plies: usize,
    /// Number of positions that this episode has added to evaluation batches so far.
    pub leaves: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The episode has not started.
    Fresh,
    /// The opening plies in an environment, before the first search. By the rules, the opening is played at once when
    /// the episode starts.
    Opening,
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

/// Scratch memory shared by all episodes, and the searches that spectators watch.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    pub(crate) legal: Vec<Action>,
    pub(crate) policy: Vec<f32>,
    pub(crate) watch: Watch,
}

impl<S, W> Episode<S, W> {
    pub(crate) fn new(record: EpisodeRecord, settings: &Settings, world: W) -> Self {
        let search = TreeSearch::new(&settings.search, record.slot());
        Self { record, search, tree_version: 0, phase: Phase::Fresh, leaves: 0, world }
    }

    pub(crate) fn progress(&self) -> EpisodeProgress {
        EpisodeProgress { number: self.record.number(), plies: self.record.plies(), leaves: self.leaves }
    }

    /// Returns true if the episode has started.
    pub(crate) fn is_under_way(&self) -> bool {
        self.phase != Phase::Fresh
    }

    /// Returns true if the episode waits for no evaluation: neither searching nor truncated.
    pub(crate) fn is_at_move(&self) -> bool {
        !matches!(self.phase, Phase::Searching | Phase::Truncated)
    }

    /// Chooses the move after a finished search, and keeps the search if the episode is watched. `outside` returns
    /// [`WatchedSearch::observation`] and [`WatchedSearch::picture`].
    pub(crate) fn choose_searched(
        &mut self,
        settings: &Settings,
        workspace: &mut Workspace,
        outside: impl FnOnce() -> (Option<Vec<f32>>, Option<String>),
    ) -> Choice {
        let choice = self.record.choose(settings, &self.search.tree, &mut workspace.policy);
        if workspace.watch.covers(self.record.slot()) {
            let (observation, picture) = outside();
            workspace.watch.keep(WatchedSearch {
                slot: self.record.slot(),
                number: self.record.number(),
                seed: self.record.start_seed(),
                plies: self.record.plies(),
                actions: if self.record.plies() > ACTIONS_MAX { Vec::new() } else { self.record.actions() },
                observation,
                picture,
                weights_version: self.tree_version,
                simulations: self.search.tree.root().simulations(),
                analysis: searched(&self.search.tree),
                played: choice.action,
            });
        }
        choice
    }

    /// Records a step of `mover` after a search. `outcome` is the outcome of the game after the step. Returns the end
    /// of an episode that can be finished; a truncated episode first needs the value of the last position.
    pub(crate) fn record_step(
        &mut self,
        Choice { action, kind, value }: Choice,
        mover: Player,
        reward: f32,
        outcome: Option<Outcome>,
        round: &mut Round,
    ) -> Option<(Outcome, Ending)> {
        self.record.push(action, reward, kind, self.tree_version);
        round.moves += 1;
        let resigned = self.record.resigned(mover, value).map(|outcome| (outcome, Ending::Resignation));
        let end = outcome.map(|outcome| (outcome, Ending::Rules)).or(resigned);
        self.phase = if end == Some(TRUNCATED) { Phase::Truncated } else { Phase::AtMove };
        end.filter(|&end| end != TRUNCATED)
    }

    /// Finishes the episode. `seed` and `truncation_value` are as in [`experience::Episode`].
    pub(crate) fn close(
        &mut self,
        seed: u64,
        settings: &Settings,
        end: (Outcome, Ending),
        truncation_value: f32,
        round: &mut Round,
    ) -> FinishedEpisode {
        (self.phase, self.leaves) = (Phase::Fresh, 0);
        self.record.finish(seed, settings, end, truncation_value, round)
    }
}

impl<S, W> TreeSet<S> for Vec<Episode<S, W>> {
    fn search(&mut self, owner: usize) -> &mut TreeSearch<S> {
        &mut self[owner].search
    }
}

impl<G: Game> Episode<G::Position, AtPosition<G>> {
    /// Creates the first episode of a slot.
    pub(crate) fn by_rules(game: &G, settings: &Settings, seed: u64, slot: usize) -> Self {
        let record = EpisodeRecord::new(game.spec().players, settings, seed, slot);
        let world = AtPosition(record.start(game));
        Self::new(record, settings, world)
    }

    /// Discards the running search, if any. The move is searched again from a new root.
    pub(crate) fn abandon(&mut self, settings: &Settings) {
        if self.phase == Phase::Searching {
            self.search = TreeSearch::new(&settings.search, self.record.slot());
            self.phase = Phase::AtMove;
        }
    }

    /// Advances the episode in a round: adds leaves to the batch, and plays all moves possible without an evaluation.
    pub(crate) fn gather(
        &mut self,
        driver: &mut ByRules<'_, G>,
        settings: &Settings,
        pace: Pace,
        workspace: &mut Workspace,
        finished: &mut Vec<FinishedEpisode>,
        round: &mut Round,
    ) {
        let ByRules { context, batcher, .. } = driver;
        self.keep_to(context.leaves.weights_version);
        let mut work = 0;
        while work < WORK_PER_ROUND_MAX {
            match self.phase {
                Phase::Fresh | Phase::Opening | Phase::AtMove if pace == Pace::Settle => return,
                Phase::Fresh | Phase::Opening => self.open(context, settings, workspace),
                Phase::AtMove => self.prepare(context.leaves.weights_version, settings),
                Phase::Searching => {
                    let (simulations, exploration) = self.record.budget(settings);
                    let limits = Limits { leaves: settings.leaves_per_tree, completed: WORK_PER_ROUND_MAX - work };
                    let Self { search, record, world: AtPosition(position), .. } = self;
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
                    self.leaves += u64::from(batcher.gather_last(context, self.record.slot(), &self.world.0));
                    return;
                }
            }
        }
    }

    /// Restarts a running search if the tree holds evaluations by another weights version, so that no tree mixes two
    /// versions. No leaf is in flight between rounds.
    fn keep_to(&mut self, weights_version: u64) {
        if !self.is_at_move() && self.tree_version != weights_version {
            self.tree_version = weights_version;
            self.search.restart();
        }
    }

    /// Plays the opening plies of an episode and prepares the first search.
    fn open(&mut self, context: &BatchContext<'_, G>, settings: &Settings, workspace: &mut Workspace) {
        let weights_version = context.leaves.weights_version;
        self.record.open(context.game, &mut self.world.0, settings, weights_version, &mut workspace.legal);
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
        let choice = self.choose_searched(settings, workspace, || (None, None));
        let position = &mut self.world.0;
        if matches!(choice.kind, StepKind::Full { .. }) {
            self.record.keep_position(Images::smallest(game, position).0);
        }
        let (action, mover) = (choice.action, game.to_move(position));
        let reward = game.play(position, action);
        let outcome = game.outcome(position);
        if let Some(end) = self.record_step(choice, mover, reward, outcome, round) {
            finished.push(self.finish(game, settings, end, 0.0, round));
        } else if self.phase == Phase::AtMove {
            // The result is ignored: the next search checks whether the tree still has a root.
            let _ = self.search.tree.advance(action);
        }
    }

    /// Finishes the episode, with the value of the last position after a truncation, and starts the next episode.
    pub(crate) fn finish(
        &mut self,
        game: &G,
        settings: &Settings,
        end: (Outcome, Ending),
        truncation_value: f32,
        round: &mut Round,
    ) -> FinishedEpisode {
        let seed = stored_seed(game, self.record.start_seed());
        let finished = self.close(seed, settings, end, truncation_value, round);
        self.world = AtPosition(self.record.start(game));
        finished
    }
}
