//! The rating process: matches, solved positions, Elo with error bars.
//!
//! For each weights version it takes up, as the learner publishes them: the share of solved positions answered well with
//! search, and without, which is kept that of the newest weights; rated games against random play, random-playout
//! searches and earlier versions; and, in tiny games, every line there is. Ratings come from all games of the run. It takes
//! a small share of one core, never plays for training, and no other process waits for it. Start with [`worker`].

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
