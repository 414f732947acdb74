//! The run file: the sections of every process, with defaults, ranges and checks.
//!
//! [`RunFile`] holds all sections. Each module has the sections of one process: a `Config` as written and checked
//! `Settings` in domain types ([`learner::trainer_settings`], [`learner::libtorch::why`] follow from them). Common
//! sections are in `service`, `selfplay` and `bridge`. Start with [`RunFile`].

pub mod actor;
pub mod arena;
pub mod inference;
pub mod learner;
pub mod replay;
mod run_file;
mod weights_source;

pub use run_file::RunFile;
pub use weights_source::WeightsSource;
