//! The runtime of every process of the fleet: configuration, logs, metrics, traces, health probes and graceful
//! shutdown.
//!
//! Every process parses the command line ([`CommonArgs`]), loads the run file ([`config::Sources`]), builds, runs and
//! drains ([`Drain`]). [`run`] performs all steps except building and running, which a process passes as a closure
//! that takes a [`Context`]. [`Admin`] serves `/metrics`, `/healthz` and `/readyz` from [`Health`] and
//! [`Readiness`], and [`Probe`] queries them. [`Live`] shows games in progress. [`SecuritySection`] and
//! [`TelemetrySection`] are the sections that all processes share, [`trace`] records spans, [`reasons`] bounds the
//! texts in metric labels, and [`ConfigError`] names the key of every invalid value. Start reading at [`run`].
//!
//! The crate does not depend on games, tensors or messages. It is the only crate at its level that reads the
//! environment, files and signals.

mod admin;
mod args;
mod bounded_listener;
pub mod config;
pub mod cpus;
mod descriptions;
pub mod descriptors;
pub mod device_loss;
pub mod device_trial;
pub mod devices;
pub mod directory;
mod drain;
pub mod file_faults;
pub mod gpus;
mod health;
pub mod identity;
pub mod inherited;
pub mod live;
pub mod machine;
pub mod net;
pub mod pipe;
mod probe;
mod process;
pub mod reasons;
pub mod security;
pub mod telemetry;
pub mod terminal;
pub mod trace;

pub use admin::{Admin, Readiness};
pub use args::{CommonArgs, LogFormat};
pub use config::ConfigError;
pub use directory::RememberedFile;
pub use drain::{Drain, DrainPipe};
pub use health::{Health, Heartbeat, beat, waiting};
pub use live::Live;
pub use probe::Probe;
pub use process::{Body, Context, chain, chain_with_code, run, run_parsed};
pub use security::SecuritySection;
pub use telemetry::TelemetrySection;
