use std::time::Instant;

use experience::{Element, ObservationLayout};
use game::{Environments, Frame, Game, Play, RulesEnvironments, Start, Started, Taken};
use inference::LatentModel;

use crate::Error;
use crate::episode::{EpisodeProgress, FinishedEpisode, Pace, TRUNCATED, Workspace};
use crate::episodes::methods_of_slots;
use crate::latent::batcher::LatentBatcher;
use crate::latent::episode::{Advance, LatentEpisode};
use crate::latent::search_settings;
use crate::round::Round;
use crate::settings::Settings;
use crate::watch::WatchedSearch;

/// Plays an endless stream of concurrent self-play episodes on one thread, with search in a learned model.
///
/// Episodes are played by the rules of a game or in environments outside this process. One call of
/// [`Environments::step`] executes all actions chosen by the searches of a round.
///
/// The search of each move starts from the current observation: no subtree, cache or proof is used, regardless of the
/// settings. As in [`Episodes`](crate::Episodes), the moves of an episode depend on the seed, the slot and the model
/// predictions, but not on other episodes. The start seed of each episode is derived from the run seed, the slot and
/// the episode number. Step values are search values without rescaling. A truncated episode ends once the model has
/// evaluated the last observation. Episodes lost by an environment are counted and dropped.
pub struct LatentEpisodes {
    environments: Box<dyn Environments>,
    settings: Settings,
    episodes: Vec<LatentEpisode>,
    /// The slot that gathers requests first in the next round: one slot later in each round, so that every slot
    /// advances even if batches are too small for all slots.
    first: usize,
    batcher: LatentBatcher,
    workspace: Workspace,
    steps: Steps,
    finished: Vec<FinishedEpisode>,
    /// Counters of failed rounds, which are added to the result of the next successful round.
    unreported: Round,
}

/// Reusable buffers for the requests and results of calls to the environments.
#[derive(Debug, Default)]
struct Steps {
    /// The slots that still gather in this round.
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

impl LatentEpisodes {
    /// Creates `settings.games` slots for episodes by the rules of a game, with no episode started. `discount` is γ for
    /// one step, above 0 and at most 1. With two players, values also change sign at each step.
    #[must_use]
    pub fn new<G: Game>(game: G, settings: Settings, discount: f32, seed: u64) -> Self {
        let environments = Box::new(RulesEnvironments::new(game, settings.games));
        Self::in_environments(environments, settings, discount, seed)
    }

    /// Creates one slot for each of the idle environments. `settings.games` is ignored.
    #[must_use]
    pub fn in_environments(environments: Box<dyn Environments>, settings: Settings, discount: f32, seed: u64) -> Self {
        let (spec, games) = (environments.spec(), environments.len());
        let settings = Settings { search: search_settings(&settings.search), games, ..settings };
        let simulations = settings.full_simulations.max(settings.fast_simulations).max(settings.full_simulations_max);
        let episode =
            |slot| LatentEpisode::in_environment(&*environments, &settings, seed, slot, layout(&*environments));
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

    /// Enables measuring the observation time of every round ([`Round::observing`]), with the clock `clock`.
    #[must_use]
    pub fn timed(mut self, clock: fn() -> Instant) -> Self {
        self.batcher.clock = Some(clock);
        self
    }

    /// Runs one round: plays the moves of finished searches, gathers the requests of all searches, evaluates the
    /// requests and applies the predictions. A round has at most one call of [`LatentModel::initial`],
    /// [`LatentModel::act`] and [`LatentModel::recurrent`] each.
    ///
    /// If the weights version of the model has changed since the last round, every running search restarts. Call
    /// [`settle`](Self::settle) before the change to finish the searches instead. A new model with the same version
    /// requires [`restart`](Self::restart).
    ///
    /// # Errors
    /// [`Error::Model`]: all requests are cancelled, the next round includes the counters of this round, and the
    /// episodes can continue with this model or another. [`Error::Environments`]: the episodes cannot continue.
    pub fn advance(&mut self, model: &mut dyn LatentModel) -> Result<Round, Error> {
        self.round(model, Pace::PlayOn)
    }

    /// Finishes every running search without starting new searches, so that new weights take effect between moves.
    ///
    /// # Errors
    /// The same errors as [`advance`](Self::advance).
    pub fn settle(&mut self, model: &mut dyn LatentModel) -> Result<Round, Error> {
        let mut sum = Round::default();
        while !self.episodes.iter().all(LatentEpisode::is_at_move) {
            let round = self.round(model, Pace::Settle).inspect_err(|_| self.unreported += sum)?;
            sum += round;
        }
        Ok(sum)
    }

    /// Restarts every running search from the observation. Required for a new model with the same weights version,
    /// because the state pool of a new model is empty.
    pub fn restart(&mut self) {
        self.episodes.iter_mut().for_each(LatentEpisode::restart);
    }

    fn round(&mut self, model: &mut dyn LatentModel, pace: Pace) -> Result<Round, Error> {
        self.batcher.begin(model)?;
        let mut round = std::mem::take(&mut self.unreported);
        let gathered = self.gather(model.attributes().weights_version, pace, &mut round);
        self.first = (self.first + 1) % self.episodes.len();
        let resolved = match gathered {
            Ok(()) => self.batcher.resolve(model, &mut self.episodes, &mut round).map_err(Error::Model),
            Err(error) => {
                self.batcher.cancel(&mut self.episodes);
                Err(error)
            }
        };
        for (slot, value) in self.batcher.last_values.drain(..) {
            let episode = &mut self.episodes[slot];
            self.finished.push(episode.finish(&*self.environments, &self.settings, TRUNCATED, value, &mut round));
        }
        resolved.map(|()| round).inspect_err(|_| self.unreported = round)
    }

    /// Gathers the requests of all searches, and executes the actions of finished searches.
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
                let action = episode.gather(&mut **environments, batcher, weights_version, settings, pace, workspace);
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

    /// Starts an episode in every gathering slot that has no running episode.
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
                // The next attempt uses another seed, since the environment may have rejected this seed.
                Started::NotYet => episodes[slot].drop_episode(settings),
            }
        }
        Ok(())
    }

    /// Returns how many processes, environments and episodes have been lost since the start.
    #[must_use]
    pub fn losses(&self) -> game::Losses {
        self.environments.losses()
    }

    /// Sets the number of simulations for new full searches; the initial number is `settings.full_simulations`. A
    /// number above all limits in the settings restarts the running searches, because the latent states move within
    /// the pool.
    pub fn search_fully_with(&mut self, simulations: u32) {
        self.settings.full_simulations = simulations;
        if self.batcher.allow(simulations) {
            self.restart();
        }
    }

    methods_of_slots!();
}

/// Returns the layout of recorded observations. `None` if the rules can recompute observations.
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
