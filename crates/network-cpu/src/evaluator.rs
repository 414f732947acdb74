use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use game::ObservationShape;
use inference::{Attributes, Batch, Evaluator, Predictions};
use weights::{Architecture, WeightsVersion};

use crate::tower::{Tower, Workspace};
use crate::trunk::Stage;

/// Batch size beyond which larger batches gain little: weights are read once for all positions of a pass.
const PREFERRED_BATCH: usize = 32;
/// Maximum positions of a batch; more are a bug in the caller's configuration.
const MAX_BATCH: usize = 16_384;

/// Evaluates batches with one weights version on this CPU.
///
/// It belongs to one thread and allocates nothing per call; another thread has a separate evaluator of the same
/// [`Tower`].
#[derive(Debug)]
pub struct TowerEvaluator {
    tower: Arc<Tower>,
    workspace: Workspace,
    attributes: Attributes,
    /// Recently evaluated positions, if they are stored.
    pub(crate) recent: Option<Arc<Recent>>,
}

impl TowerEvaluator {
    /// Creates an evaluator of packed weights.
    #[must_use]
    pub fn new(tower: Arc<Tower>, version: WeightsVersion) -> Self {
        let attributes = Attributes {
            name: format!("cpu {}", tower.path()).into(),
            weights_version: version.0,
            preferred_batch: PREFERRED_BATCH,
            max_batch: MAX_BATCH,
        };
        Self { workspace: tower.workspace(), tower, attributes, recent: None }
    }

    /// Returns the packed weights.
    #[must_use]
    pub fn tower(&self) -> &Arc<Tower> {
        &self.tower
    }

