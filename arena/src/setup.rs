//! The constant parts of measuring: rules, settings, evaluators, solved positions. Start with [`Setup`].

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use evaluators::{Backend, Network};
use game::Game;
use games::GameKind;
use weights::{Manifest, WeightsVersion};

use crate::config::Settings;
use crate::contestant::{Contestant, SEQUENTIAL, analysis, draws, searcher};
use crate::solved::{self, SolvedPosition};
use crate::{accuracy, metrics};

/// The largest number of positions that are drawn, which is also the usual one: an oracle solves them in seconds.
const DRAWN_MAX: usize = 300;

/// The parts that the worker and its pacer share.
pub(crate) struct Setup<G> {
    /// The rules.
    pub(crate) game: G,
    /// The checked configuration.
    pub(crate) settings: Settings,
    /// The backend that builds evaluators.
    pub(crate) backend: Arc<dyn Backend>,
    /// The solved positions on which each version is measured; empty for games that have none.
    pub(crate) positions: Vec<SolvedPosition>,
}

impl<G: Game> Setup<G> {
    /// Selects the solved positions that are bundled with the game, at most as many as are configured. Where none are
    /// bundled, an oracle may score positions that the seed of the run determines.
    pub(crate) fn new(game: G, settings: Settings, backend: Arc<dyn Backend>) -> Self {
        let count_max = settings.arena.positions;
        let positions = match solved::bundled(&game) {
            Some(bundled) => accuracy::subset(bundled, count_max),
            None => {
                let game = game.spec().name.parse::<GameKind>().ok().filter(solved::is_measured);
                let draw = |game| solved::drawn(&game, settings.run.seed, count_max.min(DRAWN_MAX));
                game.and_then(draw).unwrap_or_default()
            }
        };
        Self { game, settings, backend, positions }
    }

    /// Builds the network of a version.
    ///
    /// # Errors
    /// If the weights are for another game or predict other values, or are of an AlphaZero network for a game that
    /// needs learned dynamics, or the backend fails.
    pub(crate) fn network(&self, manifest: &Manifest, bytes: &Bytes) -> anyhow::Result<Network> {
        let (game, weights) = (&self.game.spec().name, &manifest.architecture.game);
        anyhow::ensure!(weights == game, "weights of {weights}, not {game}");
        evaluators::check_values(self.game.spec(), manifest)?;
        if !manifest.architecture.model.has_dynamics() {
            selfplay::check_searchable(&self.game)?;
        }
        Ok(self.backend.build_network(manifest, bytes)?)
    }

    /// Returns a version as a player whose choice depends only on the position; with 0 simulations it plays the raw
    /// policy.
    pub(crate) fn searcher<'a>(
        &self,
        version: WeightsVersion,
        simulations: u32,
        network: &'a mut Network,
    ) -> Box<dyn Contestant<G> + 'a> {
        let run = &self.settings.run;
        let settings = analysis(simulations, &self.settings.search, run.discount, SEQUENTIAL);
        searcher(network, settings, draws(run.seed, version, 0))
    }

    /// Measures and publishes the accuracy on solved positions, if there are any; stops early when `pause` breaks.
    ///
    /// # Errors
    /// An error of the network.
    pub(crate) fn measure_accuracy(
        &self,
        version: WeightsVersion,
        simulations: u32,
        network: &mut Network,
        pause: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, inference::Error> {
        if self.positions.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let mut searcher = self.searcher(version, simulations, network);
        let Some(measured) = accuracy::measure(&self.game, &self.positions, &mut *searcher, pause)? else {
            return Ok(ControlFlow::Break(()));
        };
        metrics::accuracy(simulations, &measured);
        let (preserving, optimal) = (measured.overall.outcome_preserving_share(), measured.overall.optimal_share());
        tracing::info!(%version, simulations, positions = self.positions.len(), preserving, optimal, "solved positions");
        Ok(ControlFlow::Continue(()))
    }
}
