use std::sync::Arc;

use game::{Action, ObservationShape};
use inference::categorical::inverse_transform;
use inference::{Attributes, Batch, Error, LatentModel, LatentPredictions, Slot, Unroll};
use weights::{Architecture, WeightsVersion};

use super::network::{LatentNetwork, Workspace};
use super::pool::Pool;
use super::residual::Input;

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

    /// Computes a pass, and appends the predictions, each with `logits` logits of the policy. `legal` returns the legal
    /// actions of a row, if they are known.
    fn predict<'a>(
        &mut self,
        input: Input<'_>,
        logits: usize,
        legal: impl Fn(usize) -> Option<&'a [Action]>,
        predictions: &mut LatentPredictions,
    ) -> Result<(), Error> {
        let answers = self.network.compute(&mut self.workspace, input, &mut self.pool);
        for row in 0..input.len() {
            let reward = if let Input::Steps(_) = input { scalar(answers.reward(row)) } else { 0.0 };
            let value = scalar(answers.value(row));
            if !predictions.push_logits(&answers.policy(row)[..logits], legal(row), value, reward) {
                return Err(Error::NotFinite { weights_version: self.attributes.weights_version });
            }
        }
        Ok(())
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
            let legal = |row: usize| Some(batch.legal(index * pass + row));
            self.predict(Input::Observations(observations, to), actions, legal, predictions)?;
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
        let pass = self.network.pass();
        steps.chunks(pass).try_for_each(|steps| self.predict(Input::Steps(steps), actions, |_| None, predictions))
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
        let pass = self.network.pass();
        steps.chunks(pass).try_for_each(|steps| self.predict(Input::Acts(steps), codes, |_| None, predictions))
    }
}

/// Asserts that actions or codes are below `choices`.
fn check(steps: &[Unroll], choices: usize) {
    let out_of_range = steps.iter().find(|step| step.action.index() >= choices);
    assert!(out_of_range.is_none(), "an action is out of range: {out_of_range:?} of {choices}");
}
