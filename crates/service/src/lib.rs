//! What a process is: configuration, tracing, metrics, health, drain.
//!
//! Every process of the fleet is the same story: parse the command line, load the run file, build, run, drain. This crate
//! tells all of it but "build" and "run"; it knows no game, no tensor and no message. Start reading at [`run`].
//!
//! It is the one crate of its rank that may look at the environment, at files and at signals, because that is what it is for.

mod admin;
mod args;
pub mod config;
pub mod cpus;
pub mod descriptors;
pub mod directory;
mod drain;
pub mod identity;
pub mod machine;
pub mod net;
mod probe;
mod process;
mod remembered;
pub mod security;
pub mod telemetry;
pub mod trace;

pub use admin::{Admin, Readiness};
pub use args::{CommonArgs, LogFormat};
pub use config::ConfigError;
pub use drain::Drain;
pub use probe::Probe;
pub use process::{Context, chain, run};
pub use remembered::RememberedFile;
pub use security::SecuritySection;
pub use telemetry::TelemetrySection;
