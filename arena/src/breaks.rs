//! Between two stretches of measuring: sleeps for as long as the pacing asks, and meanwhile keeps raw accuracy that of the
//! newest weights, whichever version is being searched and plays its games.
//!
//! Without search an answer costs one evaluation, next to nothing beside the rest, so that newer weights need not wait their
//! turn: whoever watches a run, or ends a short one, sees what they know. Start with [`Breaks::take`].

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use game::Game;
use inference::Evaluator;
use proto::weights::Published;
use selfplay::AnalysisSettings;
use weights::WeightsVersion;

use crate::accuracy;
use crate::contestant::Searcher;
use crate::evaluators::{Build, evaluator_of};
use crate::metrics::{self, Answered};
use crate::pacing::Pacing;
use crate::solved::SolvedPosition;
use crate::worker::{Outside, draws};

/// Newer weights are asked this long after the last ones at the earliest.
const ASK_INTERVAL: Duration = Duration::from_secs(10);
/// How often a sleep is interrupted to look for newer weights.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long to wait for weights before looking again.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// What it takes to ask weights without search.
pub(crate) struct Questions<G> {
    /// The rules.
    pub(crate) game: G,
    /// What is asked; nothing in games without solved positions.
    pub(crate) positions: Rc<[SolvedPosition]>,
    /// Makes evaluators.
    pub(crate) build: Rc<Build>,
    /// How they answer: without simulations.
    pub(crate) settings: AnalysisSettings,
    /// Every draw descends from it.
    pub(crate) seed: u64,
}

/// The breaks of the measuring thread. The rest of the world is met here and nowhere else.
pub(crate) struct Breaks<G, O> {
    outside: O,
    pacing: Pacing,
    questions: Questions<G>,
    asked: Option<Asked>,
}

/// The last weights that were asked, whatever they answered.
struct Asked {
    version: WeightsVersion,
    at: Instant,
}

impl<G: Game, O: Outside> Breaks<G, O> {
    /// Work begins now, and takes at most `cpu_share` of one core.
    pub(crate) fn new(mut outside: O, cpu_share: f64, questions: Questions<G>) -> Self {
        let pacing = Pacing::new(cpu_share, outside.now());
        Self { outside, pacing, questions, asked: None }
    }

    /// Ends a stretch of work and sleeps for as long as the pacing says; breaks off when the process drains.
    pub(crate) fn take(&mut self) -> ControlFlow<()> {
        loop {
            self.ask_newest();
            let owed = self.pacing.pause(self.outside.now());
            let flow = self.outside.sleep(owed.min(LOOK_INTERVAL));
            self.pacing.resume(self.outside.now());
            if flow.is_break() || owed <= LOOK_INTERVAL {
                return flow;
            }
        }
    }

    /// Nothing to do before `remaining` has passed, or, if that is nothing, before newer weights come. Returns early, so
    /// that the caller looks again.
    pub(crate) fn idle(&mut self, remaining: Duration) -> ControlFlow<()> {
        self.ask_newest();
        self.pacing.pause(self.outside.now());
        let flow = if remaining.is_zero() {
            self.outside.wait_for_weights(WAIT_MAX)
        } else {
            self.outside.sleep(remaining.min(LOOK_INTERVAL))
        };
        self.pacing.resume(self.outside.now());
        flow
    }

    /// The newest weights, if any have arrived.
    pub(crate) fn newest(&mut self) -> Option<Arc<Published>> {
        self.outside.newest()
    }

    /// The time.
    pub(crate) fn now(&mut self) -> Instant {
        self.outside.now()
    }

    /// How long was worked in all.
    pub(crate) fn busy(&self) -> Duration {
        self.pacing.busy()
    }

    /// Measures raw accuracy, unless this version was asked before; breaks off when the process drains.
    ///
    /// # Errors
    /// Those of the evaluator.
    pub(crate) fn ask(
        &mut self,
        version: WeightsVersion,
        evaluator: &mut dyn Evaluator,
    ) -> Result<ControlFlow<()>, inference::Error> {
        let is_new = self.asked.as_ref().is_none_or(|asked| asked.version != version);
        let Questions { game, positions, settings, seed, .. } = &self.questions;
        if positions.is_empty() || !is_new {
            return Ok(ControlFlow::Continue(()));
        }
        self.asked = Some(Asked { version, at: self.outside.now() });
        let mut searcher = Searcher { evaluator, settings: settings.clone(), rng: draws(*seed, version, 0) };
        // Short enough to be slept for afterwards, as part of the stretch of work around it.
        let mut look = || self.outside.sleep(Duration::ZERO);
        let Some(measured) = accuracy::measure(game, positions, &mut searcher, &mut look)? else {
            return Ok(ControlFlow::Break(()));
        };
        metrics::accuracy(Answered::Raw, &measured);
        let (preserving, optimal) = (measured.overall.outcome_preserving_share(), measured.overall.optimal_share());
        tracing::info!(%version, simulations = 0, positions = positions.len(), preserving, optimal, "solved positions");
        Ok(ControlFlow::Continue(()))
    }

    /// Asks the newest weights if they are newer than the last ones asked, and those were asked a while ago.
    fn ask_newest(&mut self) {
        let Some(published) = self.outside.newest() else { return };
        let now = self.outside.now();
        let is_soon = |asked: &Asked| now.saturating_duration_since(asked.at) < ASK_INTERVAL;
        let version = published.manifest.version;
        if self.questions.positions.is_empty()
            || self.asked.as_ref().is_some_and(|asked| asked.version == version || is_soon(asked))
        {
            return;
        }
        if let Err(error) = self.ask_published(&published) {
            // Should it ever be measured as a whole, it is refused then.
            tracing::warn!(%version, error = service::chain(&error), "newer weights cannot be asked");
            self.asked = Some(Asked { version, at: now });
        }
    }

    fn ask_published(&mut self, published: &Published) -> anyhow::Result<()> {
        let Published { manifest, bytes } = published;
        let Questions { game, build, .. } = &self.questions;
        let mut evaluator = evaluator_of(build, &game.spec().name, manifest, bytes)?;
        // A drain is heard of again in the sleep that follows.
        let _ = self.ask(manifest.version, &mut *evaluator)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
