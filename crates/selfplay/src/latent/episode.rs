use game::{Game, Outcome};
use inference::Slot;
use search::Tree;

use crate::config::Settings;
use crate::episode::{Ending, EpisodeProgress, FinishedEpisode, Pace, Workspace};
use crate::latent::batcher::LatentBatcher;
use crate::record::{Choice, EpisodeRecord};
use crate::round::Round;
use crate::tree_search::TreeSearch;

/// One game or environment of many: its position by the rules, the tree of its search, and its record.
pub(crate) struct LatentEpisode<G: Game> {
    record: EpisodeRecord,
    position: G::Position,
    pub(crate) search: TreeSearch<Slot>,
    /// The weights version of every answer in the tree, while a search is under way and after it.
    tree_version: u64,
    phase: Phase,
    /// Observations and steps of this episode that went into batches.
    leaves: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing was played yet.
    Fresh,
    /// Between two moves.
    AtMove,
    Searching,
    /// The episode was cut short and needs the value of its last position.
    Truncated,
}

impl<G: Game> LatentEpisode<G> {
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

    /// True if anything was played in the episode.
    pub(crate) fn is_under_way(&self) -> bool {
        self.phase != Phase::Fresh
    }

    /// True if the episode needs no answer of a model.
    pub(crate) fn is_at_move(&self) -> bool {
        matches!(self.phase, Phase::Fresh | Phase::AtMove)
    }

    /// Makes the search under way, if there is one, start again from the observation.
    pub(crate) fn restart(&mut self) {
        self.search.restart();
    }

    /// Gathers this episode's share of a round, and plays the move of a finished search.
    #[expect(clippy::too_many_arguments, reason = "the parts of one round, each borrowed from another field")]
    pub(crate) fn gather(
        &mut self,
        game: &G,
        batcher: &mut LatentBatcher,
        weights_version: u64,
        settings: &Settings,
        pace: Pace,
        workspace: &mut Workspace,
        finished: &mut Vec<FinishedEpisode>,
        round: &mut Round,
    ) {
        if self.tree_version != weights_version {
            // No tree mixes two versions, and the pool of a new model is empty.
            self.tree_version = weights_version;
            self.search.restart();
        }
        loop {
            match self.phase {
                Phase::Fresh | Phase::AtMove if pace == Pace::Settle => return,
                Phase::Fresh => {
                    self.record.open(game, &mut self.position, settings, weights_version, &mut workspace.legal);
                    self.phase = Phase::AtMove;
                }
                Phase::AtMove => {
                    self.record.draw_kind(settings);
                    self.search.restart();
                    self.phase = Phase::Searching;
                }
                Phase::Searching => {
                    let (simulations, exploration) = self.record.budget(settings);
                    let Self { search, record, position, .. } = self;
                    let begin = |tree: &mut Tree<Slot>| tree.begin(simulations, exploration, record.rng());
                    let gathered = batcher.gather(game, search, position, settings.leaves_per_tree, begin);
                    self.leaves += gathered.waiting as u64;
                    if !gathered.is_finished {
                        return;
                    }
                    self.play(game, settings, workspace, finished, round);
                }
                Phase::Truncated => {
                    self.leaves += u64::from(batcher.gather_last(game, self.record.slot(), &self.position));
                    return;
                }
            }
        }
    }

    /// Ends a search: records it, plays its move, and ends the episode if that was the last one.
    fn play(
        &mut self,
        game: &G,
        settings: &Settings,
        workspace: &mut Workspace,
        finished: &mut Vec<FinishedEpisode>,
        round: &mut Round,
    ) {
        let Choice { action, kind, value } = self.record.choose(settings, &self.search.tree, &mut workspace.policy);
        let mover = game.to_move(&self.position);
        let reward = game.play(&mut self.position, action);
        self.record.push(action, reward, kind, self.tree_version);
        round.moves += 1;

        let resigned = self.record.resigned(mover, value).map(|outcome| (outcome, Ending::Resignation));
        let end = game.outcome(&self.position).map(|outcome| (outcome, Ending::Rules)).or(resigned);
        match end {
            None => self.phase = Phase::AtMove,
            Some((Outcome::Truncated, _)) => self.phase = Phase::Truncated,
            Some(end) => finished.push(self.finish(game, settings, end, 0.0, round)),
        }
    }

    /// Ends a truncated episode with the value of its last position.
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
        let finished = self.record.finish(game, settings, end, truncation_value, round);
        self.position = self.record.start(game);
        self.phase = Phase::Fresh;
        self.leaves = 0;
        finished
    }
}
