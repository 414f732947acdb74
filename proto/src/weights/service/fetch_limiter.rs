use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// Limits the number of sending fetches; further fetches wait in request order.
///
/// Sending a version to all subscribers concurrently would copy a chunk or two for each, and every subscriber would
/// have to wait until almost the end. With a limit there are few copies, and half of the subscribers have the version
/// after half of the time.
#[derive(Debug, Clone)]
pub(super) struct FetchLimiter(Arc<Semaphore>);

/// Permission to send, until dropped or expired.
#[derive(Debug)]
pub(super) struct FetchPermit(AbortHandle);

impl FetchLimiter {
    /// Creates a limiter of `at_once` concurrent fetches, at least one.
    pub(super) fn new(at_once: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Waits for a permit. After `time_max` the permit no longer blocks the next fetch, so a subscriber with a slow
    /// link, or one that has stopped reading, does not delay other subscribers for longer. Must be called inside a
    /// tokio runtime.
    pub(super) async fn next(self, time_max: Duration) -> FetchPermit {
        // The semaphore is never closed; a closed semaphore would mean no limit.
        let permit = self.0.acquire_owned().await.ok();
        let time_is_over = tokio::spawn(async move {
            let _until_then = permit;
            tokio::time::sleep(time_max).await;
        });
        FetchPermit(time_is_over.abort_handle())
    }
}

impl Drop for FetchPermit {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;
    use std::pin::pin;

    use super::*;
    use crate::scripted::within;

    /// A time longer than any test.
    const NEVER: Duration = Duration::from_secs(1 << 30);

    #[tokio::test]
    async fn fetches_up_to_the_limit_have_a_turn_and_the_others_follow_in_order() {
        let limiter = FetchLimiter::new(2);
        let first = within(limiter.clone().next(NEVER)).await;
        let _second = within(limiter.clone().next(NEVER)).await;
        let (mut third, mut fourth) = (pin!(limiter.clone().next(NEVER)), pin!(limiter.clone().next(NEVER)));
        assert!(poll!(third.as_mut()).is_pending() && poll!(fourth.as_mut()).is_pending());
        drop(first);
        let _third = within(third).await;
        assert!(poll!(fourth.as_mut()).is_pending());
    }

    #[tokio::test(start_paused = true)]
    async fn a_fetch_that_never_ends_admits_the_next_one_when_its_time_is_over() {
        let limiter = FetchLimiter::new(1);
        let started = tokio::time::Instant::now();
        let _stalled = limiter.clone().next(Duration::from_secs(5)).await;
        let _next = limiter.clone().next(NEVER).await;
        assert_eq!(started.elapsed().as_secs(), 5);
    }

    #[tokio::test]
    async fn a_fetch_cancelled_while_waiting_takes_no_turn() {
        let limiter = FetchLimiter::new(1);
        let first = within(limiter.clone().next(NEVER)).await;
        {
            let mut gone = pin!(limiter.clone().next(NEVER));
            assert!(poll!(gone.as_mut()).is_pending());
        }
        let mut last = pin!(limiter.clone().next(NEVER));
        assert!(poll!(last.as_mut()).is_pending());
        drop(first);
        within(last).await;
    }
}
