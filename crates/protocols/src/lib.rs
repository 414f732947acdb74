//! Protocols between board-game programs, user interfaces and referees: [`gtp`], [`gomocup`], KataGo's JSON analysis
//! ([`katago`]), and game records in SGF ([`sgf`]).
//!
//! A playing program implements [`Engine`]; one function per protocol serves it over an [`Input`] and a writer. In
//! the other direction, [`gtp::Controller`] drives another program. The crate is deliberately independent of search,
//! networks and game rules, and reads no clock and no files: both are arguments ([`Host`]). All input is untrusted:
//! lines, records, queues and responses have limits, and invalid input gives an error of the protocol.
//! `docs/engines.md` lists the supported commands. Start with [`Engine`].

mod analysis;
mod board;
mod color;
#[cfg(any(test, feature = "doubles"))]
#[path = "tests/doubles.rs"]
pub mod doubles;
mod engine;
pub mod gomocup;
pub mod gtp;
mod host;
mod input;
pub mod katago;
mod notation;
mod record;
mod result;
mod rules;
mod settings;
pub mod sgf;
mod time_control;

pub use analysis::{Analysis, Candidate, VariationPly, winrate};
pub use board::{Cell, Size, Stone};
pub use color::Color;
pub use engine::{Engine, Error, Identity, Progress, Restriction, RestrictionKind, Search, Setup, Status};
pub use host::Host;
pub use input::{Background, Input, Line, Lines, Stopper};
pub use notation::{BoardGame, Move};
pub use record::{Ply, Record};
pub use result::{GameResult, Victory};
pub use rules::{GoRules, GomokuRule, HandicapBonus, Ko, Rules, Scoring, Tax};
pub use settings::Settings;
pub use time_control::{Clock, TimeControl};
