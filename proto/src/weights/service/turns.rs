use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

#[cfg(test)]
mod tests;

/// Who sends now, and who waits: in the order they came.
///
/// A version that goes to everyone at once is copied for everyone at once, a chunk or two for each, and all of them have it at
/// the very end. In turns few copies exist, and half of the subscribers have it after half of the time.
#[derive(Debug, Clone)]
pub(super) struct Turns(Arc<Semaphore>);

/// A turn, until it is dropped or its time is over.
#[derive(Debug)]
pub(super) struct Turn(AbortHandle);

impl Turns {
    /// So many at once, at least one.
    pub(super) fn new(at_once: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Waits for a turn. After `time_max` the next one begins beside it, so that a subscriber behind a slow link, or one that
    /// has stopped reading, holds nobody up for longer. Must be called inside a tokio runtime.
    pub(super) async fn next(self, time_max: Duration) -> Turn {
        // Nobody closes the semaphore; if somebody did, there would be no turns to wait for.
        let permit = self.0.acquire_owned().await.ok();
        let time_is_over = tokio::spawn(async move {
            let _until_then = permit;
            tokio::time::sleep(time_max).await;
        });
        Turn(time_is_over.abort_handle())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.abort();
    }
}
