//! The replay table: which trajectories are held, which of their positions may be drawn, and how fast.
//!
//! An *item* is one position whose search policy is a training target. Trajectories come in whole, items go out one at
//! a time, uniformly over a growing [`Window`]; the [`RateLimiter`] ties the two speeds together.
//!
//! Pure: no clock, no thread, no file, no network and no game. Randomness is an argument, observations are opaque, and
//! who waits for the limiter is the caller's business. Start with [`Table`].

mod rate_limiter;
mod seen;
mod table;
mod window;

pub use rate_limiter::{InvalidRateLimiter, RateLimiter, RateLimiterCounts, RateLimiterSettings, Wait};
pub use seen::SeenIds;
pub use table::{Drawn, Held, Insertion, Quarantine, Removed, Table, TableTotals};
pub use window::{InvalidWindow, Window};
