//! Holds what stays constant between measurements: rules, settings, evaluators, solved positions. Start with [`Setup`].

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use evaluators::{Backend, Network};
use game::Game;
use games::GameKind;
use run_file::arena::Settings;
use strength::accuracy;
use strength::contestant::{SEQUENTIAL, Searcher, analysis, draws};
use strength::solved::{self, SolvedPosition};
use weights::{Manifest, WeightsVersion};

use crate::metrics;

/// Maximum number of positions to draw, which is also the usual number. An oracle solves this many positions in
/// seconds.
const DRAWN_MAX: usize = 300;

/// Everything that the worker and the pacer share.
pub(crate) struct Setup<G> {
    /// Rules of the game.
    pub(crate) game: G,
    /// Checked configuration.
    pub(crate) settings: Settings,
    /// Backend that builds evaluators.
    pub(crate) backend: Arc<dyn Backend>,
    /// Solved positions on which each version is measured. Unset until [`Self::draw_positions`], unless the game
    /// bundles them.
    pub(crate) positions: OnceLock<Vec<SolvedPosition>>,
}

impl<G: Game> Setup<G> {
    /// Selects the solved positions bundled with the game, at most the configured number; none if positions are to be
    /// drawn.
    pub(crate) fn new(game: G, settings: Settings, backend: Arc<dyn Backend>) -> Self {
        let bundled = if settings.arena.draw_positions { None } else { solved::bundled(&game) };
        let bundled = bundled.map(|bundled| accuracy::subset(bundled, settings.arena.positions));
        let positions = bundled.map(OnceLock::from).unwrap_or_default();
        Self { game, settings, backend, positions }
    }

    /// Draws positions from the run's seed, if none are selected and the game has an oracle. `pause` is called after
    /// each position; stops early when it breaks.
    pub(crate) fn draw_positions(&self, pause: &mut dyn FnMut() -> ControlFlow<()>) -> ControlFlow<()> {
        if self.positions.get().is_some() {
            return ControlFlow::Continue(());
        }
        let game = self.game.spec().name.parse::<GameKind>().ok().filter(solved::is_measured);
        let count = self.settings.arena.positions.min(DRAWN_MAX);
        let mut positions = Vec::new();
        for position in game.and_then(|game| solved::drawn(&game, self.settings.run.seed, count)).into_iter().flatten()
        {
            positions.push(position);
            pause()?;
        }
        self.positions.get_or_init(|| positions);
        ControlFlow::Continue(())
    }

    /// Returns the solved positions on which each version is measured; empty for games without any.
    pub(crate) fn positions(&self) -> &[SolvedPosition] {
        self.positions.get().map_or(&[], Vec::as_slice)
    }

    /// Builds the network of a version.
    ///
    /// # Errors
    /// The weights do not suit the game, or come from an AlphaZero network for a game that needs learned dynamics, or
    /// the backend fails.
    pub(crate) fn network(&self, manifest: &Manifest, bytes: &Bytes) -> anyhow::Result<Network> {
        let manifest = evaluators::suited(manifest, self.game.spec())?;
        if !manifest.architecture.model.has_dynamics() {
            selfplay::check_searchable(&self.game)?;
        }
        Ok(self.backend.build_network(&manifest, bytes)?)
    }

    /// Returns a player with the weights of a version. Its choice depends only on the position; with 0 simulations, it
    /// plays the raw policy.
    pub(crate) fn searcher<'a>(
        &self,
        version: WeightsVersion,
        simulations: u32,
        network: &'a mut Network,
    ) -> Searcher<'a> {
        let run = &self.settings.run;
        let settings = analysis(simulations, &self.settings.search, run.discount, SEQUENTIAL);
        Searcher::new(network, settings, draws(run.seed, version, 0))
    }

    /// Measures and publishes the accuracy on solved positions, if there are any; stops early when `pause` breaks.
    ///
    /// # Errors
    /// The network fails.
    pub(crate) fn measure_accuracy(
        &self,
        version: WeightsVersion,
        simulations: u32,
        network: &mut Network,
        pause: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, inference::Error> {
        if self.positions().is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let mut searcher = self.searcher(version, simulations, network);
        let Some(measured) = accuracy::measure(&self.game, self.positions(), &mut searcher, pause)? else {
            return Ok(ControlFlow::Break(()));
        };
        metrics::accuracy(simulations, &measured);
        let (preserving, optimal) = (measured.overall.outcome_preserving_share(), measured.overall.optimal_share());
        tracing::info!(
            %version, simulations, positions = self.positions().len(), preserving, optimal,
            "measured accuracy on solved positions"
        );
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use evaluator_doubles::Uniform;
    use games::{ConnectFour, Hex, hex};
    use inference::Evaluator;
    use run_file::arena::Config;

    use super::*;

    /// Returns the setup of a game that measures 20 positions, with changed settings.
    fn setup<G: Game>(rules: G, change: impl FnOnce(&mut Config)) -> Setup<G> {
        let observation = rules.spec().observation;
        let build = move |_: &Manifest, _: &Bytes| -> Result<Box<dyn Evaluator>, evaluators::Error> {
            Ok(Box::new(Uniform::new(observation)))
        };
        let mut config = Config::default();
        config.run.game = rules.spec().name.clone();
        config.arena.positions = 20;
        change(&mut config);
        Setup::new(rules, config.settings().unwrap(), Arc::new(build))
    }

    #[test]
    fn positions_are_bundled_or_drawn_from_the_seed_of_the_run() {
        let setup = |drawn: bool, seed: u64| {
            let change = |config: &mut Config| (config.arena.draw_positions, config.run.seed) = (drawn, seed);
            let setup = setup(ConnectFour::new(), change);
            assert!(setup.draw_positions(&mut || ControlFlow::Continue(())).is_continue());
            setup.positions().to_vec()
        };
        assert_eq!(setup(false, 1), setup(false, 2));
        let drawn = setup(true, 1);
        assert!(drawn.len() == 20 && drawn == setup(true, 1) && drawn != setup(true, 2) && drawn != setup(false, 1));
    }

    #[test]
    fn drawing_positions_ends_when_the_process_drains_and_takes_as_many_as_are_configured() {
        let setup = setup(Hex::new(hex::Size::MIN), |_| ());
        assert!(setup.draw_positions(&mut || ControlFlow::Break(())).is_break() && setup.positions().is_empty());
        assert!(setup.draw_positions(&mut || ControlFlow::Continue(())).is_continue());
        assert_eq!(setup.positions().len(), 20);
    }
}
