//! The contestants of a match, which choose actions in many positions at once.

use game::{Action, Game};
use inference::Evaluator;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use selfplay::playouts::analyse_with_playouts;
use selfplay::{AnalysisSettings, SearchSettings, analyse};
use weights::WeightsVersion;

/// Largest number of positions evaluated together; more gain nothing on a CPU.
const BATCH: usize = 256;

/// A player of one game that chooses actions in many positions at once.
pub trait Contestant<G: Game> {
    /// Replaces `actions` with a legal action for each of `positions`, none of which is over.
    ///
    /// # Errors
    /// If the evaluator behind it fails.
    fn choose(
        &mut self,
        game: &G,
        positions: &[G::Position],
        actions: &mut Vec<Action>,
    ) -> Result<(), inference::Error>;
}

/// Plays uniformly random legal actions.
#[derive(Debug)]
pub struct RandomMover {
    /// The random number generator.
    pub rng: ChaCha8Rng,
}

impl<G: Game> Contestant<G> for RandomMover {
    fn choose(
        &mut self,
        game: &G,
        positions: &[G::Position],
        actions: &mut Vec<Action>,
    ) -> Result<(), inference::Error> {
        let mut legal = Vec::new();
        actions.clear();
        for position in positions {
            game.legal_actions(position, &mut legal);
            actions.push(legal[self.rng.random_range(0..legal.len())]);
        }
        Ok(())
    }
}

/// Searches with random playouts instead of a network: an opponent of fixed strength.
#[derive(Debug)]
pub struct PlayoutMover {
    settings: AnalysisSettings,
    rng: ChaCha8Rng,
}

impl PlayoutMover {
    /// Creates a player with this many simulations per move and fixed search settings, those of the published
    /// algorithm, independent of the run.
    #[must_use]
    pub fn new(simulations: u32, rng: ChaCha8Rng) -> Self {
        Self { settings: analysis(simulations, &SearchSettings::default(), Fidelity::Exact), rng }
    }
}

impl<G: Game> Contestant<G> for PlayoutMover {
    fn choose(
        &mut self,
        game: &G,
        positions: &[G::Position],
        actions: &mut Vec<Action>,
    ) -> Result<(), inference::Error> {
        actions.clear();
        let analyses = analyse_with_playouts(game, positions, &self.settings, &mut self.rng);
        actions.extend(analyses.iter().map(|analysis| analysis.best));
        Ok(())
    }
}

/// The number of leaves in flight per tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fidelity {
    /// One leaf of each position at a time, as in a sequential search.
    Exact,
    /// A few leaves of each position share a batch, if there are too few positions to fill one.
    Batched,
}

/// Returns the settings of an analysis; without simulations it is one evaluation of the position.
#[must_use]
pub fn analysis(simulations: u32, search: &SearchSettings, fidelity: Fidelity) -> AnalysisSettings {
    let leaves_per_tree = match fidelity {
        Fidelity::Exact => 1,
        Fidelity::Batched => 4,
    };
    AnalysisSettings { simulations, search: search.clone(), leaves_per_tree, batch: BATCH }
}

/// Searches with an evaluator and plays the best action.
pub struct Searcher<'a> {
    /// The evaluator.
    pub evaluator: &'a mut dyn Evaluator,
    /// The search settings.
    pub settings: AnalysisSettings,
    /// The random number generator of the search.
    pub rng: ChaCha8Rng,
}

impl<G: Game> Contestant<G> for Searcher<'_> {
    fn choose(
        &mut self,
        game: &G,
        positions: &[G::Position],
        actions: &mut Vec<Action>,
    ) -> Result<(), inference::Error> {
        let analyses = analyse(game, positions, &self.settings, self.evaluator, &mut self.rng)?;
        actions.clear();
        actions.extend(analyses.iter().map(|analysis| analysis.best));
        Ok(())
    }
}

/// Returns a random number generator of its own for every version and stream.
pub(crate) fn draws(seed: u64, version: WeightsVersion, stream: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ version.0.rotate_left(32));
    rng.set_stream(stream);
    rng
}
