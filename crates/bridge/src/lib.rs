//! Runs Gymnasium environments in Python processes.
//!
//! [`Bridge`] implements [`game::Environments`]: it starts the processes described by [`Settings`], sends each
//! process one request per step of all environments in it, and replaces a process that dies or hangs;
//! [`game::Losses`] counts the losses. [`config`] is the section of a run file that describes the environment to all
//! processes of a run. The crate writes the Python package that the processes run, and depends on no interpreter at
//! build time. Search, replay and the wire deliberately have no part in it. The protocol is in
//! `docs/environments.md`. Start with [`Bridge::start`].

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
pub use process::in_words;
pub use settings::{Channels, Settings};
