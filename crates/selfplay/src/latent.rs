//! Self-play and analysis with a learned model (MuZero; Schrittwieser et al. 2020).
//!
//! The rules provide observations, legal actions and rewards only for real positions. Below the root of a search, the
//! model predicts everything: every action is legal, and no state is terminal. [`LatentEpisodes`] play many games or
//! environments together, and [`analyse`] searches given positions. Start with `batcher`, which drives the trees.

mod analysis;
pub(crate) mod batcher;
mod episode;
mod episodes;

pub use analysis::analyse;
pub use episodes::LatentEpisodes;

use game::{EnvironmentsError, Players};
use search::{Settings as SearchSettings, Solver, ValueRange};

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
