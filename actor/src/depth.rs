//! How deep full searches go: deeper while the replay server takes no more, so that time in which a thread would wait makes
//! better targets instead.

use std::time::Duration;

#[cfg(test)]
mod tests;

/// Between two revisions: long enough that waits, which come in bursts, even out.
const WINDOW: Duration = Duration::from_secs(10);
/// The share of waiting that is aimed at. Without any, the learner would soon be the one that waits.
const WAIT_SHARE: f64 = 0.1;
/// One revision multiplies or divides by no more: its effect shows only in the next window.
const FACTOR_MAX: f64 = 1.25;
/// Below this share of playing, what holds the thread up is no learner that is busy but a server that is away.
const PLAYED_SHARE_MIN: f64 = 0.02;

/// The simulations of a thread's full searches.
#[derive(Debug)]
pub(crate) struct Depth {
    least: u32,
    most: u32,
    simulations: f64,
    played: Duration,
    waited: Duration,
}

impl Depth {
    /// `full_simulations` at first and at least; at most `full_simulations_max`, if that is more.
    pub(crate) fn new(settings: &selfplay::Settings) -> Self {
        let (least, most) = (settings.full_simulations, settings.full_simulations_max);
        let simulations = f64::from(least);
        Self { least, most: most.max(least), simulations, played: Duration::ZERO, waited: Duration::ZERO }
    }

    /// So long the thread played.
    pub(crate) fn played(&mut self, time: Duration) {
        self.played += time;
    }

    /// So long the thread waited for the replay server to take more.
    pub(crate) fn waited(&mut self, time: Duration) {
        self.waited += time;
    }

    /// The simulations of full searches from now on; `None` if they stay what they are.
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
        // What a position costs is nearly in proportion to its simulations.
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
