use std::sync::Arc;
use std::time::{Duration, Instant};

use inference::{Attributes, Batch, Evaluator, Predictions, Wdl};
use weights::WeightsVersion;

use crate::tower::{Stage, Tower, Workspace};

/// The batch size from which larger ones gain little: weights are read once for all positions of a pass.
const PREFERRED_BATCH: usize = 32;
/// More positions than this in one batch are a bug of the caller's configuration.
const MAX_BATCH: usize = 16_384;

/// A weights version that answers on this CPU.
///
/// Belongs to one thread and allocates nothing per call; another thread has its own over the same [`Tower`].
#[derive(Debug)]
pub struct TowerEvaluator {
    tower: Arc<Tower>,
    workspace: Workspace,
    attributes: Attributes,
    /// Reused for the priors of one position.
    priors: Vec<f32>,
}

impl TowerEvaluator {
    /// An evaluator over packed weights.
    #[must_use]
    pub fn new(tower: Arc<Tower>, version: WeightsVersion) -> Self {
        let attributes = Attributes {
            name: format!("tower cpu {}", tower.path()),
            weights_version: version.0,
            preferred_batch: PREFERRED_BATCH,
            max_batch: MAX_BATCH,
        };
        Self {
            workspace: tower.workspace(),
            priors: Vec::with_capacity(tower.architecture().actions),
            tower,
            attributes,
        }
    }

    /// The weights it answers with.
    #[must_use]
    pub fn tower(&self) -> &Arc<Tower> {
        &self.tower
    }

    /// How long each stage of a batch takes, summed over its passes; `now` is the clock.
    ///
    /// # Errors
    /// As [`Evaluator::evaluate`], except that numbers which are not finite are nobody's concern.
    pub fn stages(
        &mut self,
        batch: &Batch,
        now: &mut dyn FnMut() -> Instant,
    ) -> Result<Vec<(Stage, Duration)>, inference::Error> {
        self.check(batch)?;
        let mut stages: Vec<(Stage, Duration)> = Vec::new();
        let mut last = now();
        for observations in batch.observations().chunks(self.tower.positions() * batch.shape().len()) {
            self.tower.forward(&mut self.workspace, observations, |stage| {
                let instant = now();
                let took = instant.duration_since(last);
                last = instant;
                match stages.iter_mut().find(|(known, _)| *known == stage) {
                    Some((_, sum)) => *sum += took,
                    None => stages.push((stage, took)),
                }
            });
        }
        Ok(stages)
    }

    fn check(&self, batch: &Batch) -> Result<(), inference::Error> {
        let (shape, expected) = (batch.shape(), self.tower.architecture());
        if (shape.planes, shape.height, shape.width) != (expected.planes, expected.height, expected.width) {
            return Err(inference::Error::Shape {
                expected: format!("observations of [{}, {}, {}]", expected.planes, expected.height, expected.width),
                got: format!("observations of [{}, {}, {}]", shape.planes, shape.height, shape.width),
            });
        }
        if batch.len() > MAX_BATCH {
            return Err(inference::Error::Shape {
                expected: format!("at most {MAX_BATCH} positions"),
                got: format!("{} positions", batch.len()),
            });
        }
        let legal = (0..batch.len()).flat_map(|i| batch.legal(i));
        match legal.map(|action| action.index()).find(|&action| action >= expected.actions) {
            Some(action) => Err(inference::Error::Shape {
                expected: format!("actions below {}", expected.actions),
                got: format!("action {action}"),
            }),
            None => Ok(()),
        }
    }

    /// The answer to a position of the last pass, whose index in the batch is `index`.
    fn answer(
        &mut self,
        position: usize,
        index: usize,
        batch: &Batch,
        predictions: &mut Predictions,
    ) -> Result<(), inference::Error> {
        let policy = self.tower.policy(&self.workspace, position);
        let mut wdl = self.tower.value(&self.workspace, position);
        // Only what is handed out counts, but a NaN anywhere says the network is broken.
        if policy.iter().chain(&wdl).any(|logit| !logit.is_finite()) {
            return Err(inference::Error::NotFinite { weights_version: self.attributes.weights_version });
        }
        self.priors.clear();
        self.priors.extend(batch.legal(index).iter().map(|action| policy[action.index()]));
        softmax(&mut self.priors);
        softmax(&mut wdl);
        predictions.push(&self.priors, Wdl { win: wdl[0], draw: wdl[1], loss: wdl[2] });
        Ok(())
    }
}

impl Evaluator for TowerEvaluator {
    fn attributes(&self) -> Attributes {
        self.attributes.clone()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), inference::Error> {
        predictions.clear();
        self.check(batch)?;
        let pass = self.tower.positions();
        for (first, observations) in batch.observations().chunks(pass * batch.shape().len()).enumerate() {
            self.tower.forward(&mut self.workspace, observations, |_| {});
            for index in first * pass..batch.len().min((first + 1) * pass) {
                self.answer(index - first * pass, index, batch, predictions)?;
            }
        }
        Ok(())
    }
}

/// Finite logits to probabilities, in place.
fn softmax(logits: &mut [f32]) {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for logit in logits.iter_mut() {
        *logit = (*logit - max).exp();
        sum += *logit;
    }
    for logit in logits.iter_mut() {
        *logit /= sum;
    }
}
