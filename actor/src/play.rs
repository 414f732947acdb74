//! Plays the episodes of one thread with either kind of network: by the rules with an AlphaZero network, in latent
//! states with a MuZero network. The manifest of the first weights decides the kind; [`Play::load`] switches if later
//! weights have the other kind.

use std::time::Instant;

use evaluators::Network;
use game::{Environments, Game, Losses, mix};
use inference::{Evaluator, LatentModel, WeightsCache};
use selfplay::{EpisodeProgress, Episodes, Error, FinishedEpisode, LatentEpisodes, Round, Settings, WatchedSearch};
use service::trace::TraceContext;

use crate::stopwatch::{Evaluated, Parts, Timed};

/// The concurrent episodes of one thread, and the network that searches them.
pub(crate) struct Play<G: Game> {
    game: G,
    settings: Settings,
    /// The discount γ for each step.
    discount: f32,
    /// Seed for the next driver.
    seed: u64,
    /// The driver of the episodes; `None` before the first weights.
    driver: Option<Driver<G>>,
    /// Finished episodes of an earlier driver.
    finished: Vec<FinishedEpisode>,
    /// Environments of the first driver, if the game runs outside this process.
    environments: Option<Box<dyn Environments>>,
}

/// The episodes of one kind of network. The network is `None` after unloading.
enum Driver<G: Game> {
    Rules { episodes: Episodes<G>, evaluator: Option<Timed<dyn Evaluator>> },
    Latent { episodes: LatentEpisodes, model: Option<Timed<dyn LatentModel>> },
}

/// Evaluates an expression with `$episodes` as the episodes of a driver, whatever the kind of network.
macro_rules! with_episodes {
    ($driver:expr, $episodes:ident => $body:expr) => {
        match $driver {
            Driver::Rules { episodes: $episodes, .. } => $body,
            Driver::Latent { episodes: $episodes, .. } => $body,
        }
    };
}

/// Measurements and counters of one call of the episodes.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) result: Result<Round, Error>,
    pub(crate) parts: Parts,
    /// The traced batch, if there was one.
    pub(crate) shown: Option<Evaluated>,
}

/// How far a call advances the episodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// One round, with at most one batch of each kind.
    Advance,
    /// As many rounds as it takes to finish every search in progress; no new search starts.
    Settle,
}

/// The effect of new weights on the episodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loaded {
    /// The episodes continue.
    GoesOn,
    /// The episodes were replaced by another kind of network; `dropped` were in progress.
    Replaced {
        /// Number of dropped episodes in progress.
        dropped: usize,
    },
}

impl<G: Game> Play<G> {
    /// Prepares the episodes, which start once a network is loaded.
    pub(crate) fn new(game: G, settings: Settings, discount: f32, seed: u64) -> Self {
        Self { game, settings, discount, seed, driver: None, finished: Vec::new(), environments: None }
    }

    /// Plays in these environments instead of by the rules of the game. Only a learned model can search environments,
    /// so the kind of network never changes.
    pub(crate) fn in_environments(self, environments: Option<Box<dyn Environments>>) -> Self {
        Self { environments, ..self }
    }

    /// Returns the rules of the game.
    pub(crate) fn game(&self) -> &G {
        &self.game
    }

    /// Returns true if a network is loaded.
    pub(crate) fn is_loaded(&self) -> bool {
        match &self.driver {
            None => false,
            Some(Driver::Rules { evaluator, .. }) => evaluator.is_some(),
            Some(Driver::Latent { model, .. }) => model.is_some(),
        }
    }

    /// Returns the version of the loaded weights.
    #[cfg(test)]
    pub(crate) fn weights_version(&self) -> Option<u64> {
        let attributes = match self.driver.as_ref()? {
            Driver::Rules { evaluator, .. } => evaluator.as_ref()?.attributes(),
            Driver::Latent { model, .. } => model.as_ref()?.attributes(),
        };
        Some(attributes.weights_version)
    }

    /// Unloads the network; the episodes continue with the next.
    pub(crate) fn unload(&mut self) {
        match &mut self.driver {
            None => {}
            Some(Driver::Rules { evaluator, .. }) => *evaluator = None,
            Some(Driver::Latent { model, .. }) => *model = None,
        }
    }

    /// Replaces the network; searches in progress restart. If the network kind changes, new episodes replace all
    /// episodes.
    pub(crate) fn load(&mut self, network: Network) -> Loaded {
        match (&mut self.driver, network) {
            (Some(Driver::Rules { episodes, evaluator }), Network::Evaluator(new)) => {
                episodes.abandon();
                *evaluator = Some(Timed::new(new, beat_at));
                Loaded::GoesOn
            }
            (Some(Driver::Latent { episodes, model }), Network::Latent(new)) => {
                episodes.restart();
                *model = Some(Timed::new(new, beat_at));
                Loaded::GoesOn
            }
            (before, network) => {
                let is_first = before.is_none();
                let dropped = self.under_way();
                self.finished = self.drain_finished();
                self.driver = Some(self.begin(network));
                // The next driver must not repeat the games of this driver.
                self.seed = mix(self.seed);
                if is_first { Loaded::GoesOn } else { Loaded::Replaced { dropped } }
            }
        }
    }

