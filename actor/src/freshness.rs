use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Decides whether the weights may be too old to play with: the learner has been away for longer than is allowed.
#[derive(Debug, Clone)]
pub(crate) struct Freshness {
    /// Since when it is not known whether there are newer weights.
    away: watch::Receiver<Option<Instant>>,
    /// The longest time that it may be away.
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

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn weights_are_outdated_once_the_learner_is_away_for_too_long_and_until_it_is_back() {
        let (tell, away) = watch::channel(None);
        let [mut bounded, unbounded] = [Some(MOST), None].map(|most| Freshness::new(away.clone(), most));
        assert_eq!(bounded.outdated_for(), None);
        tell.send_replace(Some(Instant::now()));
        assert_eq!(bounded.outdated_for(), None);
        // A clock that began just now has nothing to show.
        let Some(long_ago) = Instant::now().checked_sub(MOST + Duration::from_secs(1)) else { return };
        tell.send_replace(Some(long_ago));
        assert!(bounded.outdated_for().is_some_and(|away| away > MOST));
        assert_eq!(unbounded.outdated_for(), None);
        assert!(tokio::time::timeout(Duration::from_millis(1), bounded.restored()).await.is_err());
        tell.send_replace(None);
        bounded.restored().await;
        assert_eq!(bounded.outdated_for(), None);
    }
}
