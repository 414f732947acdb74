//! `zerofleet gtp`, `gomocup` and `analysis`: play by the protocols of players and user interfaces.
//!
//! [`network_engine`] is the common engine for the sessions of the crate `protocols`: the weights of a run and a
//! search of one game at a time. [`opening`] sets up games, [`report`] formats search results, and [`board`] shows
//! stones. [`commands`] are the command lines, [`connection`] is standard input and output, and [`batch`] analyses
//! files. Start with [`network_engine`].

mod batch;
pub(crate) mod board;
pub(crate) mod commands;
mod connection;
mod network_engine;
mod opening;
mod report;
#[cfg(test)]
mod tests;
