//! The replay table: which trajectories are held, which of their positions may be drawn, and how fast.
//!
//! An *item* is one position whose search policy is a training target. Trajectories come in whole, items go out one at
//! a time, as a [`Selector`] chooses them from a growing [`Window`]; [`Retention`] bounds what is held, a [`Signature`]
//! what comes in, and the [`RateLimiter`] ties the two speeds together.
//!
//! Pure: no clock, no thread, no file, no network and no game. Randomness and time are arguments, observations are
//! opaque, and who waits for the limiter is the caller's business. So is exactly once: [`SeenIds`] knows which
//! trajectories ever came in, for all tables that a server keeps. Start with [`Table`].

mod rate_limiter;
mod retention;
mod seen;
mod selector;
mod settings;
mod signature;
mod table;
mod tree;
mod window;

pub use rate_limiter::{InvalidRateLimiter, RateLimiter, RateLimiterCounts, RateLimiterSettings, Wait};
pub use retention::Retention;
pub use seen::SeenIds;
pub use selector::{InvalidSelector, Selector};
pub use settings::{InvalidTable, TableSettings};
pub use signature::Signature;
pub use table::{
    Changed, Drawn, Held, Insertion, InvalidPriority, ItemKey, PriorityUpdate, Quarantine, Release, Removed, Table,
    TableTotals,
};
pub use window::{InvalidWindow, Window};
