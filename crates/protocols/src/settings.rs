//! The settings of a session in which an engine plays: [`Settings`].

use std::time::Duration;

/// The settings of a session in which an engine plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The simulations of a move without a limit of time.
    pub visits: u32,
    /// The time of a move for which the other side sets none; `None` for any.
    pub time: Option<Duration>,
    /// The time that a move takes beyond its search, by which its share of the time is reduced.
    pub lag: Duration,
}
