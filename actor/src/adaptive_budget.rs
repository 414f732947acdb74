//! Raises the number of simulations per full search while the replay server blocks inserts, so that a thread produces
//! better targets instead of waiting.

use std::time::Duration;

/// Time between two adjustments of the budget, long enough to average over waits, which come in bursts.
const WINDOW: Duration = Duration::from_secs(10);
/// Target for the fraction of time that a thread waits for the replay server. If the target were zero, the learner
/// would soon wait instead.
const WAIT_SHARE: f64 = 0.1;
/// Maximum factor by which one adjustment raises or lowers the budget, since its effect can be measured only in the
/// next window.
const FACTOR_MAX: f64 = 1.25;
/// Minimum fraction of time spent playing for an adjustment. A lower fraction means that the thread waits for an
/// unreachable server, not for a busy learner.
const PLAYED_SHARE_MIN: f64 = 0.02;

/// The number of simulations per full search of one thread.
#[derive(Debug)]
pub(crate) struct AdaptiveBudget {
    least: u32,
    most: u32,
    simulations: f64,
    played: Duration,
    waited: Duration,
}

impl AdaptiveBudget {
    /// Creates a budget that starts at the minimum, `full_simulations`; the maximum is `full_simulations_max`, if
    /// higher.
    pub(crate) fn new(settings: &selfplay::Settings) -> Self {
        let (least, most) = (settings.full_simulations, settings.full_simulations_max);
        let simulations = f64::from(least);
        Self { least, most: most.max(least), simulations, played: Duration::ZERO, waited: Duration::ZERO }
    }

    /// Adds time that the thread spent playing.
    pub(crate) fn played(&mut self, time: Duration) {
        self.played += time;
    }

    /// Adds time that the thread waited for the replay server to accept inserts.
    pub(crate) fn waited(&mut self, time: Duration) {
        self.waited += time;
    }

    /// Returns the new number of simulations per full search; `None` if unchanged.
    pub(crate) fn revise(&mut self) -> Option<u32> {
        let time = self.played + self.waited;
        if self.least == self.most || time < WINDOW {
            return None;
        }
        let played_share = self.played.as_secs_f64() / time.as_secs_f64();
        (self.played, self.waited) = (Duration::ZERO, Duration::ZERO);
        if played_share < PLAYED_SHARE_MIN {
            return None;
        }
        // The cost of a position is nearly proportional to the number of simulations.
        let factor = ((1.0 - WAIT_SHARE) / played_share).clamp(1.0 / FACTOR_MAX, FACTOR_MAX);
        let before = self.rounded();
        self.simulations = (self.simulations * factor).clamp(self.least.into(), self.most.into());
        let after = self.rounded();
        (after != before).then_some(after)
    }

    fn rounded(&self) -> u32 {
        self.simulations.round() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(least: u32, most: u32) -> AdaptiveBudget {
        AdaptiveBudget::new(&selfplay::Settings {
            full_simulations: least,
            full_simulations_max: most,
            ..selfplay::Settings::default()
        })
    }

    /// Adds a window of ten seconds, with this share of waiting time.
    fn window(budget: &mut AdaptiveBudget, wait_share: f64) -> Option<u32> {
        budget.played(WINDOW.mul_f64(1.0 - wait_share));
        budget.waited(WINDOW.mul_f64(wait_share) + Duration::from_millis(1));
        budget.revise()
    }

    /// Returns the number of simulations that a thread settles at, if 32 simulations let the thread play `rate` times
    /// as fast as the learner trains.
    fn settled(budget: &mut AdaptiveBudget, rate: f64) -> u32 {
        let mut simulations = 32;
        for _ in 0..100 {
            let busy = (f64::from(simulations) / 32.0 / rate).min(1.0);
            simulations = window(budget, 1.0 - busy).unwrap_or(simulations);
        }
        simulations
    }

    #[test]
    fn threads_that_would_wait_search_deeper_until_they_hardly_wait() {
        assert!((85..=88).contains(&settled(&mut budget(32, 1000), 3.0)), "0.9 · 3 · 32");
        assert_eq!(settled(&mut budget(32, 64), 3.0), 64, "no deeper than what is allowed");
        assert_eq!(settled(&mut budget(32, 1000), 0.7), 32, "no shallower than configured");
    }

    #[test]
    fn simulations_fall_again_when_threads_no_longer_wait() {
        let mut budget = budget(32, 1000);
        assert!(settled(&mut budget, 10.0) > 200);
        assert!((56..=59).contains(&settled(&mut budget, 2.0)), "0.9 · 2 · 32");
    }

    #[test]
    fn depth_stays_where_no_more_is_allowed() {
        for most in [0, 31, 32] {
            assert_eq!(window(&mut budget(32, most), 0.8), None);
        }
    }

    #[test]
    fn an_unavailable_server_does_not_raise_the_simulations() {
        let mut budget = budget(32, 64);
        assert_eq!(window(&mut budget, 0.99), None);
        assert_eq!(window(&mut budget, 0.5), Some(40));
    }

    #[test]
    fn depth_is_revised_once_in_a_window() {
        let mut budget = budget(32, 64);
        budget.played(WINDOW / 4);
        budget.waited(WINDOW / 4);
        assert_eq!(budget.revise(), None);
        budget.played(WINDOW / 4);
        budget.waited(WINDOW / 4);
        assert_eq!(budget.revise(), Some(40));
        assert_eq!(budget.revise(), None);
    }
}
