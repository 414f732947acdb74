//! KataGo's [JSON analysis protocol](https://github.com/lightvector/KataGo/blob/master/docs/Analysis_Engine.md):
//! [`serve`], with [`Query`] and [`Response`] for both directions.
//!
//! Positions are searched sequentially, by priority and then in order; queries and actions that arrive during a
//! search are handled at once. Every score and deviation is 0. The utility is the value of the position, −1 to 1, and
//! `lcb` is the bound of [`Candidate`](crate::Candidate).

mod job;
mod perspective;
mod query;
mod response;
mod session;

pub use perspective::Perspective;
pub use query::{MoveRestriction, OverrideSettings, Query};
pub use response::{MoveInfo, Response, RootInfo};
pub use session::{LINE_BYTES_MAX, Settings, serve};

#[cfg(test)]
mod tests;
