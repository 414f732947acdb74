//! The run file: the sections of every process, with defaults, ranges and checks.
//!
//! [`RunFile`] holds all sections. Each module describes one process: a `Config` with the sections as written, and
//! `Settings` with the checked values in domain types. [`learner::trainer_settings`] and [`learner::libtorch::why`]
//! derive further values from the settings of the learner, and [`gpu_values`] declares values for GPUs. Several
//! processes share [`SearchSection`] and [`SelfplaySection`]; sections that lower crates need are in `service` and
//! `bridge`. [`service::section!`] declares every key once, and [`RunFile::keys`] lists all keys. Start with
//! [`RunFile`].

pub mod actor;
pub mod arena;
pub mod gpu_values;
pub mod inference;
pub mod learner;
pub mod replay;
mod run_file;
mod search;
mod selfplay;
mod table;
mod weights_source;

pub use self::search::{AlgorithmName, SearchSection};
pub use self::selfplay::{DecayName, ResignationName, SelfplaySection};
pub use run_file::RunFile;
pub use weights_source::WeightsSource;
