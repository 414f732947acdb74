//! Limits the measuring thread to a fraction of one core by pausing. During pauses, evaluates the raw policy of the
//! latest weights, whichever version is being measured.
//!
//! Without search, a position costs only one evaluation. Later weights therefore need not wait for the end of a
//! measurement, and a short run ends with the accuracy of the last version. [`Environment`] provides weights, time and
//! the drain. Start with [`Pacer::take`].

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evaluators::Network;
use game::Game;
use proto::weights::Published;
use weights::WeightsVersion;

use crate::metrics;
use crate::setup::Setup;

/// Minimum time between two evaluations of later weights.
const ASK_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between checks for later weights during a sleep.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum wait for weights before the next check.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The interface of the measuring thread to the process, which tests replace by a script.
pub(crate) trait Environment {
    /// Returns the latest weights, if any have arrived.
    fn newest(&mut self) -> Option<Arc<Published>>;

    /// Returns the current time.
    fn now(&mut self) -> Instant;

    /// Sleeps; stops early when the process drains.
    fn sleep(&mut self, duration: Duration) -> ControlFlow<()>;

    /// Serves weights that have passed the gate to actors.
    fn accept(&mut self, published: &Published);

    /// Waits for later weights up to a time limit; stops early when the process drains.
    fn wait_for_weights(&mut self, at_most: Duration) -> ControlFlow<()>;
}

/// Makes the measuring thread pause. No other code sleeps in the environment.
pub(crate) struct Pacer<G, O> {
    pub(crate) environment: O,
    pacing: Pacing,
    setup: Arc<Setup<G>>,
    evaluated: Option<Evaluated>,
}

/// The last weights whose raw policy was evaluated.
struct Evaluated {
    version: WeightsVersion,
    at: Instant,
}

impl<G: Game, O: Environment> Pacer<G, O> {
    /// Starts a period of work now, limited to the configured fraction of one core.
    pub(crate) fn new(mut environment: O, setup: Arc<Setup<G>>) -> Self {
        let pacing = Pacing::new(setup.settings.arena.cpu_share, environment.now());
        Self { environment, pacing, setup, evaluated: None }
    }

    /// Finishes a period of work and sleeps as long as the pacing requires; stops early when the process drains.
    pub(crate) fn take(&mut self) -> ControlFlow<()> {
        loop {
            self.evaluate_newest();
            let owed = self.pause();
            let flow = self.environment.sleep(owed.min(LOOK_INTERVAL));
            self.pacing.resume(self.environment.now());
            if flow.is_break() || owed <= LOOK_INTERVAL {
                return flow;
            }
        }
    }

    /// Checks for the drain without a sleep; breaks when the process drains. The next sleep compensates for the work so
    /// far.
    pub(crate) fn look(&mut self) -> ControlFlow<()> {
        self.environment.sleep(Duration::ZERO)
    }

    /// Waits until `remaining` has passed, or, if `remaining` is `None`, until later weights arrive. May return early;
    /// the caller must check again.
    pub(crate) fn idle(&mut self, remaining: Duration) -> ControlFlow<()> {
        self.evaluate_newest();
        self.pause();
        let flow = if remaining.is_zero() {
            self.environment.wait_for_weights(WAIT_MAX)
        } else {
            self.environment.sleep(remaining.min(LOOK_INTERVAL))
        };
        self.pacing.resume(self.environment.now());
        flow
    }

    /// Finishes a period of work and publishes the total working time; returns the required sleep.
    fn pause(&mut self) -> Duration {
        let owed = self.pacing.pause(self.environment.now());
        metrics::busy(self.pacing.busy);
        owed
    }

    /// Measures the accuracy of the raw policy, unless the last measurement was of this version; stops early when the
    /// process drains.
    ///
    /// # Errors
    /// The network fails.
    pub(crate) fn evaluate(
        &mut self,
        version: WeightsVersion,
        network: &mut Network,
    ) -> Result<ControlFlow<()>, inference::Error> {
        let is_new = self.evaluated.as_ref().is_none_or(|evaluated| evaluated.version != version);
        if self.setup.positions().is_empty() || !is_new {
            return Ok(ControlFlow::Continue(()));
        }
        self.evaluated = Some(Evaluated { version, at: self.environment.now() });
        // This work is short, and the next sleep compensates for it.
        let mut look = || self.environment.sleep(Duration::ZERO);
        self.setup.measure_accuracy(version, 0, network, &mut look)
    }

    /// Evaluates the latest weights, if they differ from the last evaluated weights and the minimum time has passed.
    fn evaluate_newest(&mut self) {
        let Some(published) = self.environment.newest() else { return };
        let now = self.environment.now();
        let is_soon = |evaluated: &Evaluated| now.saturating_duration_since(evaluated.at) < ASK_INTERVAL;
        let version = published.manifest.version;
        if self.setup.positions().is_empty()
            || self.evaluated.as_ref().is_some_and(|evaluated| evaluated.version == version || is_soon(evaluated))
        {
            return;
        }
        if let Err(error) = self.evaluate_published(&published) {
            // A full measurement of this version would report the same error.
            tracing::warn!(%version, error = service::chain(&error), "cannot evaluate newer weights");
            self.evaluated = Some(Evaluated { version, at: now });
        }
    }

    fn evaluate_published(&mut self, published: &Published) -> anyhow::Result<()> {
        let Published { manifest, bytes } = published;
        let mut network = self.setup.network(manifest, bytes)?;
        // The sleep that follows stops early if the process drains.
        let _ = self.evaluate(manifest.version, &mut network)?;
        Ok(())
    }
}

/// Keeps the fraction of time spent working, averaged since creation, at or below a bound.
#[derive(Debug, Clone)]
struct Pacing {
    share: f64,
    /// Start of the current period of work or sleep.
    resumed: Instant,
    /// Total working time.
    busy: Duration,
    /// Remaining required sleep.
    owed: Duration,
}

impl Pacing {
    /// Limits the working time to the fraction `share` of the total time, above 0 and at most 1.
    ///
    /// # Panics
    /// `share` is out of range; the configuration has checked it.
    fn new(share: f64, now: Instant) -> Self {
        assert!(share > 0.0 && share <= 1.0, "a share of time");
        Self { share, resumed: now, busy: Duration::ZERO, owed: Duration::ZERO }
    }

    /// Finishes a period of work and returns the required sleep. Call [`resume`](Self::resume) after the sleep.
    fn pause(&mut self, now: Instant) -> Duration {
        let worked = now.saturating_duration_since(self.resumed);
        self.resumed = now;
        self.busy += worked;
        self.owed += worked.mul_f64(1.0 / self.share - 1.0);
        self.owed
    }

    /// Starts a period of work. The time slept is deducted from the required sleep; sleeping longer than required earns
    /// no credit.
    fn resume(&mut self, now: Instant) {
        self.owed = self.owed.saturating_sub(now.saturating_duration_since(self.resumed));
        self.resumed = now;
    }
}

#[cfg(test)]
mod tests;
