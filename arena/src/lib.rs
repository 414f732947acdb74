//! Measures the strength of a run's weights versions: solved positions, rated games, Elo with confidence intervals.
//!
//! [`run`] is the process, which reads a [`config::Config`]. A single thread measures one version after another. On
//! each [`solved::SolvedPosition`] it counts good moves as [`solved::Accuracy`], with search and, always for the
//! latest weights, without. It [plays](matches::play) matches of a [`contestant::Searcher`] against a
//! [`contestant::RandomMover`], a [`contestant::PlayoutMover`], an [`alpha_beta::AlphaBetaMover`] and past versions,
//! from [`matches::openings`]; in tiny games it [checks](exhaustive::check) every line. `zerofleet match` also plays
//! against programs that speak GTP, [`gtp_engine::GtpEngine`]. The [`ledger::Ledger`] holds the [`ledger::Tally`] of
//! all games of the run, the source of Elo; a [`sprt::Sprt`] stops a match between two players once it is decided. In
//! games with rewards the arena [plays](returns::play) evaluation episodes instead of matches; the mean return has a
//! confidence interval. Environments outside this process [run](outside::play) in separate Python processes. The work
//! is limited to a small share of one core. The arena plays no training games, and no other process waits for it,
//! unless a `gate` decides here on the version of the actors. A [`notation::Notation`] names moves like the protocols
//! of players. Start with `worker`.

mod accuracy;
pub mod alpha_beta;
#[cfg(test)]
mod chain;
pub mod config;
pub mod contestant;
pub mod exhaustive;
pub mod gate;
pub mod gtp_engine;
pub mod ledger;
pub mod matches;
mod metrics;
pub mod notation;
pub mod outside;
mod pacer;
pub mod past_versions;
mod process;
pub mod rating;
mod regression;
mod return_ledger;
pub mod returns;
mod scale;
mod setup;
pub mod solved;
pub mod sprt;
mod worker;

pub use process::{measure_last, run};
