//! Decides which trajectories a replay table holds, which of their positions are drawn, and how fast.
//!
//! A [`Table`] with [`TableSettings`] takes each trajectory as one [`Insertion`] and draws *items*, positions whose
//! search policy is a training target: a [`Selector`] chooses them from a growing [`Window`], and each [`Drawn`] item
//! has an [`ItemKey`]. [`Retention`] bounds what is held, a [`PriorityUpdate`] changes what is drawn, a
//! [`QuarantineChange`] takes trajectories out of it, and the [`RateLimiter`] holds the ratio of samples to inserts.
//! [`SeenIds`] keeps the ids of all trajectories that were ever inserted, so that each counts once.
//!
//! No clock, thread, file, network or game: randomness and time are arguments, trajectories are opaque, and the caller
//! makes inserts and samples wait for the limiter. Start with [`Table`].

mod rate_limiter;
mod seen;
mod settings;
mod table;
mod tree;

pub use rate_limiter::{RateLimiter, RateLimiterCounts, RateLimiterSettings, Wait};
pub use seen::SeenIds;
pub use settings::{Retention, Selector, TableSettings, Window};
pub use table::{
    Changed, Drawn, Held, Insertion, InvalidPriority, ItemKey, PriorityUpdate, QuarantineChange, Removed, Table,
    TableTotals,
};
