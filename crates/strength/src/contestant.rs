//! Contestants of a match, which choose actions in many positions at once.

use evaluators::Network;
use game::{Action, Game};
use inference::{Evaluator, LatentModel};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use selfplay::playouts::analyse_with_playouts;
use selfplay::{
    Analysis, AnalysisSettings, Dirichlet, EarlyStop, SearchAlgorithm, SearchSettings, Solver, ValueRange, analyse,
    latent,
};
use weights::WeightsVersion;

use crate::alpha_beta::AlphaBetaMover;
use crate::ledger::Player;

/// Maximum number of positions evaluated together; larger batches gain nothing on a CPU.
const BATCH: usize = 256;

/// Leaves in flight per tree in a sequential search: one leaf per position at a time.
pub const SEQUENTIAL: usize = 1;

/// Leaves in flight per tree in a batched search: a few leaves per position share a batch, because there are too few
/// positions to fill one.
pub const BATCHED: usize = 4;

/// Search of opponents without a network: pUCT with AlphaZero's constants, and the first-play reduction of KataGo.
/// These players are the fixed points of the Elo scale. A change to any value would make ratings from earlier runs
/// incomparable, so these values do not follow the defaults of the search.
const PLAYOUT_SEARCH: SearchSettings = SearchSettings {
    algorithm: SearchAlgorithm::Puct,
    c_base: 19_652.0,
    c_init: 1.25,
    fpu_reduction: 0.2,
    dirichlet: Dirichlet { total_concentration: 10.83, fraction: 0.25 },
    solver: Solver::On,
    early_stop: EarlyStop::Never,
    values: ValueRange::Board,
};

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

/// A chosen action with the expected value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Assessment {
    /// The chosen action.
    pub action: Action,
    /// Expected value for the player to move, from −1 to 1.
    pub value: Option<f32>,
}

fn assessments(analyses: &[Analysis]) -> Vec<Assessment> {
    analyses.iter().map(|&Analysis { best: action, value, .. }| Assessment { action, value: Some(value) }).collect()
}

fn actions(assessments: Vec<Assessment>) -> Vec<Action> {
    assessments.into_iter().map(|assessment| assessment.action).collect()
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
        Self { settings: analysis(simulations, &PLAYOUT_SEARCH, 1.0, SEQUENTIAL), rng }
    }
}

impl<G: Game> Contestant<G> for PlayoutMover {
    fn choose(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Action>, inference::Error> {
        let analyses = analyse_with_playouts(game, positions, &self.settings, &mut self.rng);
        Ok(analyses.iter().map(|analysis| analysis.best).collect())
    }
}

/// Returns the settings of an analysis; with 0 simulations it is one evaluation per position. `discount` is γ.
#[must_use]
pub fn analysis(simulations: u32, search: &SearchSettings, discount: f32, leaves_per_tree: usize) -> AnalysisSettings {
    AnalysisSettings { simulations, search: search.clone(), leaves_per_tree, batch: BATCH, discount }
}

/// Searches with an evaluator and plays the best action.
pub struct Searcher<'a> {
    /// Evaluator for all positions.
    pub evaluator: &'a mut dyn Evaluator,
    /// Settings of the search.
    pub settings: AnalysisSettings,
    /// Random number generator of the search.
    pub rng: ChaCha8Rng,
}

impl<G: Game> Contestant<G> for Searcher<'_> {
    fn choose(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Action>, inference::Error> {
        self.assess(game, positions).map(actions)
    }

    fn assess(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Assessment>, inference::Error> {
        Ok(assessments(&analyse(game, positions, &self.settings, self.evaluator, &mut self.rng)?))
    }
}

/// Searches in the latent states of a learned model and plays the best action.
struct LatentSearcher<'a> {
    model: &'a mut dyn LatentModel,
    settings: AnalysisSettings,
    rng: ChaCha8Rng,
}

impl<G: Game> Contestant<G> for LatentSearcher<'_> {
    fn choose(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Action>, inference::Error> {
        self.assess(game, positions).map(actions)
    }

    fn assess(&mut self, game: &G, positions: &[G::Position]) -> Result<Vec<Assessment>, inference::Error> {
        let Self { model, settings, rng } = self;
        Ok(assessments(&latent::analyse(game, positions, settings, &mut **model, rng)?))
    }
}

/// Returns a player that searches with a network: by the rules with an AlphaZero network, in latent states with a
/// MuZero network.
pub fn searcher<'a, G: Game>(
    network: &'a mut Network,
    settings: AnalysisSettings,
    rng: ChaCha8Rng,
) -> Box<dyn Contestant<G> + 'a> {
    match network {
        Network::Evaluator(evaluator) => Box::new(Searcher { evaluator: &mut **evaluator, settings, rng }),
        Network::Latent(model) => Box::new(LatentSearcher { model: &mut **model, settings, rng }),
    }
}

/// Returns a player that needs no weights, an anchor of the Elo scale; `None` for a weights version.
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
