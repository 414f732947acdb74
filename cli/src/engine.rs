//! `zerofleet gtp`, `gomocup` and `analysis`: the protocols by which players and their user interfaces use weights.
//!
//! [`network_engine`] has the engine behind all of them, the weights of a run and a search of one game at a time, for
//! the sessions of the crate `protocols`. [`opening`] is the start of its games, [`report`] the results of its
//! searches, [`board`] its stones. [`commands`] are the command lines, [`connection`] is standard input and output, and
//! [`batch`] analyses files. Start with [`network_engine`].

mod batch;
pub(crate) mod board;
pub(crate) mod commands;
mod connection;
mod network_engine;
mod opening;
mod report;
#[cfg(test)]
mod tests;
