//! The interface of the measuring thread to its process: weights, time and the drain.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::weights::Published;

/// The process around the measuring thread; tests script it.
pub trait Environment {
    /// Returns the newest weights, if any have arrived.
    fn newest(&mut self) -> Option<Arc<Published>>;

    /// Returns the current time.
    fn now(&mut self) -> Instant;

    /// Sleeps; stops early when the process drains.
    fn sleep(&mut self, duration: Duration) -> ControlFlow<()>;

    /// Waits for newer weights up to a time limit; stops early when the process drains.
    fn wait_for_weights(&mut self, at_most: Duration) -> ControlFlow<()>;
}
