use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use run_file::actor::Settings;
use tokio::sync::Notify;

/// Maximum number of searches per slot by which reanalysis catches up after a time without trajectories to search.
const CREDIT_SEARCHES: u64 = 2;

/// Time after which a waiting thread checks again, even without a notification.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Divides the simulations of an actor between self-play and reanalysis.
///
/// Reanalysis runs only while it has used less than the configured fraction of simulations, so it keeps pace with
/// self-play, and stops when self-play waits for weights or for the replay server. Reanalysis therefore never slows
/// self-play by more than this fraction, and the number of revisions in the log is proportional to the number of
/// inserts.
#[derive(Debug)]
pub(crate) struct Share {
    /// Simulations of reanalysis per simulation of self-play.
    ratio: f64,
    /// Maximum number of simulations by which reanalysis catches up.
    credit_max: f64,
    selfplay: AtomicU64,
    reanalysis: AtomicU64,
    earned: Notify,
}

impl Share {
    /// Returns the division that an actor's settings configure, with `threads` reanalysis threads.
    pub(crate) fn of(settings: &Settings, threads: usize) -> Self {
        let searches = settings.reanalysis_searches();
        let slots = (threads * searches.games) as u64;
        Self::new(settings.reanalysis.share, CREDIT_SEARCHES * slots * u64::from(searches.full_simulations))
    }

    /// Creates a division that gives reanalysis the fraction `share` of the simulations, below 1. Reanalysis catches up
    /// on at most `credit_max` simulations after a time without trajectories to search.
    pub(crate) fn new(share: f64, credit_max: u64) -> Self {
        Self {
            ratio: share / (1.0 - share),
            credit_max: credit_max as f64,
            selfplay: AtomicU64::new(0),
            reanalysis: AtomicU64::new(0),
            earned: Notify::new(),
        }
    }

    /// Counts simulations of self-play.
    pub(crate) fn earn(&self, simulations: usize) {
        self.selfplay.fetch_add(simulations as u64, Ordering::Relaxed);
        self.earned.notify_waiters();
    }

    /// Counts simulations of reanalysis.
    pub(crate) fn spend(&self, simulations: usize) {
        self.reanalysis.fetch_add(simulations as u64, Ordering::Relaxed);
    }

    /// Returns true if reanalysis has used less than the configured fraction of simulations.
    pub(crate) fn is_due(&self) -> bool {
        (self.reanalysis.load(Ordering::Relaxed) as f64) < self.allowed()
    }

    /// Resolves once [`is_due`](Self::is_due) holds. Cancel-safe.
    pub(crate) async fn due(&self) {
        while !self.is_due() {
            // A notification between the check and the wait may be missed.
            let _ = tokio::time::timeout(LOOK_INTERVAL, self.earned.notified()).await;
        }
    }

    /// Cancels simulations that reanalysis is behind by, beyond `credit_max`.
    pub(crate) fn forgive(&self) {
        let least = (self.allowed() - self.credit_max).max(0.0) as u64;
        self.reanalysis.fetch_max(least, Ordering::Relaxed);
    }

    fn allowed(&self) -> f64 {
        self.selfplay.load(Ordering::Relaxed) as f64 * self.ratio
    }
}

/// Returns the numbers of threads for self-play and for reanalysis, which gets the fraction `share` of the simulations.
/// Both numbers are rounded up, and at least one. The sum may exceed `threads` by one; [`Share`] limits the work of
/// reanalysis.
pub(crate) fn threads(threads: usize, share: f64) -> (usize, usize) {
    if share <= 0.0 {
        return (threads, 0);
    }
    let reanalysis = threads as f64 * share;
    // Both are at most `threads`.
    let (whole, rounded_up) = (reanalysis.floor() as usize, reanalysis.ceil() as usize);
    ((threads - whole).max(1), rounded_up.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reanalysis_has_its_share_of_all_simulations() {
        for share in [0.1, 0.25, 0.8] {
            let division = Share::new(share, 100);
            let (mut selfplay, mut reanalysis) = (0_u32, 0_u32);
            for _ in 0..1000 {
                division.earn(50);
                selfplay += 50;
                while division.is_due() {
                    division.spend(30);
                    reanalysis += 30;
                }
            }
            let actual = f64::from(reanalysis) / f64::from(selfplay + reanalysis);
            assert!((actual - share).abs() < 0.001, "{actual} of {share}");
        }
    }

    #[test]
    fn without_self_play_nothing_is_due() {
        let division = Share::new(0.5, 100);
        assert!(!division.is_due());
        division.earn(10);
        division.spend(10);
        assert!(!division.is_due());
    }

    #[test]
    fn what_was_not_searched_for_want_of_trajectories_is_not_caught_up() {
        let division = Share::new(0.5, 100);
        division.earn(1_000_000);
        division.forgive();
        division.spend(99);
        assert!(division.is_due());
        division.spend(1);
        assert!(!division.is_due());
        division.forgive();
        division.earn(1);
        assert!(division.is_due(), "forgiving takes nothing away");
    }

    #[tokio::test]
    async fn a_waiting_thread_goes_on_once_self_play_has_searched() {
        let division = std::sync::Arc::new(Share::new(0.5, 100));
        let waiting = tokio::spawn({
            let division = std::sync::Arc::clone(&division);
            async move { division.due().await }
        });
        division.earn(1);
        scripted::within(waiting).await.unwrap();
    }

    #[test]
    fn every_kind_of_work_has_a_thread_and_reanalysis_as_many_as_its_share() {
        let cases =
            [((1, 0.25), (1, 1)), ((2, 0.25), (2, 1)), ((8, 0.25), (6, 2)), ((4, 0.9), (1, 4)), ((8, 0.0), (8, 0))];
        for ((all, share), expected) in cases {
            assert_eq!(threads(all, share), expected, "{share} of {all}");
        }
    }
}
