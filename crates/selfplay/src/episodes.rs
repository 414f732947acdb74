use std::time::Instant;

use game::Game;
use inference::{Error, Evaluator, WeightsCache};

use crate::driver::{ByRules, Driver};
use crate::episode::{AtPosition, Episode, EpisodeProgress, FinishedEpisode, Pace, TRUNCATED, Workspace};
use crate::leaf_batcher::{BatchContext, Buffers, LeafBatcher, NetworkLeaves};
use crate::round::Round;
use crate::settings::Settings;
use crate::tree_search::settings_by_rules;
use crate::watch::WatchedSearch;

/// Expands to the methods that episodes with search by the rules and in a learned model have in common.
macro_rules! methods_of_slots {
    () => {
        /// Keeps the latest search of the first `slots` slots for [`take_watched`](Self::take_watched); at first of
        /// none.
        pub fn watch(&mut self, slots: usize) {
            self.workspace.watch.only(slots);
        }

        /// Returns the searches finished in watched slots since the last call, at most one of each slot: the latest.
        pub fn take_watched(&mut self) -> Vec<WatchedSearch> {
            self.workspace.watch.take()
        }

        /// Returns the episodes finished since the last call.
        pub fn drain_finished(&mut self) -> impl Iterator<Item = FinishedEpisode> + '_ {
            self.finished.drain(..)
        }

        /// Returns the number of concurrent episodes.
        #[must_use]
        pub fn slots(&self) -> usize {
            self.episodes.len()
        }

        /// Returns the progress of the episode in the slot `slot`.
        ///
        /// # Panics
        /// If `slot` is not below [`slots`](Self::slots).
        #[must_use]
        pub fn progress(&self, slot: usize) -> EpisodeProgress {
            self.episodes[slot].progress()
        }

        /// Returns the number of started and unfinished episodes.
        #[must_use]
        pub fn under_way(&self) -> usize {
            self.episodes.iter().filter(|episode| episode.is_under_way()).count()
        }
    };
}
pub(crate) use methods_of_slots;

/// Plays an endless stream of concurrent self-play episodes on one thread, with search by the rules.
///
/// The moves of an episode depend on the seed, the slot and the evaluator predictions, but not on other episodes. In
/// games scored by rewards, the evaluator predicts returns, searches are as in [`analyse`](crate::analyse), and the
/// cache is not used. A truncated episode ends once the evaluator has evaluated the last position. No subtree is kept
/// after a move with a chance outcome.
pub struct Episodes<G: Game> {
    game: G,
    settings: Settings,
    /// The discount γ for each step of the game.
    discount: f32,
    episodes: Vec<Episode<G::Position, AtPosition<G>>>,
    /// The slot that gathers leaves first in the next round: the first slot without room in the last full batch.
    first: usize,
    batcher: LeafBatcher<G>,
    buffers: Buffers,
    workspace: Workspace,
    finished: Vec<FinishedEpisode>,
    /// Counters of failed rounds, which are added to the result of the next successful round.
    unreported: Round,
}

impl<G: Game> std::fmt::Debug for Episodes<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Episodes").field("game", &self.game).field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl<G: Game> Episodes<G> {
    /// Creates `settings.games` slots, with no episode started. `discount` is γ for one step; 1 in games scored by
    /// outcome.
    #[must_use]
    pub fn new(game: G, settings: Settings, discount: f32, seed: u64) -> Self {
        let settings = Settings { search: settings_by_rules(game.spec(), &settings.search), ..settings };
        let episode = |slot| Episode::by_rules(&game, &settings, seed, slot);
        let episodes = (0..settings.games).map(episode).collect();
        Self {
            episodes,
            first: 0,
            batcher: LeafBatcher::new(&game),
            buffers: Buffers::new(&game),
            workspace: Workspace::default(),
            finished: Vec::new(),
            unreported: Round::default(),
            game,
            settings,
            discount,
        }
    }

    /// Enables measuring the observation time of every round ([`Round::observing`]), with the clock `clock`.
    #[must_use]
    pub fn timed(mut self, clock: fn() -> Instant) -> Self {
        self.batcher.clock = Some(clock);
        self
    }

    /// Runs one round: gathers leaves from all games, evaluates the leaves missing from the cache as one batch and
    /// applies the predictions.
    ///
    /// If the weights version of the evaluator has changed since the last round, every running search restarts. Call
    /// [`settle`](Self::settle) before the change to finish the searches instead.
    ///
    /// # Errors
    /// The evaluator fails. All leaves of the round are cancelled, the next round includes the counters of this round,
    /// and the episodes can continue with this evaluator or another.
    pub fn advance(&mut self, evaluator: &mut dyn Evaluator, cache: Option<WeightsCache<'_>>) -> Result<Round, Error> {
        self.round(evaluator, cache, Pace::PlayOn)
    }

    /// Finishes every running search without starting new searches, so that new weights take effect between moves.
    ///
    /// # Errors
    /// The evaluator fails, as in [`advance`](Self::advance).
    pub fn settle(&mut self, evaluator: &mut dyn Evaluator, cache: Option<WeightsCache<'_>>) -> Result<Round, Error> {
        let mut sum = Round::default();
        while !self.episodes.iter().all(Episode::is_at_move) {
            let round = self.round(evaluator, cache, Pace::Settle).inspect_err(|_| self.unreported += sum)?;
            sum += round;
        }
        Ok(sum)
    }

    /// Abandons every running search; the next round searches the same positions again from new roots. Call this before
    /// replacing an evaluator that has failed, and with which [`settle`](Self::settle) is therefore impossible: no
    /// search then mixes the predictions of two evaluators.
    pub fn abandon(&mut self) {
        for episode in &mut self.episodes {
            episode.abandon(&self.settings);
        }
    }

    fn round(
        &mut self,
        evaluator: &mut dyn Evaluator,
        cache: Option<WeightsCache<'_>>,
        pace: Pace,
    ) -> Result<Round, Error> {
        let mut round = std::mem::take(&mut self.unreported);
        let mut leaves = NetworkLeaves::new(evaluator, &mut self.buffers);
        let context = BatchContext::new(&self.game, self.discount, &leaves);
        let context = context.sharing(cache, self.settings.symmetry_reuse);
        let mut driver = ByRules { context, batcher: &mut self.batcher, leaves: &mut leaves };

        let games = self.episodes.len();
        let first = self.first;
        for i in 0..games {
            let slot = (first + i) % games;
            if driver.is_full() {
                self.first = slot;
                break;
            }
            self.episodes[slot].gather(
                &mut driver,
                &self.settings,
                pace,
                &mut self.workspace,
                &mut self.finished,
                &mut round,
            );
        }

        let resolved = driver.resolve(&mut self.episodes, &mut round);
        for (slot, value) in self.batcher.last_values.drain(..) {
            let episode = &mut self.episodes[slot];
            self.finished.push(episode.finish(&self.game, &self.settings, TRUNCATED, value, &mut round));
        }
        resolved.map(|()| round).inspect_err(|_| self.unreported = round)
    }

    /// Sets the number of simulations for new full searches; the initial number is `settings.full_simulations`.
    pub fn search_fully_with(&mut self, simulations: u32) {
        self.settings.full_simulations = simulations;
    }

    methods_of_slots!();
}

#[cfg(test)]
mod tests;
