//! A replay table: selects the trajectories to hold and the positions to draw, and limits the rate of both.
//!
//! A [`Table`] with [`TableSettings`] takes each trajectory as one [`Insertion`] and draws *items*, positions with a
//! search policy as training target. A [`Selector`] chooses items from a growing [`Window`], and each [`Drawn`] item
//! has an [`ItemKey`]. [`Retention`] bounds the trajectories held. A [`PriorityUpdate`] is the outcome of new
//! priorities, a [`QuarantineChange`] the outcome of excluding trajectories from sampling. The [`RateLimiter`] keeps
//! the ratio of samples to inserts. [`SeenIds`] stores the ids of all trajectories that were ever inserted, so that
//! each counts once.
//!
//! The crate uses no clock, thread, file, network or game: randomness and time are arguments, trajectories are opaque,
//! and the caller makes inserts and samples wait for the limiter. Start with [`Table`].

mod rate_limiter;
mod seen;
mod settings;
mod table;
mod tree;

pub use rate_limiter::{RateLimiter, RateLimiterCounts, RateLimiterSettings, Wait};
pub use seen::{SeenIds, SeenLimits};
pub use settings::{Retention, Selector, TableSettings, Window};
pub use table::{
    Changed, Drawn, Expected, Held, Insertion, InvalidPriority, ItemKey, PriorityUpdate, QuarantineChange, Removed,
    Table, TableTotals,
};
