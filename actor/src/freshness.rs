use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// Whether the weights at hand may be too old to play with: the learner has been away for longer than is allowed.
#[derive(Debug, Clone)]
pub(crate) struct Freshness {
    /// Since when it is not known whether there are newer weights.
    away: watch::Receiver<Option<Instant>>,
    /// How long that may last.
    most: Option<Duration>,
}

impl Freshness {
    pub(crate) fn new(away: watch::Receiver<Option<Instant>>, most: Option<Duration>) -> Self {
        Self { away, most }
    }

    /// For how long the learner has been away, if that is too long.
    pub(crate) fn outdated_for(&self) -> Option<Duration> {
        let away = (*self.away.borrow())?.elapsed();
        self.most.filter(|most| away > *most).map(|_| away)
    }

    /// Resolves once the newest weights are at hand. Cancel-safe.
    pub(crate) async fn restored(&mut self) {
        if self.away.wait_for(Option::is_none).await.is_err() {
            // The subscriber is gone only when the process ends.
            std::future::pending().await
        }
    }
}
