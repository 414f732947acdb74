//! The replay table: the trajectories held, the positions that may be drawn, and the speed of both.
//!
//! An *item* is one position whose search policy is a training target. Trajectories are inserted whole, items are drawn
//! one at a time, as a [`Selector`] chooses them from a growing [`Window`]; [`Retention`] bounds the trajectories held,
//! a [`Signature`] those accepted, and the [`RateLimiter`] ties the two speeds together.
//!
//! Pure: no clock, no thread, no file, no network and no game. Randomness and time are arguments, observations are
//! opaque, and the caller makes inserts and samples wait for the limiter. The caller also ensures that each trajectory
//! is inserted once: [`SeenIds`] holds the ids of all that were ever inserted, for all tables of a server. Start with
//! [`Table`].

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
