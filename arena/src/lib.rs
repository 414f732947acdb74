//! Measures the strength of a run's weights versions: solved positions, rated games, Elo with confidence intervals.
//!
//! [`run`] is the process and [`worker::Worker`] its measuring thread, which reaches the process through
//! [`environment::Environment`]. For each weights version that it takes up, it computes the [`accuracy`] on [`solved`]
//! positions with search and, always for the newest weights, without; plays [`mod@matches`] of rated games against
//! random play, random-playout searches and [`past_versions`]; and, in tiny games, checks every line ([`exhaustive`]).
//! The [`ledger`] holds all games of the run, from which [`rating`] computes Elo. [`pacing`] limits the work to a small
//! share of one core. The arena plays no training games, and no other process waits for it. Start with [`worker`].

pub mod accuracy;
mod backend;
pub mod config;
pub mod contestant;
pub mod environment;
pub mod exhaustive;
pub mod ledger;
pub mod matches;
pub mod metrics;
mod pacer;
pub mod pacing;
pub mod past_versions;
pub mod player;
mod process;
pub mod rating;
pub mod solved;
pub mod tally;
pub mod worker;

pub use process::run;
