//! Self-play and analysis with a learned model (MuZero; Schrittwieser et al. 2020).
//!
//! The rules give observations, legal actions and rewards of the real positions; below the root of a search only the
//! model does: every action is legal there, and no state is terminal. [`LatentEpisodes`] play many games or
//! environments together, [`analyse`] searches given positions. Start with `batcher`, which drives the trees of both.

mod analysis;
pub(crate) mod batcher;
mod episode;
mod episodes;

pub use analysis::analyse;
pub use episodes::LatentEpisodes;

use game::{EnvironmentsError, Players};
use search::{Settings as SearchSettings, Solver, ValueRange};

/// The reason why episodes could not advance.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The model, or the evaluator, has failed; the episodes can continue.
    #[error(transparent)]
    Model(#[from] inference::Error),
    /// The environments have failed; the episodes cannot continue.
    #[error(transparent)]
    Environments(#[from] EnvironmentsError),
}

/// Returns `search` adapted to a learned model: values have any range, and nothing is proven.
pub(crate) fn search_settings(search: &SearchSettings) -> SearchSettings {
    SearchSettings { solver: Solver::Off, values: ValueRange::Normalised, ..search.clone() }
}

/// Returns the factor that converts a value after an action to the view of the player who took it. A learned model does
/// not predict the player to move, so two players are assumed to alternate.
fn step_discount(players: Players, discount: f32) -> f32 {
    match players {
        Players::One => discount,
        Players::Two => -discount,
    }
}

#[cfg(test)]
pub(crate) mod tests;
