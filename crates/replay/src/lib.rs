//! A replay table: stores trajectories, samples positions for training, and limits the ratio of samples to inserts.
//!
//! A [`Table`] with [`TableSettings`] stores trajectories and draws *items*: positions with a search policy as training
//! target. Each insert returns an [`Insertion`]. A [`Selector`] chooses items from a growing [`Window`], and an
//! [`ItemKey`] identifies each [`Drawn`] item. [`Retention`] bounds the trajectories held. Priority updates return a
//! [`PriorityUpdate`], and quarantines (exclusions from sampling) return a [`QuarantineChange`]. The [`RateLimiter`]
//! controls the ratio of samples to inserts. [`SeenIds`] stores the ids of all trajectories ever inserted, to reject
//! duplicates.
//!
//! The crate uses no clock, thread, file, network or game rules: randomness and time are arguments, and trajectories
//! are opaque. The caller delays inserts and samples as the limiter requires. Start with [`Table`].

mod rate_limiter;
mod seen;
mod settings;
mod table;
mod tree;

pub use rate_limiter::{RateLimiter, RateLimiterCounts, RateLimiterSettings, Wait};
pub use seen::{SeenIds, SeenLimits};
pub use settings::{Retention, Selector, TableSettings, Window};
pub use table::{
    Drawn, Expected, Held, Insertion, InvalidPriority, ItemKey, PriorityUpdate, QuarantineChange, Removed, Table,
    TableTotals,
};
