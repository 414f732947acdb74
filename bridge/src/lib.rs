//! Runs Gymnasium environments in Python processes.
//!
//! [`Bridge`] implements [`game::Environments`]: it starts the processes that [`Settings`] describe, sends each of them
//! one request per step of all its environments, and replaces a process that dies or hangs; [`game::Losses`] counts
//! what was lost. [`config`] is the section of a run file, by which all processes of a run know the environment. The
//! crate writes the Python package that the processes run, and depends on no interpreter at build time. Search, replay
//! and the wire deliberately have no part in it. The protocol is in `docs/environments.md`. Start with
//! [`Bridge::start`].

pub mod config;
mod description;
mod environments;
mod episode;
mod error;
mod frames;
mod message;
mod package;
mod process;
mod settings;
mod worker;

pub use config::EnvironmentSection;
pub use environments::{Bridge, Trial};
pub use error::Error;
pub use settings::{Channels, Settings};