    /// Measures each stage of a batch, summed over all passes; `now` is the clock.
    ///
    /// # Errors
    /// The same as [`Evaluator::evaluate`], except that numbers which are not finite are accepted.
    pub fn stages(
        &mut self,
        batch: &Batch,
        now: &mut dyn FnMut() -> Instant,
    ) -> Result<Vec<(Stage, Duration)>, inference::Error> {
        self.check(batch)?;
        let mut stages: Vec<(Stage, Duration)> = Vec::new();
        let mut last = now();
        for pass in self.tower.passes(batch.len()) {
            self.tower.forward(&mut self.workspace, pass, batch.observations(), |stage, _, _| {
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
        let &Architecture { planes, height, width, actions, .. } = self.tower.architecture();
        batch.check(ObservationShape { planes, height, width }, actions, MAX_BATCH)
    }
}

impl Evaluator for TowerEvaluator {
    fn attributes(&self) -> Attributes {
        self.attributes.clone()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), inference::Error> {
        predictions.clear();
        self.check(batch)?;
        for pass in self.tower.passes(batch.len()) {
            self.tower.forward(&mut self.workspace, pass, batch.observations(), |_, _, _| {});
            for position in 0..pass.positions {
                let policy = self.tower.policy(&self.workspace, position);
                let value = self.tower.value(&self.workspace, position);
                if !predictions.push_logits(policy, batch.legal(pass.first + position), value) {
                    return Err(inference::Error::NotFinite { weights_version: self.attributes.weights_version });
                }
            }
        }
        if let Some(recent) = &self.recent {
            recent.show(batch);
        }
        Ok(())
    }
}

/// Positions of a sample: half of them to calibrate on, half to check with.
pub(crate) const SAMPLE: usize = 256;
/// Sampling interval in positions, so that a sample is spread over many games.
const STRIDE: usize = 16;

/// Recent positions of a process's evaluators. In an actor these positions also go to the replay server.
///
/// There is a sample for each observation shape, that is, for each board that the process evaluates.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<Vec<Positions>>);

#[derive(Debug)]
struct Positions {
    /// Number of positions evaluated so far.
    seen: usize,
    filling: Batch,
    /// Latest complete sample.
    sample: Option<Batch>,
}

impl Recent {
    /// Stores positions of a batch. While another thread is storing positions, nothing is stored.
    pub(crate) fn show(&self, batch: &Batch) {
        let mut all = match self.0.try_lock() {
            Ok(all) => all,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let shape = batch.shape();
        let index = all.iter().position(|positions| positions.filling.shape() == shape).unwrap_or_else(|| {
            all.push(Positions { seen: 0, filling: Batch::new(shape), sample: None });
            all.len() - 1
        });
        let positions = &mut all[index];
        let first = (STRIDE - positions.seen % STRIDE) % STRIDE;
        positions.seen += batch.len();
        for index in (first..batch.len()).step_by(STRIDE) {
            positions.take(batch, index);
        }
    }

    /// Returns the latest complete sample with observations of `shape`.
    pub(crate) fn sample(&self, shape: ObservationShape) -> Option<Batch> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|positions| positions.filling.shape() == shape)?.sample.clone()
    }
}

impl Positions {
    fn take(&mut self, batch: &Batch, index: usize) {
        self.filling.push(batch.legal(index), |planes| planes.copy_from_slice(batch.observation(index)));
        if self.filling.len() < SAMPLE {
            return;
        }
        // The next sample reuses the memory of the previous one.
        let mut next = self.sample.take().unwrap_or_else(|| Batch::new(batch.shape()));
        next.clear();
        self.sample = Some(std::mem::replace(&mut self.filling, next));
    }
}

#[cfg(test)]
mod tests {
    use game::Action;

    use super::*;

    const SHAPE: ObservationShape = ObservationShape { planes: 1, height: 1, width: 2 };

    /// Positions numbered from `first` on.
    fn batch(first: usize, positions: usize) -> Batch {
        let mut batch = Batch::new(SHAPE);
        for number in first..first + positions {
            batch.push(&[Action(1)], |planes| planes.copy_from_slice(&[number as f32, 0.5]));
        }
        batch
    }

    #[test]
    fn a_sample_is_every_sixteenth_position_and_the_last_complete_one() {
        let recent = Recent::default();
        let mut next = 0;
        let mut show = |positions: usize| {
            recent.show(&batch(next, positions));
            next += positions;
        };
        for size in (1..=63).cycle().take(120) {
            show(size);
        }
        // 63 * 64 / 2 + 57 * 58 / 2 = 3,669 so far: 230 taken.
        assert!(recent.sample(SHAPE).is_none());
        show(SAMPLE * STRIDE);
        let sample = recent.sample(SHAPE).unwrap();
        let numbers: Vec<f32> = (0..sample.len()).map(|index| sample.observation(index)[0]).collect();
        let wanted: Vec<f32> = (0..SAMPLE).map(|index| (index * STRIDE) as f32).collect();
        assert_eq!(numbers, wanted);
        assert_eq!(sample.legal(7), [Action(1)]);
        show(SAMPLE * STRIDE);
        let later = recent.sample(SHAPE).unwrap();
        assert_eq!(later.observation(0)[0], (SAMPLE * STRIDE) as f32);
    }

    #[test]
    fn every_shape_has_a_sample_of_its_own_though_their_positions_alternate() {
        let recent = Recent::default();
        let other = ObservationShape { planes: 1, height: 2, width: 2 };
        let mut wider = Batch::new(other);
        (0..STRIDE).for_each(|_| wider.push(&[Action(0)], |planes| planes.fill(0.0)));
        for turn in 0..SAMPLE {
            assert!(recent.sample(SHAPE).is_none() && recent.sample(other).is_none(), "complete after {turn} turns");
            recent.show(&batch(turn * STRIDE, STRIDE));
            recent.show(&wider);
        }
        for shape in [SHAPE, other] {
            let sample = recent.sample(shape).unwrap();
            assert_eq!((sample.len(), sample.shape()), (SAMPLE, shape));
        }
        assert_eq!(recent.sample(SHAPE).unwrap().observation(SAMPLE - 1)[0], ((SAMPLE - 1) * STRIDE) as f32);
    }
}
