//! Measures the strength of a run's weights versions: solved positions, rated games, Elo with confidence intervals.
//!
//! [`run`] is the process, which reads a [`config::Config`]. Its one thread measures one version after another. On each
//! [`solved::SolvedPosition`] it counts good moves as [`solved::Accuracy`], with search and, always for the newest
//! weights, without. It [plays](matches::play) matches of a [`contestant::Searcher`] against a
//! [`contestant::RandomMover`], a [`contestant::PlayoutMover`], an [`alpha_beta::AlphaBetaMover`] and past versions,
//! from [`matches::openings`]; in tiny games it [checks](exhaustive::check) every line. `zerofleet match` also plays
//! against programs that speak GTP, [`gtp_engine::GtpEngine`]. The [`ledger::Ledger`] holds the [`ledger::Tally`] of
//! all games of the run, from which Elo is computed; a [`sprt::Sprt`] ends a match of two players once it is decided.
//! In games that are scored by their rewards it [plays](returns::play) evaluation episodes in place of matches, whose
//! mean return has a confidence interval; environments outside this process it [plays](outside::play) in Python
//! processes of its own. The work is limited to a small share of one core; the arena plays no training games, and no
//! other process waits for it, unless a `gate` decides here which versions actors play with. A [`notation::Notation`]
//! names its moves as the protocols of players do. Start with `worker`.

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
