//! Monte Carlo tree search: select, expand, back up; no rules, no clock, no thread.
//!
//! The tree never plays. [`Tree::select`] descends to a leaf and hands out a [`Request`]: the state of the parent and the
//! action to take there. The driver plays it (or applies learned dynamics), evaluates the result and gives the
//! [`Expansion`] back with [`Tree::answer`]. With rules as the transition this is AlphaZero, with a learned model MuZero;
//! which player a value belongs to is carried by the discount (−1 where players alternate).
//!
//! Several requests may be in flight in one tree; randomness is an argument; nothing is allocated per simulation once
//! the arena has grown. Start with [`Tree`], then `select` (which child), `backup` (what a visit changes), `solver`
//! (what is proven) and `root_policy` (what the search concluded).

mod arena;
mod backup;
mod completed_values;
mod edges;
mod expand;
mod noise;
mod proven;
mod request;
mod reuse;
mod root;
mod root_policy;
mod select;
mod sequential_halving;
mod settings;
mod solver;
#[cfg(test)]
mod toy;
mod tree;
mod value_range;

pub use expand::Expansion;
pub use proven::Proven;
pub use request::{Request, Selection};
pub use root::RootView;
pub use settings::{Dirichlet, EarlyStop, Exploration, SearchAlgorithm, Settings, Solver, ValueRange};
pub use tree::Tree;
