//! Evaluators for tests (uniform, scripted, failing), the conformance suite of all evaluators, learned models for tests
//! (one with exact rules, one that fails), and [`Chain`], a tiny environment.
//!
//! None of the evaluators depends on a game. Only tests depend on this crate.

mod chain;
pub mod conformance;
mod latent_models;

pub use chain::{Chain, FORWARD, Place};
pub use latent_models::{Calls, FaultyModel, RulesModel};

use game::{Action, ObservationShape};
use inference::{Attributes, Batch, Error, Evaluator, Predictions, Wdl};

/// Maximum batch size in tests.
const MAX_BATCH: usize = 4096;

fn attributes(name: &str, weights_version: u64) -> Attributes {
    Attributes { name: name.into(), weights_version, preferred_batch: 64, max_batch: MAX_BATCH }
}

/// Returns uniform priors over the legal actions and an even outcome.
#[derive(Debug, Clone)]
pub struct Uniform {
    shape: ObservationShape,
    priors: Vec<f32>,
}

impl Uniform {
    /// Creates an evaluator for observations of `shape`.
    #[must_use]
    pub fn new(shape: ObservationShape) -> Self {
        Self { shape, priors: Vec::new() }
    }
}

impl Evaluator for Uniform {
    fn attributes(&self) -> Attributes {
        attributes("uniform", 0)
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        batch.check(self.shape, usize::MAX, MAX_BATCH)?;
        predictions.clear();
        for i in 0..batch.len() {
            let legal = batch.legal(i).len();
            self.priors.clear();
            self.priors.resize(legal, 1.0 / legal as f32);
            predictions.push(&self.priors, Wdl::EVEN);
        }
        Ok(())
    }
}

/// Returns the results of a function, for exact tests.
///
/// The function receives the observation and the legal actions of one position at a time, and writes one prior per
/// legal action.
pub struct Scripted<F> {
    shape: ObservationShape,
    answer: F,
    priors: Vec<f32>,
    weights_version: u64,
}

impl<F: FnMut(&[f32], &[Action], &mut [f32]) -> Wdl + Send> Scripted<F> {
    /// Creates an evaluator for observations of `shape` that evaluates with `answer`.
    pub fn new(shape: ObservationShape, weights_version: u64, answer: F) -> Self {
        Self { shape, answer, priors: Vec::new(), weights_version }
    }
}

impl<F> std::fmt::Debug for Scripted<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scripted").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl<F: FnMut(&[f32], &[Action], &mut [f32]) -> Wdl + Send> Evaluator for Scripted<F> {
    fn attributes(&self) -> Attributes {
        attributes("scripted", self.weights_version)
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        batch.check(self.shape, usize::MAX, MAX_BATCH)?;
        predictions.clear();
        for i in 0..batch.len() {
            self.priors.clear();
            self.priors.resize(batch.legal(i).len(), 0.0);
            let value = (self.answer)(batch.observation(i), batch.legal(i), &mut self.priors);
            predictions.push(&self.priors, value);
        }
        Ok(())
    }
}

/// Predicts the return that a function gives for an observation, with uniform priors; for games scored by rewards.
pub struct ScriptedReturns<F> {
    shape: ObservationShape,
    answer: F,
    weights_version: u64,
}

impl<F: FnMut(&[f32]) -> f32 + Send> ScriptedReturns<F> {
    /// Creates an evaluator for observations of `shape` that predicts `answer`.
    pub fn new(shape: ObservationShape, weights_version: u64, answer: F) -> Self {
        Self { shape, answer, weights_version }
    }
}

impl<F> std::fmt::Debug for ScriptedReturns<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedReturns").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl<F: FnMut(&[f32]) -> f32 + Send> Evaluator for ScriptedReturns<F> {
    fn attributes(&self) -> Attributes {
        attributes("scripted returns", self.weights_version)
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        batch.check(self.shape, usize::MAX, MAX_BATCH)?;
        predictions.clear();
        for i in 0..batch.len() {
            let legal = batch.legal(i).len();
            let priors = std::iter::repeat_n(1.0 / legal as f32, legal);
            predictions.push_return(priors, (self.answer)(batch.observation(i)));
        }
        Ok(())
    }
}

/// Failure of a [`Faulty`] evaluator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The evaluator returns [`Error::Backend`].
    Backend,
    /// The evaluator returns [`Error::NotFinite`].
    NotFinite,
    /// The evaluator violates the contract and returns NaN as predictions.
    AnswersNan,
}

/// Behaves like [`Uniform`] for a number of batches, then fails for one, and repeats this: a backend with intermittent
/// failures.
#[derive(Debug, Clone)]
pub struct Faulty {
    inner: Uniform,
    fault: Fault,
    good_batches: usize,
    batches: usize,
}

