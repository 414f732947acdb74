//! System tests: a cluster of real processes on free loopback ports, each run in a separate directory.
//!
//! Binaries come from the directory in `ZEROFLEET_BIN_DIR`, or else from the target directory of the test itself. Every
//! wait polls a condition and has a deadline; logs are printed when a test fails. Start with [`Cluster`].

mod browser;
pub mod chaos;
mod cluster;
pub mod compose;
mod inference;
mod installation;
mod process;
mod prometheus;
mod python;
mod skip;
pub mod soak;
mod training_run;
pub mod trajectories;
pub mod trend;
mod usage;

pub use browser::Browser;
pub use cluster::{Cluster, SEED, SMALL_TIC_TAC_TOE};
pub use compose::Compose;
pub use fleet::Role;
pub use inference::InferenceServer;
pub use installation::Installation;
pub use process::{Output, Process, program, wait_until};
pub use prometheus::{Prometheus, PrometheusTools, Sample, Target};
pub use python::Python;
pub use skip::{skip, skip_python};
pub use training_run::TrainingRun;
