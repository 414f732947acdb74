//! The [Go Text Protocol](http://www.lysator.liu.se/~gunnar/gtp/gtp2-spec-draft2/gtp2-spec.html), version 2 (draft
//! 2): the engine side, [`serve`], and the side that drives an engine, [`Controller`].
//!
//! The engine side supports the commands of the specification, the KGS time commands, the analysis commands of Leela
//! Zero, Sabaki and KataGo
//! ([GTP_Extensions.md](https://github.com/lightvector/KataGo/blob/master/docs/GTP_Extensions.md)), GoGui's commands
//! for the rules of every game, and in Hex the commands of HexGui. `docs/engines.md` lists them.

mod analyze;
mod command;
mod command_line;
mod commands;
mod controller;
mod failure;
mod handicap;
mod response;
mod session;

pub use command_line::{CommandLineError, split_words};
pub use controller::{Controller, Error, Fault};
pub use session::{LINE_BYTES_MAX, serve};

#[cfg(test)]
mod tests;
