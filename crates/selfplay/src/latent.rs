//! Self-play and analysis with a learned model (MuZero; Schrittwieser et al. 2020).
//!
//! The rules provide observations, legal actions and rewards only for real positions. Below the root of a search, the
//! model predicts everything: every action is legal, and no state is terminal. [`LatentEpisodes`] play many games or
//! environments together, and [`analyse`] searches given positions. Start with `batcher`, which drives the trees.

pub(crate) mod batcher;
mod episode;
mod episodes;

pub use episodes::LatentEpisodes;

use batcher::{InModel, LatentBatcher};
use game::{EnvironmentsError, Game, Players};
use inference::LatentModel;
use rand::Rng;
use search::{Settings as SearchSettings, Solver, ValueRange};

use crate::analysis::{Analysis, AnalysisSettings, analyse_with};
use crate::tree_search::Trees;

/// An error that stopped episodes from advancing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The model or evaluator failed. The episodes can continue in later calls.
    #[error(transparent)]
    Model(#[from] inference::Error),
    /// The environments failed. The episodes cannot continue.
    #[error(transparent)]
    Environments(#[from] EnvironmentsError),
}

/// Searches every position in a learned model without noise, and returns the analyses in the same order.
///
/// This is the counterpart of [`crate::analyse`] for learned models. The solver is off and values are normalised,
/// regardless of `settings.search`. The state pool of the model is overwritten.
///
/// # Errors
/// The model fails.
///
/// # Panics
/// If the game is over at a position: there is no action to choose.
pub fn analyse<G: Game>(
    game: &G,
    positions: &[G::Position],
    settings: &AnalysisSettings,
    model: &mut dyn LatentModel,
    rng: &mut impl Rng,
) -> Result<Vec<Analysis>, inference::Error> {
    let count = settings.trees(positions.len());
    let trees = Trees::new(&search_settings(&settings.search), count);
    let mut batcher = LatentBatcher::new(game.spec(), count, settings.simulations, settings.discount);
    batcher.begin(model)?;
    analyse_with(&mut InModel { game, batcher: &mut batcher, model }, game, positions, settings, trees, rng)
}

/// Returns the settings `search` adapted to a learned model: values are normalised, and the solver is off.
pub(crate) fn search_settings(search: &SearchSettings) -> SearchSettings {
    SearchSettings { solver: Solver::Off, values: ValueRange::Normalised, ..search.clone() }
}

/// Returns the factor that converts a value after an action to the view of the player who took the action. A learned
/// model does not predict the player to move, so two players are assumed to alternate.
fn step_discount(players: Players, discount: f32) -> f32 {
    match players {
        Players::One => discount,
        Players::Two => -discount,
    }
}

#[cfg(test)]
pub(crate) mod tests;
