use std::sync::Arc;
use std::time::{Duration, Instant};

use game::ObservationShape;
use inference::{Attributes, Batch, Evaluator, Predictions};
use weights::{Architecture, WeightsVersion};

use crate::recent::Recent;
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
    /// The store of recently evaluated positions, if one is kept.
    recent: Option<Arc<Recent>>,
}

impl TowerEvaluator {
    /// An evaluator over packed weights.
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

    /// The same evaluator, which stores the positions of its batches in `recent`.
    pub(crate) fn showing(self, recent: Arc<Recent>) -> Self {
        Self { recent: Some(recent), ..self }
    }

    /// The weights it answers with.
    #[must_use]
    pub fn tower(&self) -> &Arc<Tower> {
        &self.tower
    }

    /// Measures each stage of a batch, summed over its passes; `now` is the clock.
    ///
    /// # Errors
    /// As [`Evaluator::evaluate`], except that numbers which are not finite are accepted.
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
