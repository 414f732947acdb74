use std::sync::Arc;

use game::ObservationShape;
use inference::categorical::inverse_transform;
use inference::{Attributes, Batch, Error, LatentModel, LatentPredictions, Slot, Unroll};
use weights::{Architecture, WeightsVersion};

use super::network::{LatentNetwork, Workspace};
use super::pool::Pool;

/// Batch size beyond which larger batches gain little.
const PREFERRED_BATCH: usize = 256;
/// Maximum observations or steps of a batch; more are a bug in the caller's configuration.
const MAX_BATCH: usize = 16_384;

/// Computes latent states and predictions with one weights version on this CPU.
///
/// It belongs to one thread, with a pool of latent states, and allocates nothing per call; another thread has a
/// separate evaluator of the same [`LatentNetwork`].
#[derive(Debug)]
pub struct LatentEvaluator {
    network: Arc<LatentNetwork>,
    workspace: Workspace,
    pool: Pool,
    attributes: Attributes,
}

impl LatentEvaluator {
    /// Creates an evaluator of packed weights with an empty pool.
    #[must_use]
    pub fn new(network: Arc<LatentNetwork>, version: WeightsVersion) -> Self {
        let attributes = Attributes {
            name: format!("cpu {}", network.path()).into(),
            weights_version: version.0,
            preferred_batch: PREFERRED_BATCH,
            max_batch: MAX_BATCH,
        };
        Self { workspace: network.workspace(), pool: network.pool(), network, attributes }
    }

    /// Returns the packed weights.
    #[must_use]
    pub fn network(&self) -> &Arc<LatentNetwork> {
        &self.network
    }

    fn not_finite(&self) -> Error {
        Error::NotFinite { weights_version: self.attributes.weights_version }
    }
}

/// Returns the number with the transform `mean`, a mean atom.
fn scalar(mean: f32) -> f32 {
    inverse_transform(f64::from(mean)) as f32
}

impl LatentModel for LatentEvaluator {
    fn attributes(&self) -> Attributes {
        self.attributes.clone()
    }

    fn reserve(&mut self, slots: usize) -> Result<(), Error> {
        self.pool.reserve(slots).map_err(Error::Backend)
    }

    fn initial(&mut self, batch: &Batch, to: &[Slot], predictions: &mut LatentPredictions) -> Result<(), Error> {
        let &Architecture { planes, height, width, actions, .. } = self.network.architecture();
        let shape = ObservationShape { planes, height, width };
        batch.check(shape, actions, MAX_BATCH)?;
        if to.len() != batch.len() {
            let (expected, got) = (format!("{} slots", batch.len()), format!("{} slots", to.len()));
            return Err(Error::Shape { expected, got });
        }
        predictions.clear(actions);
        let pass = self.network.pass();
        let observations = batch.observations().chunks(pass * shape.len());
        for (index, (observations, to)) in observations.zip(to.chunks(pass)).enumerate() {
            let answers = self.network.initial(&mut self.workspace, observations, to, &mut self.pool);
            for row in 0..to.len() {
                let legal = Some(batch.legal(index * pass + row));
                let value = scalar(answers.value(row));
                if !predictions.push_logits(&answers.policy(row)[..actions], legal, value, 0.0) {
                    return Err(self.not_finite());
                }
            }
        }
        Ok(())
    }

    fn recurrent(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), Error> {
        let actions = self.network.architecture().actions;
        if !self.network.architecture().model.has_dynamics() {
            return Err(Error::Backend("the network has no dynamics".to_owned()));
        }
        check(steps, if self.codes() > 0 { self.codes() } else { actions });
        predictions.clear(actions);
        for steps in steps.chunks(self.network.pass()) {
            let answers = self.network.recurrent(&mut self.workspace, steps, &mut self.pool);
            for row in 0..steps.len() {
                let (value, reward) = (scalar(answers.value(row)), scalar(answers.reward(row)));
                if !predictions.push_logits(&answers.policy(row)[..actions], None, value, reward) {
                    return Err(self.not_finite());
                }
            }
        }
        Ok(())
    }

    fn codes(&self) -> usize {
        self.network.architecture().model.codes()
    }

    fn act(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), Error> {
        let codes = self.codes();
        if codes == 0 {
            return Err(Error::Backend("the network has no afterstates".to_owned()));
        }
        check(steps, self.network.architecture().actions);
        predictions.clear(codes);
        for steps in steps.chunks(self.network.pass()) {
            let answers = self.network.act(&mut self.workspace, steps, &mut self.pool);
            for row in 0..steps.len() {
                let value = scalar(answers.value(row));
                if !predictions.push_logits(&answers.policy(row)[..codes], None, value, 0.0) {
                    return Err(self.not_finite());
                }
            }
        }
        Ok(())
    }
}

/// Asserts that actions or codes are below `choices`.
fn check(steps: &[Unroll], choices: usize) {
    let out_of_range = steps.iter().find(|step| step.action.index() >= choices);
    assert!(out_of_range.is_none(), "an action is out of range: {out_of_range:?} of {choices}");
}
