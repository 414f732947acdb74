//! Monte Carlo tree search, by pUCT or Gumbel, without game rules, clock or threads.
//!
//! A [`Tree`] never plays a move itself. [`Tree::select`] descends to a leaf and returns a [`Selection`], usually a
//! [`Request`]: the state of the parent and the action to take there. The driver plays it (or applies learned
//! dynamics), evaluates the result and returns the [`Expansion`] with [`Tree::answer`]. With rules as the transition
//! this is AlphaZero, with a learned model MuZero; the discount encodes which player a value belongs to (−1 where
//! players alternate). [`RootView`] provides the result of a search, and [`Proven`] the proven part of it.
//!
//! [`Settings`] choose the [`SearchAlgorithm`], the [`Dirichlet`] noise, the [`Solver`], [`EarlyStop`] and the
//! [`ValueRange`]; [`Exploration`] is chosen for each move. Several requests may be in flight in one tree; the random
//! number generator is an argument; no simulation allocates once the arena has grown. Read [`Tree`] first, then
//! `select` (the choice of a child), `backup` (the update after a visit), `solver` (proofs) and `root_policy` (the
//! result of a search).

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
pub use root_policy::{RootView, VariationStep};
pub use settings::{Dirichlet, EarlyStop, Exploration, SearchAlgorithm, Settings, Solver, ValueRange, ValueSpan};
pub use tree::Tree;