    fn begin(&mut self, network: Network) -> Driver<G> {
        let Self { game, settings, discount, seed, environments, .. } = self;
        let (game, settings) = (game.clone(), settings.clone());
        match network {
            Network::Evaluator(new) => Driver::Rules {
                episodes: Episodes::new(game, settings, *discount, *seed).timed(Instant::now),
                evaluator: Some(Timed::new(new, beat_at)),
            },
            Network::Latent(new) => {
                let episodes = match environments.take() {
                    Some(outside) => LatentEpisodes::in_environments(outside, settings, *discount, *seed),
                    None => LatentEpisodes::new(game, settings, *discount, *seed),
                };
                let model = Some(Timed::new(new, beat_at));
                Driver::Latent { episodes: episodes.timed(Instant::now), model }
            }
        }
    }

    /// Runs the episodes at this pace and measures the call; returns `None` without a network. `trace` is the trace
    /// context of the first batch, if that batch is traced. Only search by the rules uses the cache.
    pub(crate) fn call(
        &mut self,
        pace: Pace,
        cache: Option<WeightsCache<'_>>,
        trace: Option<TraceContext>,
    ) -> Option<Call> {
        match self.driver.as_mut()? {
            Driver::Rules { episodes, evaluator } => Some(timed(evaluator.as_mut()?, trace, |evaluator| match pace {
                Pace::Advance => episodes.advance(evaluator, cache).map_err(Error::Model),
                Pace::Settle => episodes.settle(evaluator, cache).map_err(Error::Model),
            })),
            Driver::Latent { episodes, model } => Some(timed(model.as_mut()?, trace, |model| match pace {
                Pace::Advance => episodes.advance(model),
                Pace::Settle => episodes.settle(model),
            })),
        }
    }

    /// Sets the number of simulations for full searches that start later.
    pub(crate) fn search_fully_with(&mut self, simulations: u32) {
        self.settings.full_simulations = simulations;
        if let Some(driver) = &mut self.driver {
            with_episodes!(driver, episodes => episodes.search_fully_with(simulations));
        }
    }

    /// Keeps the latest search of the first `slots` slots, until another network kind replaces the episodes.
    pub(crate) fn watch(&mut self, slots: usize) {
        if let Some(driver) = &mut self.driver {
            with_episodes!(driver, episodes => episodes.watch(slots));
        }
    }

    /// Returns the latest searches of watched slots that finished since the last call.
    pub(crate) fn take_watched(&mut self) -> Vec<WatchedSearch> {
        let Some(driver) = &mut self.driver else { return Vec::new() };
        with_episodes!(driver, episodes => episodes.take_watched())
    }

    /// Returns the episodes that finished since the last call.
    pub(crate) fn drain_finished(&mut self) -> Vec<FinishedEpisode> {
        let mut finished = std::mem::take(&mut self.finished);
        if let Some(driver) = &mut self.driver {
            with_episodes!(driver, episodes => finished.extend(episodes.drain_finished()));
        }
        finished
    }

    /// Returns the counts of failures and lost episodes in environments outside this process.
    pub(crate) fn losses(&self) -> Losses {
        match &self.driver {
            Some(Driver::Latent { episodes, .. }) => episodes.losses(),
            None | Some(Driver::Rules { .. }) => Losses::default(),
        }
    }

    /// Returns the number of concurrent episodes.
    pub(crate) fn slots(&self) -> usize {
        self.settings.games
    }

    /// Returns the progress of a slot's episode.
    pub(crate) fn progress(&self, slot: usize) -> EpisodeProgress {
        let Some(driver) = &self.driver else { return EpisodeProgress { number: 0, plies: 0, leaves: 0 } };
        with_episodes!(driver, episodes => episodes.progress(slot))
    }

    /// Returns the number of episodes in progress.
    pub(crate) fn under_way(&self) -> usize {
        let Some(driver) = &self.driver else { return 0 };
        with_episodes!(driver, episodes => episodes.under_way())
    }
}

fn timed<N: ?Sized>(
    network: &mut Timed<N>,
    trace: Option<TraceContext>,
    call: impl FnOnce(&mut Timed<N>) -> Result<Round, Error>,
) -> Call {
    network.show(trace);
    network.begin();
    let result = call(network);
    Call { result, parts: network.end(), shown: network.shown() }
}

/// Returns the current time, at the start or end of a batch, and marks the thread as making progress.
fn beat_at() -> Instant {
    service::beat();
    Instant::now()
}
