//! `zerofleet gtp`, `gomocup` and `analysis`: play and analyse games over the engine protocols of user interfaces.
//!
//! [`network_engine`] is the common engine for the sessions of the crate `protocols`: it searches one game at a time
//! with the weights of a run. [`opening`] sets up games, [`report`] formats search results, and [`board`] lists and
//! renders the stones of a position. [`commands`] defines the command lines, [`connection`] handles standard input and
//! output, and [`batch`] analyses files. Start with [`network_engine`].

mod batch;
pub(crate) mod board;
pub(crate) mod commands;
mod connection;
mod network_engine;
mod opening;
mod report;
#[cfg(test)]
mod tests;
