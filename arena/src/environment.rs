//! What the measuring thread needs from its process: weights, time, and the order to stop.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::weights::Published;

/// The process around the measuring thread; a script in tests.
pub trait Environment {
    /// The newest weights, if any have arrived.
    fn newest(&mut self) -> Option<Arc<Published>>;

    /// The time.
    fn now(&mut self) -> Instant;

    /// Sleeps; breaks off when the process drains.
    fn sleep(&mut self, duration: Duration) -> ControlFlow<()>;

    /// Waits for newer weights, at most so long; breaks off when the process drains.
    fn wait_for_weights(&mut self, at_most: Duration) -> ControlFlow<()>;
}
