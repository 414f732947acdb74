//! Runs Gymnasium environments in Python processes.
//!
//! [`Bridge`] implements [`game::Environments`]: it starts the processes that [`Settings`] describe, sends each of them
//! one request per step of all its environments, and replaces a process that dies or hangs; [`Losses`] counts what was
//! lost. The crate writes the Python package that the processes run, and depends on no interpreter at build time. It
//! deliberately depends on nothing but `game`: search, replay and the wire have no part in it. The protocol is in
//! `docs/environments.md`. Start with [`Bridge::start`].

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

pub use environments::{Bridge, Losses};
pub use error::Error;
pub use settings::{Channels, Settings};
