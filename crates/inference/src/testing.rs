//! Evaluators for tests: uniform, hashing, scripted, failing.
//!
//! None of them knows anything about a game. [`Uniform`] is also what self-play begins with before there are weights.

use game::{Action, ObservationShape, mix};

use crate::{Attributes, Batch, Error, Evaluator, Predictions, Wdl};

/// No batch of a test is larger.
const MAX_BATCH: usize = 4096;

fn attributes(name: &str, weights_version: u64) -> Attributes {
    Attributes { name: name.into(), weights_version, preferred_batch: 64, max_batch: MAX_BATCH }
}

fn check(batch: &Batch, shape: ObservationShape) -> Result<(), Error> {
    if batch.shape() != shape {
        return Err(Error::Shape { expected: format!("{shape:?}"), got: format!("{:?}", batch.shape()) });
    }
    if batch.len() > MAX_BATCH {
        let (expected, got) = (format!("at most {MAX_BATCH} positions"), format!("{} positions", batch.len()));
        return Err(Error::Shape { expected, got });
    }
    Ok(())
}

/// Knows nothing: every legal action is as good as any other, and nobody is ahead.
#[derive(Debug, Clone)]
pub struct Uniform {
    shape: ObservationShape,
    priors: Vec<f32>,
}

impl Uniform {
    /// For observations of `shape`.
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
        check(batch, self.shape)?;
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

/// Pseudo-random priors and values that depend on nothing but the observation, the legal actions and a seed.
///
/// A network without meaning: as opinionated as a trained one, the same on every machine.
#[derive(Debug, Clone)]
pub struct Hashing {
    shape: ObservationShape,
    seed: u64,
    priors: Vec<f32>,
}

impl Hashing {
    /// For observations of `shape`; the seed stands in for the weights, and is their version.
    #[must_use]
    pub fn new(shape: ObservationShape, seed: u64) -> Self {
        Self { shape, seed, priors: Vec::new() }
    }
}

impl Evaluator for Hashing {
    fn attributes(&self) -> Attributes {
        attributes("hashing", self.seed)
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        check(batch, self.shape)?;
        predictions.clear();
        for i in 0..batch.len() {
            let hash = batch.observation(i).iter().fold(mix(self.seed), |hash, x| mix(hash ^ u64::from(x.to_bits())));
            self.priors.clear();
            // Squares spread the priors: some actions are liked ten times as much as others.
            self.priors.extend(batch.legal(i).iter().map(|action| {
                let liking = 0.1 + unit(mix(hash ^ u64::from(action.0) << 32));
                liking * liking
            }));
            let sum: f32 = self.priors.iter().sum();
            self.priors.iter_mut().for_each(|prior| *prior /= sum);
            let (win, draw, loss) =
                (0.01 + unit(mix(hash ^ 1)), 0.01 + unit(mix(hash ^ 2)), 0.01 + unit(mix(hash ^ 3)));
            let sum = win + draw + loss;
            predictions.push(&self.priors, Wdl { win: win / sum, draw: draw / sum, loss: loss / sum });
        }
        Ok(())
    }
}

/// The top 24 bits as a number in `[0, 1)`: exact in f32.
pub(crate) fn unit(hash: u64) -> f32 {
    (hash >> 40) as f32 / (1u64 << 24) as f32
}

/// Answers what a function says, where nothing may be guessed.
///
/// The function sees one position at a time, its observation and its legal actions, and writes one prior per action.
pub struct Scripted<F> {
    shape: ObservationShape,
    answer: F,
    priors: Vec<f32>,
    weights_version: u64,
}

impl<F: FnMut(&[f32], &[Action], &mut [f32]) -> Wdl + Send> Scripted<F> {
    /// For observations of `shape`, answering with `answer`.
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
        check(batch, self.shape)?;
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

/// How a [`Faulty`] evaluator fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It says that its device is gone.
    Backend,
    /// It says that its network answered NaN.
    NotFinite,
    /// It breaks its promise and passes NaN on.
    AnswersNan,
}

/// Answers like [`Uniform`] for a number of batches, then fails for one, and so on: a backend that comes and goes.
#[derive(Debug, Clone)]
pub struct Faulty {
    inner: Uniform,
    fault: Fault,
    good_batches: usize,
    batches: usize,
}

impl Faulty {
    /// Fails after every `good_batches` batches.
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
            Fault::Backend => Err(Error::Backend("it was told to".to_owned())),
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
mod tests;
