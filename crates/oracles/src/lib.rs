//! Exact scores of every move, in games and positions small enough to solve.
//!
//! An [`Oracle`] scores positions; [`oracle`] returns the oracle of a game. [`draw`] draws positions of a game and
//! labels them with scores, for measurements of accuracy. Solvers read no clock: the positions that an oracle
//! [covers](Oracle::covers) bound the work. The crate is independent of search, networks and processes. Start with
//! [`Oracle`].

mod any;
mod connect_four;
mod full_search;
mod hex;
mod othello;
mod planes;
mod positions;
mod value;

pub use any::{has_oracle, oracle};
pub use connect_four::ConnectFourOracle;
pub use full_search::FullSearch;
pub use hex::HexOracle;
pub use othello::OthelloOracle;
pub use positions::{LabelledPosition, connect_four_openings, draw};

/// Returns exact scores for positions of one game.
///
/// Scores are defined as for the solved positions in `crates/games/data/README.md`: positive if the player to move
/// then wins under perfect play, 0 for a draw, negative for a loss. The absolute value is one more than the number of
/// stones that the winner still has in hand at the end, so that sooner wins and later losses have larger scores. In
/// Othello, the score is the difference of discs at the end, where empty cells count for the winner.
pub trait Oracle {
    /// A position of the game.
    type Position;

    /// Returns true if the oracle scores this position, which is not over.
    fn covers(&self, position: &Self::Position) -> bool;

    /// Returns the scores of all actions in a position that the oracle [covers](Self::covers), `[A]`; `None` for
    /// illegal actions.
    fn scores(&mut self, position: &Self::Position) -> Vec<Option<i32>>;
}
