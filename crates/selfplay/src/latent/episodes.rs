use std::time::Instant;

use experience::{Element, ObservationLayout};
use game::{Environments, Frame, Game, Play, RulesEnvironments, Start, Started, Taken};
use inference::{LatentModel, Slot};

use crate::Error;
use crate::config::Settings;
use crate::episode::{EpisodeProgress, FinishedEpisode, Pace, Workspace};
use crate::latent::batcher::LatentBatcher;
use crate::latent::episode::{Advance, LatentEpisode};
use crate::latent::search_settings;
use crate::round::Round;
use crate::tree_search::{TreeSearch, TreeSet};

/// Plays many episodes of self-play concurrently and without end, on one thread, with search in a learned model.
///
/// Episodes are played by the rules of a game or in environments outside this process. One call of
/// [`Environments::step`] takes all actions that the searches of a round have found.
///
/// Every move's search starts from the observation of the position: no subtree, cache or proof is kept, whatever the
/// settings. Otherwise episodes are as in [`Episodes`](crate::Episodes): the moves depend on the seed, the slot and the
/// model's answers, not on the other episodes. Each episode starts from a seed derived from the seed, the slot and the
/// episode number. The value of a step is the value of the search, not rescaled. A truncated episode ends once the
/// model has valued the last observation. Lost episodes are counted, and nothing of them is kept.
pub struct LatentEpisodes {
    environments: Box<dyn Environments>,
    settings: Settings,
    episodes: Vec<LatentEpisode>,
    /// The slot that gathers first. It moves on by one in each round, so that every slot advances even where batches
    /// are too small for all.
    first: usize,
    batcher: LatentBatcher,
    workspace: Workspace,
    steps: Steps,
    finished: Vec<FinishedEpisode>,
    /// Counts of rounds that an error cut short; the next round reports them.
    unreported: Round,
}

/// The requests and results of one call of the environments; the memory is reused.
#[derive(Debug, Default)]
struct Steps {
    /// The slots that gather.
    gathering: Vec<usize>,
    starts: Vec<Start>,
    started: Vec<Started>,
    plays: Vec<Play>,
    taken: Vec<Taken>,
    observation: Vec<f32>,
}

impl std::fmt::Debug for LatentEpisodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("LatentEpisodes");
        debug.field("game", &self.environments.spec().name).field("settings", &self.settings).finish_non_exhaustive()
    }
}

struct Searches<'a>(&'a mut [LatentEpisode]);

impl TreeSet<Slot> for Searches<'_> {
    fn search(&mut self, owner: usize) -> &mut TreeSearch<Slot> {
        &mut self.0[owner].search
    }
}

impl LatentEpisodes {
    /// Creates `settings.games` episodes by the rules of a game; none has started. `discount` is γ for one step, above
    /// 0 and at most 1; between two players a step also changes the sign of values.
    #[must_use]
    pub fn new<G: Game>(game: G, settings: Settings, discount: f32, seed: u64) -> Self {
        let environments = Box::new(RulesEnvironments::new(game, settings.games));
        Self::in_environments(environments, settings, discount, seed)
    }

    /// Creates one episode for each of the idle environments; `settings.games` is not used.
    #[must_use]
    pub fn in_environments(environments: Box<dyn Environments>, settings: Settings, discount: f32, seed: u64) -> Self {
        let (spec, games) = (environments.spec(), environments.len());
        let settings = Settings { search: search_settings(&settings.search), games, ..settings };
        let simulations = settings.full_simulations.max(settings.fast_simulations).max(settings.full_simulations_max);
        let episode = |slot| LatentEpisode::new(&*environments, &settings, seed, slot).recorded(layout(&*environments));
        Self {
            episodes: (0..games).map(episode).collect(),
            first: 0,
            batcher: LatentBatcher::new(spec, games, simulations, discount),
            workspace: Workspace::default(),
            steps: Steps { observation: vec![0.0; spec.observation.len()], ..Steps::default() },
            finished: Vec::new(),
            unreported: Round::default(),
            environments,
            settings,
        }
    }

    /// Measures the time spent on observing in every round, by this clock.
    #[must_use]
    pub fn timed(mut self, clock: fn() -> Instant) -> Self {
        self.batcher.clock = Some(clock);
        self
    }

    /// Runs one round: plays the moves of finished searches, gathers the requests of all searches, evaluates them by at
    /// most one call of [`LatentModel::initial`] and one of [`LatentModel::recurrent`], and applies the answers.
    ///
    /// If the model has another weights version than the last one, every running search restarts;
    /// [`settle`](Self::settle) finishes them first. A new model of the same version needs [`restart`](Self::restart).
    ///
    /// # Errors
    /// [`Error::Model`]: all requests are then cancelled, the next round reports the counts, and the episodes can
    /// continue, with this model or another. [`Error::Environments`]: the episodes cannot continue.
    pub fn advance(&mut self, model: &mut dyn LatentModel) -> Result<Round, Error> {
        self.round(model, Pace::PlayOn)
    }

    /// Finishes every running search and starts none, so that new weights take effect between moves.
    ///
    /// # Errors
    /// As for [`advance`](Self::advance).
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

