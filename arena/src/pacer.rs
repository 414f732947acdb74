//! Pauses the measuring thread as the pacing requires, and meanwhile evaluates the raw policy of the newest weights,
//! independently of the version that is being searched and plays its games.
//!
//! Without search a position costs only one evaluation, so newer weights need not wait for the end of a measurement,
//! and a short run ends with the accuracy of its last version. Start with [`Pacer::take`].

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evaluators::Backend;
use game::Game;
use inference::Evaluator;
use proto::weights::Published;
use selfplay::AnalysisSettings;
use weights::WeightsVersion;

use crate::accuracy;
use crate::backend::evaluator_of;
use crate::contestant::{Searcher, draws};
use crate::environment::Environment;
use crate::metrics::{self, Answered};
use crate::pacing::Pacing;
use crate::solved::SolvedPosition;

/// Shortest time between two evaluations of newer weights.
const ASK_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between checks for newer weights during a sleep.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for weights before the next check.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The parts that evaluate the raw policy of weights.
pub(crate) struct RawEval<G> {
    /// The rules.
    pub(crate) game: G,
    /// The solved positions; empty for games without any.
    pub(crate) positions: Rc<[SolvedPosition]>,
    /// Builds evaluators.
    pub(crate) backend: Arc<dyn Backend>,
    /// An analysis without simulations.
    pub(crate) settings: AnalysisSettings,
    /// The seed of all random draws.
    pub(crate) seed: u64,
}

/// The pauses of the measuring thread. Only this type uses its environment.
pub(crate) struct Pacer<G, O> {
    environment: O,
    pacing: Pacing,
    raw_eval: RawEval<G>,
    evaluated: Option<Evaluated>,
}

/// The last weights whose raw policy was evaluated.
struct Evaluated {
    version: WeightsVersion,
    at: Instant,
}

impl<G: Game, O: Environment> Pacer<G, O> {
    /// Starts a period of work now, limited to `cpu_share` of one core.
    pub(crate) fn new(mut environment: O, cpu_share: f64, raw_eval: RawEval<G>) -> Self {
        let pacing = Pacing::new(cpu_share, environment.now());
        Self { environment, pacing, raw_eval, evaluated: None }
    }

    /// Ends a period of work and sleeps for as long as the pacing requires; stops early when the process drains.
    pub(crate) fn take(&mut self) -> ControlFlow<()> {
        loop {
            self.evaluate_newest();
            let owed = self.pacing.pause(self.environment.now());
            let flow = self.environment.sleep(owed.min(LOOK_INTERVAL));
            self.pacing.resume(self.environment.now());
            if flow.is_break() || owed <= LOOK_INTERVAL {
                return flow;
            }
        }
    }

    /// Waits until `remaining` has passed, or without it until newer weights arrive. May return early, so that the
    /// caller checks again.
    pub(crate) fn idle(&mut self, remaining: Duration) -> ControlFlow<()> {
        self.evaluate_newest();
        self.pacing.pause(self.environment.now());
        let flow = if remaining.is_zero() {
            self.environment.wait_for_weights(WAIT_MAX)
        } else {
            self.environment.sleep(remaining.min(LOOK_INTERVAL))
        };
        self.pacing.resume(self.environment.now());
        flow
    }

    /// Returns the newest weights, if any have arrived.
    pub(crate) fn newest(&mut self) -> Option<Arc<Published>> {
        self.environment.newest()
    }

    /// Returns the current time.
    pub(crate) fn now(&mut self) -> Instant {
        self.environment.now()
    }

    /// Returns the total working time.
    pub(crate) fn busy(&self) -> Duration {
        self.pacing.busy()
    }

    /// Measures raw accuracy, unless this version was the last one measured; stops early when the process drains.
    ///
    /// # Errors
    /// An error of the evaluator.
    pub(crate) fn evaluate(
        &mut self,
        version: WeightsVersion,
        evaluator: &mut dyn Evaluator,
    ) -> Result<ControlFlow<()>, inference::Error> {
        let is_new = self.evaluated.as_ref().is_none_or(|evaluated| evaluated.version != version);
        let RawEval { game, positions, settings, seed, .. } = &self.raw_eval;
        if positions.is_empty() || !is_new {
            return Ok(ControlFlow::Continue(()));
        }
        self.evaluated = Some(Evaluated { version, at: self.environment.now() });
        let mut searcher = Searcher { evaluator, settings: settings.clone(), rng: draws(*seed, version, 0) };
        // This work is short; the sleep after the period of work around it accounts for it.
        let mut look = || self.environment.sleep(Duration::ZERO);
        let Some(measured) = accuracy::measure(game, positions, &mut searcher, &mut look)? else {
            return Ok(ControlFlow::Break(()));
        };
        metrics::accuracy(Answered::Raw, &measured);
        let (preserving, optimal) = (measured.overall.outcome_preserving_share(), measured.overall.optimal_share());
        tracing::info!(%version, simulations = 0, positions = positions.len(), preserving, optimal, "solved positions");
        Ok(ControlFlow::Continue(()))
    }

    /// Evaluates the newest weights if they are newer than the last evaluated ones and the shortest time has passed.
    fn evaluate_newest(&mut self) {
        let Some(published) = self.environment.newest() else { return };
        let now = self.environment.now();
        let is_soon = |evaluated: &Evaluated| now.saturating_duration_since(evaluated.at) < ASK_INTERVAL;
        let version = published.manifest.version;
        if self.raw_eval.positions.is_empty()
            || self.evaluated.as_ref().is_some_and(|evaluated| evaluated.version == version || is_soon(evaluated))
        {
            return;
        }
        if let Err(error) = self.evaluate_published(&published) {
            // A full measurement of this version would reject it with the error.
            tracing::warn!(%version, error = service::chain(&error), "newer weights cannot be evaluated");
            self.evaluated = Some(Evaluated { version, at: now });
        }
    }

    fn evaluate_published(&mut self, published: &Published) -> anyhow::Result<()> {
        let Published { manifest, bytes } = published;
        let RawEval { game, backend, .. } = &self.raw_eval;
        let mut evaluator = evaluator_of(&**backend, &game.spec().name, manifest, bytes)?;
        // The sleep that follows stops early if the process drains.
        let _ = self.evaluate(manifest.version, &mut *evaluator)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
