//! Monte Carlo tree search, by pUCT or Gumbel, without game rules, clock or threads.
//!
//! A [`Tree`] never plays a move itself. [`Tree::select`] descends to a leaf and returns a [`Selection`], usually a
//! [`Request`]: a parent state and the action to take there. The driver applies the action (by rules or learned
//! dynamics), evaluates the resulting state and passes the [`Expansion`] to [`Tree::answer`]. With rules as the
//! transition this is AlphaZero; with a learned model, MuZero. The discount encodes which player a value belongs to
//! (−1 where players alternate). [`RootView`] provides the search result, and [`Proven`] the proven results.
//!
//! [`Settings`] choose the [`SearchAlgorithm`], the [`Dirichlet`] noise, the [`Solver`], [`EarlyStop`] and the
//! [`ValueRange`]; [`Exploration`] is chosen for each move. Several requests may be in flight in one tree. The caller
//! supplies the random number generator. Simulations allocate no memory once the arena has grown. Read [`Tree`]
//! first, then `select` (child selection), `backup` (value updates), `solver` (proofs) and `root_policy` (search
//! results).

mod arena;
mod backup;
mod completed_values;
mod edges;
mod noise;
mod proven;
mod request;
mod reuse;
mod root_policy;
mod select;
mod sequential_halving;
pub mod settings;
mod solver;
mod tree;
mod value_range;

pub use proven::Proven;
pub use request::{Expansion, Request, Selection};
pub use root_policy::{RootView, VariationStep};
pub use settings::*;
pub use tree::Tree;
