//! The self-play of one thread with either kind of network: search by the rules with an AlphaZero network, search in
//! latent states with a MuZero network. The manifest of the first weights decides which; [`Play::load`] changes it where
//! later weights are of the other kind.

use std::time::Instant;

use evaluators::Network;
use game::Game;
use inference::{Cache, Error, Evaluator, LatentModel};
use selfplay::{EpisodeProgress, Episodes, FinishedEpisode, LatentEpisodes, Round, Settings};
use service::trace::TraceContext;

use crate::stopwatch::{Evaluated, Parts, Timed};

/// Many episodes, and the network that searches them.
pub(crate) struct Play<G: Game> {
    start: Start<G>,
    driver: Driver<G>,
}

/// The arguments of new episodes.
struct Start<G> {
    game: G,
    settings: Settings,
    discount: f32,
    seed: u64,
}

/// The episodes of one kind of network. The network is `None` before the first weights and after one was unloaded.
enum Driver<G: Game> {
    Rules { episodes: Episodes<G>, evaluator: Option<Timed<dyn Evaluator>> },
    Latent { episodes: LatentEpisodes<G>, model: Option<Timed<dyn LatentModel>> },
}

/// One call of the episodes.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) result: Result<Round, Error>,
    pub(crate) parts: Parts,
    /// The traced batch, if there was one.
    pub(crate) shown: Option<Evaluated>,
}

/// The length of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// One round, of at most one batch of each kind.
    Advance,
    /// As many rounds as finish every search under way; none begins.
    Settle,
}

impl<G: Game> Play<G> {
    /// Creates the episodes of an AlphaZero network, without a network; none has begun.
    pub(crate) fn new(game: G, settings: Settings, discount: f32, seed: u64) -> Self {
        let start = Start { game, settings, discount, seed };
        let driver = Driver::Rules { episodes: start.episodes(), evaluator: None };
        Self { start, driver }
    }

    /// The game.
    pub(crate) fn game(&self) -> &G {
        &self.start.game
    }

    /// Returns true if a network is loaded.
    pub(crate) fn is_loaded(&self) -> bool {
        match &self.driver {
            Driver::Rules { evaluator, .. } => evaluator.is_some(),
            Driver::Latent { model, .. } => model.is_some(),
        }
    }

    /// The version of the loaded weights.
    #[cfg(test)]
    pub(crate) fn weights_version(&self) -> Option<u64> {
        let attributes = match &self.driver {
            Driver::Rules { evaluator, .. } => evaluator.as_ref()?.attributes(),
            Driver::Latent { model, .. } => model.as_ref()?.attributes(),
        };
        Some(attributes.weights_version)
    }

    /// Unloads the network; the episodes continue with the next.
    pub(crate) fn unload(&mut self) {
        match &mut self.driver {
            Driver::Rules { evaluator, .. } => *evaluator = None,
            Driver::Latent { model, .. } => *model = None,
        }
    }

    /// Replaces the network; searches under way begin again. Episodes of the other kind of network are replaced by
    /// new ones. Returns how many of them were under way.
    pub(crate) fn load(&mut self, network: Network) -> usize {
        let before = self.under_way();
        match (&mut self.driver, network) {
            (Driver::Rules { episodes, evaluator }, Network::Evaluator(new)) => {
                episodes.abandon();
                *evaluator = Some(Timed::new(new, Instant::now));
                0
            }
            (Driver::Latent { episodes, model }, Network::Latent(new)) => {
                episodes.restart();
                *model = Some(Timed::new(new, Instant::now));
                0
            }
            (Driver::Latent { .. }, Network::Evaluator(new)) => {
                let evaluator = Some(Timed::new(new, Instant::now));
                self.driver = Driver::Rules { episodes: self.start.episodes(), evaluator };
                before
            }
            (Driver::Rules { .. }, Network::Latent(new)) => {
                let model = Some(Timed::new(new, Instant::now));
                self.driver = Driver::Latent { episodes: self.start.latent_episodes(), model };
                before
            }
        }
    }

    /// Calls the episodes and measures the call; `None` without a network. `trace` is the context of the first batch,
    /// if it is traced. Only a search by the rules uses the cache.
    pub(crate) fn call(&mut self, pace: Pace, cache: Option<&Cache>, trace: Option<TraceContext>) -> Option<Call> {
        match &mut self.driver {
            Driver::Rules { episodes, evaluator } => Some(timed(evaluator.as_mut()?, trace, |evaluator| match pace {
                Pace::Advance => episodes.advance(evaluator, cache),
                Pace::Settle => episodes.settle(evaluator, cache),
            })),
            Driver::Latent { episodes, model } => Some(timed(model.as_mut()?, trace, |model| match pace {
                Pace::Advance => episodes.advance(model),
                Pace::Settle => episodes.settle(model),
            })),
        }
    }

    /// Sets the simulations of full searches that begin from now on.
    pub(crate) fn search_fully_with(&mut self, simulations: u32) {
        self.start.settings.full_simulations = simulations;
        match &mut self.driver {
            Driver::Rules { episodes, .. } => episodes.search_fully_with(simulations),
            Driver::Latent { episodes, .. } => episodes.search_fully_with(simulations),
        }
    }

    /// Returns the episodes that finished since the last call.
    pub(crate) fn drain_finished(&mut self) -> Vec<FinishedEpisode> {
        match &mut self.driver {
            Driver::Rules { episodes, .. } => episodes.drain_finished().collect(),
            Driver::Latent { episodes, .. } => episodes.drain_finished().collect(),
        }
    }

    /// The number of episodes that advance together.
    pub(crate) fn slots(&self) -> usize {
        self.start.settings.games
    }

    /// The progress of the episode of a slot.
    pub(crate) fn progress(&self, slot: usize) -> EpisodeProgress {
        match &self.driver {
            Driver::Rules { episodes, .. } => episodes.progress(slot),
            Driver::Latent { episodes, .. } => episodes.progress(slot),
        }
    }

    /// The number of episodes that have begun and are not finished.
    pub(crate) fn under_way(&self) -> usize {
        match &self.driver {
            Driver::Rules { episodes, .. } => episodes.under_way(),
            Driver::Latent { episodes, .. } => episodes.under_way(),
        }
    }
}

impl<G: Game> Start<G> {
    fn episodes(&self) -> Episodes<G> {
        Episodes::new(self.game.clone(), self.settings.clone(), self.seed).timed(Instant::now)
    }

    fn latent_episodes(&self) -> LatentEpisodes<G> {
        LatentEpisodes::new(self.game.clone(), self.settings.clone(), self.discount, self.seed).timed(Instant::now)
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