impl Faulty {
    /// Creates an evaluator that fails for one batch after every `good_batches` batches.
    #[must_use]
    pub fn new(shape: ObservationShape, fault: Fault, good_batches: usize) -> Self {
        Self { inner: Uniform::new(shape), fault, good_batches, batches: 0 }
    }
}

impl Evaluator for Faulty {
    fn attributes(&self) -> Attributes {
        attributes("faulty", 0)
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        self.batches += 1;
        if !self.batches.is_multiple_of(self.good_batches + 1) {
            return self.inner.evaluate(batch, predictions);
        }
        match self.fault {
            Fault::Backend => Err(Error::Backend("the test made it fail".to_owned())),
            Fault::NotFinite => Err(Error::NotFinite { weights_version: 0 }),
            Fault::AnswersNan => {
                predictions.clear();
                for i in 0..batch.len() {
                    predictions.push(&vec![f32::NAN; batch.legal(i).len()], Wdl::EVEN);
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use inference::Hashing;

    use super::*;

    const SHAPE: ObservationShape = ObservationShape { planes: 3, height: 4, width: 5 };

    #[test]
    fn the_uniform_evaluator_conforms() {
        conformance::run(&mut Uniform::new(SHAPE), SHAPE, 20, 0.0);
    }

    #[test]
    fn the_hashing_evaluator_conforms() {
        conformance::run(&mut Hashing::new(SHAPE, 3), SHAPE, 20, 0.0);
    }

    #[test]
    fn a_scripted_evaluator_conforms_if_its_script_does() {
        let script = |_: &[f32], legal: &[Action], priors: &mut [f32]| {
            priors[0] = 1.0;
            Wdl { win: 1.0 / legal.len() as f32, draw: 1.0 - 1.0 / legal.len() as f32, loss: 0.0 }
        };
        conformance::run(&mut Scripted::new(SHAPE, 5, script), SHAPE, 20, 0.0);
    }

    #[test]
    #[should_panic(expected = "is not finite")]
    fn the_suite_catches_nan() {
        conformance::run(&mut Faulty::new(SHAPE, Fault::AnswersNan, 1), SHAPE, 20, 0.0);
    }

    #[test]
    #[should_panic(expected = "sum to")]
    fn the_suite_catches_priors_that_do_not_sum_to_one() {
        let half = |_: &[f32], _: &[Action], priors: &mut [f32]| {
            priors[0] = 0.5;
            Wdl::EVEN
        };
        conformance::run(&mut Scripted::new(SHAPE, 0, half), SHAPE, 20, 0.0);
    }

    /// Evaluates like the inner evaluator, but shifts every value towards a win in proportion to the distance from the
    /// end of the batch.
    struct PositionBiased(Hashing);

    impl Evaluator for PositionBiased {
        fn attributes(&self) -> Attributes {
            self.0.attributes()
        }

        fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
            let mut straight = Predictions::new();
            self.0.evaluate(batch, &mut straight)?;
            predictions.clear();
            for i in 0..batch.len() {
                let lean = (batch.len() - i) as f32 / MAX_BATCH as f32;
                let Wdl { win, draw, loss } = straight.wdl()[i];
                let value =
                    Wdl { win: win * (1.0 - lean) + lean, draw: draw * (1.0 - lean), loss: loss * (1.0 - lean) };
                predictions.push(straight.priors(i), value);
            }
            Ok(())
        }
    }

    #[test]
    #[should_panic(expected = "with the other positions of the batch")]
    fn the_suite_catches_answers_that_depend_on_the_rest_of_the_batch() {
        conformance::run(&mut PositionBiased(Hashing::new(SHAPE, 3)), SHAPE, 20, 1e-5);
    }

    #[test]
    #[should_panic(expected = "the same batch is answered differently")]
    fn the_suite_catches_answers_that_depend_on_earlier_requests() {
        let mut count = 0;
        let drifting = move |_: &[f32], legal: &[Action], priors: &mut [f32]| {
            count = (count + 1) % 23;
            priors.fill(1.0 / legal.len() as f32);
            let win = count as f32 / 23.0;
            Wdl { win, draw: 0.0, loss: 1.0 - win }
        };
        conformance::run(&mut Scripted::new(SHAPE, 0, drifting), SHAPE, 20, 1e-3);
    }

    #[test]
    fn a_faulty_evaluator_fails_at_the_configured_interval_and_recovers() {
        let mut evaluator = Faulty::new(SHAPE, Fault::Backend, 2);
        let mut predictions = Predictions::new();
        let batch = Batch::new(SHAPE);
        let fails: Vec<bool> = (0..6).map(|_| evaluator.evaluate(&batch, &mut predictions).is_err()).collect();
        assert_eq!(fails, [false, false, true, false, false, true]);
    }
}
