//! The training process: draws samples, trains, publishes weights, writes checkpoints.
//!
//! It meets the replay server over the wire only and never reaches the search. Start with [`run`]. The feature `torch`, which is on by default,
//! trains; without it there are the configuration and the files of a run for programs that need no libtorch.

pub mod checkpoint;
pub mod config;
#[cfg(feature = "torch")]
mod metrics;
#[cfg(feature = "torch")]
mod pipeline;
#[cfg(feature = "torch")]
pub mod priorities;
#[cfg(feature = "torch")]
mod process;
pub mod published;
#[cfg(feature = "torch")]
pub mod targets;
#[cfg(feature = "torch")]
pub mod training;

#[cfg(feature = "torch")]
pub use process::run;
