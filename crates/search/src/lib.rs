//! Monte Carlo tree search, by pUCT or Gumbel, without rules, clock or threads.
//!
//! A [`Tree`] never plays. [`Tree::select`] descends to a leaf and returns a [`Selection`], mostly a [`Request`]: the
//! state of the parent and the action to take there. The driver plays it (or applies learned dynamics), evaluates the
//! result and returns the [`Expansion`] with [`Tree::answer`]. With rules as the transition this is AlphaZero, with a
//! learned model MuZero; the discount carries which player a value belongs to (−1 where players alternate).
//! [`RootView`] shows the result of a search, and [`Proven`] what is certain of it.
//!
//! [`Settings`] choose the [`SearchAlgorithm`], the [`Dirichlet`] noise, the [`Solver`], [`EarlyStop`] and the
//! [`ValueRange`]; [`Exploration`] is chosen for each move. Several requests may be in flight in one tree; randomness
//! is an argument; no simulation allocates once the arena has grown. Read [`Tree`] first, then `select` (which child),
//! `backup` (what a visit changes), `solver` (what is proven) and `root_policy` (what the search concluded).

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
mod settings;
mod solver;
mod tree;
mod value_range;

pub use proven::Proven;
pub use request::{Expansion, Request, Selection};
pub use root_policy::RootView;
pub use settings::{Dirichlet, EarlyStop, Exploration, SearchAlgorithm, Settings, Solver, ValueRange};
pub use tree::Tree;
