//! Settings of a session in which an engine plays: [`Settings`].

use std::time::Duration;

/// The settings of a session in which an engine plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Simulations per move without a time limit.
    pub visits: u32,
    /// Time per move if the other side sets no limit; `None` is unlimited.
    pub time: Option<Duration>,
    /// Time that a move takes in addition to the search, which reduces the time share of the search.
    pub lag: Duration,
}
