//! The rating process, which measures the strength of a run's weights versions.
//!
//! [`run`] is the process, which reads a [`run_file::arena::Config`]. A single thread measures one version after
//! another with the crate `strength`: solved positions with search and, for the latest weights, without search; rated
//! games against opponents of known strength and past versions; evaluation episodes in games with rewards. The work is
//! limited to a small fraction of one core. The arena plays no training games, and no other process waits for the
//! arena, unless a `gate` decides on the version for the actors. Start with `worker`.

mod gate;
mod metrics;
mod pacer;
mod past_versions;
mod process;
mod regression;
mod return_ledger;
mod setup;
mod worker;

pub use process::run;
