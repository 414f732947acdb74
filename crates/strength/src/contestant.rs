//! Contestants of a match, which choose actions in many positions at once.

use evaluators::Network;
use game::{Action, Game};
use inference::{Evaluator, LatentModel};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use selfplay::playouts::analyse_with_playouts;
use selfplay::{Analysis, AnalysisSettings, SearchSettings, analyse, latent};
use weights::WeightsVersion;

use crate::alpha_beta::AlphaBetaMover;
use crate::ledger::Player;

/// Maximum number of positions evaluated together; larger batches gain nothing on a CPU.
const BATCH: usize = 256;

/// Leaves in flight per tree in a sequential search.
pub const SEQUENTIAL: usize = 1;

/// Leaves in flight per tree in a batched search, where several leaves per position share a batch because there are too
/// few positions to fill one.
pub const BATCHED: usize = 4;

/// A player of one game that chooses actions in many positions at once.
pub trait Contestant<G: Game> {
    /// Returns a legal action for each of the non-final `positions`.
    ///
    /// # Errors
    /// The evaluator fails.
    fn choose(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Action>, inference::Error>;

    /// Returns an action for each position, with the expected value for the player to move, from −1 to 1. The value is
    /// `None` if this player estimates no values.
    ///
    /// # Errors
    /// The evaluator fails.
    fn assess(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Assessment>, inference::Error> {
        Ok(self.choose(game, positions)?.into_iter().map(|action| Assessment { action, value: None }).collect())
    }
}

/// A chosen action, and the value that the player expects.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Assessment {
    /// The chosen action.
    pub action: Action,
    /// Expected value for the player to move, from −1 to 1.
    pub value: Option<f32>,
}

impl<G: Game, C: Contestant<G> + ?Sized> Contestant<G> for Box<C> {
    fn choose(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Action>, inference::Error> {
        (**self).choose(game, positions)
    }

    fn assess(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Assessment>, inference::Error> {
        (**self).assess(game, positions)
    }
}

/// Plays uniformly random legal actions.
#[derive(Debug)]
pub struct RandomMover {
    /// Random number generator of the moves.
    pub rng: ChaCha8Rng,
}

impl<G: Game> Contestant<G> for RandomMover {
    fn choose(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Action>, inference::Error> {
        let mut legal = Vec::new();
        let action = |position| {
            game.legal_actions(position, &mut legal);
            legal[self.rng.random_range(0..legal.len())]
        };
        Ok(positions.iter().map(action).collect())
    }
}

/// Searches with random playouts instead of a network: an opponent of fixed strength.
#[derive(Debug)]
pub struct PlayoutMover {
    settings: AnalysisSettings,
    rng: ChaCha8Rng,
}

impl PlayoutMover {
    /// Creates a player with this number of simulations per move and fixed search settings, independent of the run.
    #[must_use]
    pub fn new(simulations: u32, rng: ChaCha8Rng) -> Self {
        Self { settings: analysis(simulations, &SearchSettings::FIXED, 1.0, SEQUENTIAL), rng }
    }
}

impl<G: Game> Contestant<G> for PlayoutMover {
    fn choose(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Action>, inference::Error> {
        let analyses = analyse_with_playouts(game, positions, &self.settings, &mut self.rng);
        Ok(analyses.iter().map(|analysis| analysis.best).collect())
    }
}

/// Returns the settings of an analysis, which with 0 simulations only evaluates each position. `discount` is γ.
#[must_use]
pub fn analysis(simulations: u32, search: &SearchSettings, discount: f32, leaves_per_tree: usize) -> AnalysisSettings {
    AnalysisSettings { simulations, search: search.clone(), leaves_per_tree, batch: BATCH, discount }
}

/// Searches with a network and plays the best action.
pub struct Searcher<'a> {
    network: Searched<'a>,
    settings: AnalysisSettings,
    /// Random number generator of the search.
    rng: ChaCha8Rng,
}

/// The network of a search.
enum Searched<'a> {
    /// The search uses the rules.
    Evaluator(&'a mut dyn Evaluator),
    /// The search uses latent states.
    Latent(&'a mut dyn LatentModel),
}

impl<'a> Searcher<'a> {
    /// Creates a player that searches by the rules with an AlphaZero network, in latent states with a MuZero network.
    #[must_use]
    pub fn new(network: &'a mut Network, settings: AnalysisSettings, rng: ChaCha8Rng) -> Self {
        let network = match network {
            Network::Evaluator(evaluator) => Searched::Evaluator(&mut **evaluator),
            Network::Latent(model) => Searched::Latent(&mut **model),
        };
        Self { network, settings, rng }
    }

    /// Creates a player that searches by the rules.
    #[must_use]
    pub fn by_rules(evaluator: &'a mut dyn Evaluator, settings: AnalysisSettings, rng: ChaCha8Rng) -> Self {
        Self { network: Searched::Evaluator(evaluator), settings, rng }
    }
}

impl<G: Game> Contestant<G> for Searcher<'_> {
    fn choose(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Action>, inference::Error> {
        Ok(self.assess(game, positions)?.into_iter().map(|assessment| assessment.action).collect())
    }

    fn assess(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Assessment>, inference::Error> {
        let Self { network, settings, rng } = self;
        let analyses = match network {
            Searched::Evaluator(evaluator) => analyse(game, positions, settings, &mut **evaluator, rng)?,
            Searched::Latent(model) => latent::analyse(game, positions, settings, &mut **model, rng)?,
        };
        let assessment = |Analysis { best: action, value, .. }| Assessment { action, value: Some(value) };
        Ok(analyses.into_iter().map(assessment).collect())
    }
}

/// Returns the contestant for a player that needs no weights and anchors the Elo scale; `None` for a weights version.
pub fn fixed_contestant<G: Game>(player: Player, rng: ChaCha8Rng) -> Option<Box<dyn Contestant<G>>> {
    match player {
        Player::Random => Some(Box::new(RandomMover { rng })),
        Player::Playouts { simulations } => Some(Box::new(PlayoutMover::new(simulations, rng))),
        Player::AlphaBeta { depth } => Some(Box::new(AlphaBetaMover::new(depth, rng))),
        Player::Version(_) => None,
    }
}

/// Returns a separate random number generator for every version and stream.
pub fn draws(seed: u64, version: WeightsVersion, stream: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ version.0.rotate_left(32));
    rng.set_stream(stream);
    rng
}