    /// Restarts every running search from the observation: the pool of a new model is empty, even where the weights are
    /// the same.
    pub fn restart(&mut self) {
        self.episodes.iter_mut().for_each(LatentEpisode::restart);
    }

    fn round(&mut self, model: &mut dyn LatentModel, pace: Pace) -> Result<Round, Error> {
        self.batcher.begin(model)?;
        let mut round = std::mem::take(&mut self.unreported);
        let gathered = self.gather(model.attributes().weights_version, pace, &mut round);
        self.first = (self.first + 1) % self.episodes.len();
        let mut searches = Searches(&mut self.episodes);
        let resolved = match gathered {
            Ok(()) => self.batcher.resolve(model, &mut searches, &mut round).map_err(Error::Model),
            Err(error) => {
                self.batcher.cancel(&mut searches);
                Err(error)
            }
        };
        for (slot, value) in self.batcher.last_values.drain(..) {
            let episode = &mut self.episodes[slot];
            self.finished.push(episode.finish_truncated(&*self.environments, &self.settings, value, &mut round));
        }
        match resolved {
            Ok(()) => Ok(round),
            Err(error) => {
                self.unreported = round;
                Err(error)
            }
        }
    }

    /// Gathers the requests of all searches, and takes the actions of finished searches.
    fn gather(&mut self, weights_version: u64, pace: Pace, round: &mut Round) -> Result<(), Error> {
        let games = self.episodes.len();
        self.steps.gathering.clear();
        self.steps.gathering.extend((0..games).map(|i| (self.first + i) % games));
        loop {
            if pace == Pace::PlayOn {
                self.begin()?;
            }
            let Self { environments, settings, episodes, batcher, workspace, steps, finished, .. } = self;
            steps.plays.clear();
            for slot in steps.gathering.drain(..) {
                let episode = &mut episodes[slot];
                let action = episode.gather(&**environments, batcher, weights_version, settings, pace, workspace);
                steps.plays.extend(action.map(|action| Play { environment: slot, action }));
            }
            if steps.plays.is_empty() {
                return Ok(());
            }
            environments.step(&steps.plays, &mut steps.taken)?;
            for (&Play { environment: slot, .. }, &taken) in steps.plays.iter().zip(&steps.taken) {
                let (episode, observation) = (&mut episodes[slot], &mut steps.observation);
                if episode.step(&**environments, settings, taken, observation, finished, round) == Advance::GoesOn {
                    steps.gathering.push(slot);
                }
            }
        }
    }

    /// Starts an episode in every gathering slot without one.
    fn begin(&mut self) -> Result<(), Error> {
        let Self { environments, settings, episodes, steps, .. } = self;
        steps.starts.clear();
        let fresh = steps.gathering.iter().map(|&slot| &episodes[slot]).filter(|episode| !episode.is_under_way());
        steps.starts.extend(fresh.map(LatentEpisode::start));
        if steps.starts.is_empty() {
            return Ok(());
        }
        environments.begin(&steps.starts, &mut steps.started)?;
        for (&Start { environment: slot, .. }, started) in steps.starts.iter().zip(&steps.started) {
            match started {
                Started::Now => episodes[slot].begin(&**environments, settings, &mut steps.observation),
                // The next try has another seed, since the environment may have refused this one.
                Started::NotYet => episodes[slot].drop_episode(settings),
            }
        }
        Ok(())
    }

    /// Returns the losses that the environments counted since they started.
    #[must_use]
    pub fn losses(&self) -> game::Losses {
        self.environments.losses()
    }

    /// Sets the simulations of full searches that start from now on; `settings.full_simulations` until then. A number
    /// above every maximum of the settings restarts the running searches, since the latent states then move in the
    /// pool.
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

    /// Number of games that advance together.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.episodes.len()
    }

    /// Returns the progress of the episode in a slot.
    ///
    /// # Panics
    /// If there is no such slot.
    #[must_use]
    pub fn progress(&self, slot: usize) -> EpisodeProgress {
        self.episodes[slot].progress()
    }

    /// Number of episodes that have started and are not finished.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.episodes.iter().filter(|episode| episode.is_under_way()).count()
    }
}

/// Returns the layout in which observations are recorded; `None` if the rules recompute them.
fn layout(environments: &dyn Environments) -> Option<ObservationLayout> {
    let spec = environments.spec();
    let stack = spec.recording?.stack;
    let element = match environments.frame(0)? {
        Frame::Bytes(_) => Element::U8,
        Frame::Floats(_) => Element::F32,
    };
    Some(ObservationLayout { element, frame_values: spec.observation.len() / stack, stack })
}

#[cfg(test)]
mod tests {
    use games::TicTacToe;
    use search::{Settings as SearchSettings, Solver, ValueRange};

    use super::*;

    #[test]
    fn nothing_is_proven_with_a_learned_model() {
        let search = SearchSettings { solver: Solver::On, values: ValueRange::Board, ..SearchSettings::default() };
        let episodes = LatentEpisodes::new(TicTacToe::new(), Settings { search, ..Settings::default() }, 1.0, 7);
        let SearchSettings { solver, values, .. } = episodes.settings.search;
        assert_eq!((solver, values), (Solver::Off, ValueRange::Normalised));
    }
}
