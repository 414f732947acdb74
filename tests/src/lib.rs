//! System tests: a cluster of real processes on free loopback ports, in a run directory of its own.
//!
//! Binaries come from the directory in `ZEROFLEET_BIN_DIR`, else from the target directory of the test itself. Every
//! wait looks at the state it waits for and has a deadline; logs are printed when a test fails. Start with [`Cluster`].

pub mod chaos;
mod cluster;
pub mod compose;
mod inference;
mod installation;
mod process;
mod prometheus;
mod python;
mod training_run;
pub mod trajectories;

pub use cluster::{Cluster, SEED, SMALL_TIC_TAC_TOE};
pub use compose::Compose;
pub use fleet::Role;
pub use inference::InferenceServer;
pub use installation::Installation;
pub use process::{Output, Process, program, wait_until};
pub use prometheus::{Prometheus, PrometheusTools, Sample, Target};
pub use python::Python;
pub use training_run::TrainingRun;
