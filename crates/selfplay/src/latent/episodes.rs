use std::time::Instant;

use game::Game;
use inference::{Error, LatentModel, Slot};

use crate::config::Settings;
use crate::episode::{EpisodeProgress, FinishedEpisode, Pace, Workspace};
use crate::latent::batcher::LatentBatcher;
use crate::latent::episode::LatentEpisode;
use crate::latent::search_settings;
use crate::round::Round;
use crate::tree_search::{TreeSearch, TreeSet};

/// Plays many episodes of self-play concurrently and without end, on one thread, with search in a learned model.
///
/// Every move's search starts from the observation of the position: no subtree, cache or proof is kept, whatever the
/// settings. Episodes are those of [`Episodes`](crate::Episodes) otherwise: their moves depend on the seed, the slot
/// and the model's answers, not on the other episodes, and their rules start from a seed derived from the first two and
/// the number of the episode. The value of a step is that of the search, not rescaled. A truncated episode ends once
/// the model has valued its last observation.
pub struct LatentEpisodes<G: Game> {
    game: G,
    settings: Settings,
    episodes: Vec<LatentEpisode<G>>,
    /// The slot that gathers first: the one after that which gathered first in the round before, so that every slot
    /// advances even where batches are too small for all.
    first: usize,
    batcher: LatentBatcher,
    workspace: Workspace,
    finished: Vec<FinishedEpisode>,
    /// The counts of rounds that a model's error cut short; they are added to those of the next round.
    unreported: Round,
}

impl<G: Game> std::fmt::Debug for LatentEpisodes<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("LatentEpisodes");
        debug.field("game", &self.game).field("settings", &self.settings).finish_non_exhaustive()
    }
}

struct Searches<'a, G: Game>(&'a mut [LatentEpisode<G>]);

impl<G: Game> TreeSet<Slot> for Searches<'_, G> {
    fn search(&mut self, owner: usize) -> &mut TreeSearch<Slot> {
        &mut self.0[owner].search
    }
}

impl<G: Game> LatentEpisodes<G> {
    /// Creates `settings.games` episodes, none of which has begun. `discount` is the factor of a step, above 0 and at
    /// most 1; between two players a step also changes the sign of values.
    #[must_use]
    pub fn new(game: G, settings: Settings, discount: f32, seed: u64) -> Self {
        let settings = Settings { search: search_settings(&settings.search), ..settings };
        let simulations = settings.full_simulations.max(settings.fast_simulations).max(settings.full_simulations_max);
        let episodes = (0..settings.games).map(|slot| LatentEpisode::new(&game, &settings, seed, slot)).collect();
        Self {
            episodes,
            first: 0,
            batcher: LatentBatcher::new(&game, settings.games, simulations, discount),
            workspace: Workspace::default(),
            finished: Vec::new(),
            unreported: Round::default(),
            game,
            settings,
        }
    }

    /// Measures the time spent on observing in every round, by this clock.
    #[must_use]
    pub fn timed(mut self, clock: fn() -> Instant) -> Self {
        self.batcher.clock = Some(clock);
        self
    }

    /// Runs one round: plays the moves of finished searches, gathers the requests of all searches, evaluates them
    /// by at most one call of [`LatentModel::initial`] and one of [`LatentModel::recurrent`], and applies the answers.
    ///
    /// If the model has another weights version than the last one, every search under way restarts;
    /// [`settle`](Self::settle) finishes them first. A new model of the same version needs [`restart`](Self::restart).
    ///
    /// # Errors
    /// Those of the model. All requests are then cancelled, and the episodes can continue, with this model or another;
    /// the counts of the round are added to those of the next.
    pub fn advance(&mut self, model: &mut dyn LatentModel) -> Result<Round, Error> {
        self.round(model, Pace::PlayOn)
    }

    /// Finishes every search under way and begins none, so that new weights take effect between moves.
    ///
    /// # Errors
    /// Those of the model, as in [`advance`](Self::advance).
    pub fn settle(&mut self, model: &mut dyn LatentModel) -> Result<Round, Error> {
        let mut sum = Round::default();
        while !self.episodes.iter().all(LatentEpisode::is_at_move) {
            match self.round(model, Pace::Settle) {
                Ok(round) => sum += round,
                Err(error) => {
                    self.unreported += sum;
                    return Err(error);
                }
            }
        }
        Ok(sum)
    }

    /// Restarts every search under way from its observation: the pool of a new model is empty, even where its weights
    /// are the same.
    pub fn restart(&mut self) {
        self.episodes.iter_mut().for_each(LatentEpisode::restart);
    }

    fn round(&mut self, model: &mut dyn LatentModel, pace: Pace) -> Result<Round, Error> {
        self.batcher.begin(model)?;
        let mut round = std::mem::take(&mut self.unreported);
        let weights_version = model.attributes().weights_version;
        let games = self.episodes.len();
        for i in 0..games {
            self.episodes[(self.first + i) % games].gather(
                &self.game,
                &mut self.batcher,
                weights_version,
                &self.settings,
                pace,
                &mut self.workspace,
                &mut self.finished,
                &mut round,
            );
        }
        self.first = (self.first + 1) % games;
        let resolved = self.batcher.resolve(model, &mut Searches(&mut self.episodes), &mut round);
        for (slot, value) in self.batcher.last_values.drain(..) {
            let episode = &mut self.episodes[slot];
            self.finished.push(episode.finish_truncated(&self.game, &self.settings, value, &mut round));
        }
        match resolved {
            Ok(()) => Ok(round),
            Err(error) => {
                self.unreported = round;
                Err(error)
            }
        }
    }

    /// Sets the simulations of full searches that begin from now on; it is `settings.full_simulations` until then. More
    /// than any maximum of the settings restart the searches under way, since their states then move in the pool.
    pub fn search_fully_with(&mut self, simulations: u32) {
        self.settings.full_simulations = simulations;
        if self.batcher.allow(simulations) {
            self.restart();
        }
    }

    /// Returns the episodes that finished since the last call.
    pub fn drain_finished(&mut self) -> impl Iterator<Item = FinishedEpisode> + '_ {
        self.finished.drain(..)
    }

    /// The number of games that advance together.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.episodes.len()
    }

    /// The progress of the episode of a slot.
    ///
    /// # Panics
    /// If there is no such slot.
    #[must_use]
    pub fn progress(&self, slot: usize) -> EpisodeProgress {
        self.episodes[slot].progress()
    }

    /// The number of episodes that have begun and are not finished.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.episodes.iter().filter(|episode| episode.is_under_way()).count()
    }
}
