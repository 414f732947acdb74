//! A replay table: selects the trajectories that it holds and the positions that are drawn, and limits the rate of
//! both.
//!
//! A [`Table`] with [`TableSettings`] takes each trajectory as one [`Insertion`] and draws *items*, positions whose
//! search policy is a training target: a [`Selector`] chooses them from a growing [`Window`], and each [`Drawn`] item
//! has an [`ItemKey`]. [`Retention`] bounds the trajectories held, a [`PriorityUpdate`] is the outcome of new
//! priorities, a [`QuarantineChange`] that of excluding trajectories from sampling, and the [`RateLimiter`] keeps the
//! ratio of samples to inserts. [`SeenIds`] stores the ids of all trajectories that were ever inserted, so that each
//! counts once.
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
