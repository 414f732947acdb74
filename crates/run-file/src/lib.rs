//! The run file: the sections of every process, with defaults, ranges and checks.
//!
//! [`RunFile`] holds all sections. Each module describes one process: a `Config` with the sections as written, and
//! `Settings` with the checked values in domain types. [`learner::trainer_settings`] and [`learner::libtorch::why`]
//! derive further values from the settings of the learner. Sections that several processes share are in `service`,
//! `selfplay` and `bridge`. Start with [`RunFile`].

pub mod actor;
pub mod arena;
pub mod inference;
pub mod learner;
pub mod replay;
mod run_file;
mod table;
mod weights_source;

pub use run_file::RunFile;
pub use weights_source::WeightsSource;
