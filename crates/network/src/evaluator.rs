use game::ObservationShape;
use inference::{Attributes, Batch, Evaluator, Predictions};
use tch::Device;
use weights::{Architecture, WeightsVersion};

use crate::{Error, Network, Precision, device::device_name, folded::Folded, network, tensors, threads};

/// Positions run through the network at once; a larger batch is cut. Beyond it nothing is gained on a CPU, where the
/// tower's activations should stay in the cache, and little elsewhere.
const CHUNK: usize = 256;
/// The same on an accelerator.
const CHUNK_ACCELERATED: usize = 4096;
/// More positions than this in one batch are a bug of the caller's configuration.
const MAX_BATCH: usize = 16_384;

/// A set of weights that answers through libtorch: batch norms folded, channels last, no gradients.
///
/// Belongs to one thread at a time; a second thread builds its own from the same bytes.
#[derive(Debug)]
pub struct LibtorchEvaluator {
    folded: Folded,
    architecture: Architecture,
    attributes: Attributes,
    chunk: usize,
    /// Reused for the observations in the order the convolutions want, `[B, H, W, C]`.
    staged: Vec<f32>,
    /// Reused for the answers, `[B, A + 3]`.
    logits: Vec<f32>,
}

impl LibtorchEvaluator {
    /// Builds the network of `architecture` from the bytes of a published version.
    ///
    /// # Errors
    /// Bytes that are not exactly such a network's are refused by name.
    pub fn new(
        architecture: &Architecture,
        version: WeightsVersion,
        bytes: &[u8],
        device: Device,
        precision: Precision,
    ) -> Result<Self, Error> {
        threads::apply();
        Self::from_network(&Network::from_safetensors(architecture, bytes, device)?, version, precision)
    }

    /// Copies `network` as it is now.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device refuses.
    pub fn from_network(network: &Network, version: WeightsVersion, precision: Precision) -> Result<Self, Error> {
        let device = device_name(network.device());
        let chunk = if network.device() == Device::Cpu { CHUNK } else { CHUNK_ACCELERATED };
        Ok(Self {
            folded: Folded::new(network, precision)?,
            architecture: network.architecture().clone(),
            attributes: Attributes {
                name: format!("libtorch {device} {precision}").into(),
                weights_version: version.0,
                preferred_batch: chunk,
                max_batch: MAX_BATCH,
            },
            chunk,
            staged: Vec::new(),
            logits: Vec::new(),
        })
    }

    fn check(&self, batch: &Batch) -> Result<(), inference::Error> {
        let &Architecture { planes, height, width, actions, .. } = &self.architecture;
        batch.check(ObservationShape { planes, height, width }, actions, MAX_BATCH)
    }

    /// Logits `[B, A + 3]` of positions `from..to` into `self.logits`.
    fn ask(&mut self, batch: &Batch, from: usize, to: usize) -> Result<(), Error> {
        let _guard = tch::no_grad_guard();
        let Architecture { planes, height, width, actions, .. } = self.architecture;
        let len = planes * height * width;
        let padded = padded(to - from);
        tensors::channels_last(&batch.observations()[from * len..to * len], planes, height * width, &mut self.staged);
        self.staged.resize(padded * len, 0.0);
        let logits = self.folded.forward(&self.staged, padded)?;
        self.logits.resize(padded * (actions + 3), 0.0);
        network::read(&logits, &mut self.logits)
    }
}

impl Evaluator for LibtorchEvaluator {
    fn attributes(&self) -> Attributes {
        self.attributes.clone()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), inference::Error> {
        predictions.clear();
        self.check(batch)?;
        threads::apply();
        let actions = self.architecture.actions;
        for from in (0..batch.len()).step_by(self.chunk) {
            let to = batch.len().min(from + self.chunk);
            self.ask(batch, from, to).map_err(|error| inference::Error::Backend(error.to_string()))?;
            for (i, row) in (from..to).zip(self.logits.chunks_exact(actions + 3)) {
                let (policy, wdl) = row.split_at(actions);
                if !predictions.push_logits(policy, batch.legal(i), [wdl[0], wdl[1], wdl[2]]) {
                    let weights_version = self.attributes.weights_version;
                    return Err(inference::Error::NotFinite { weights_version });
                }
            }
        }
        Ok(())
    }
}

/// The batch size to run for `positions`: every size costs the kernels a set-up that they keep, for a limited number of
/// sizes; eight sizes per octave bound that number and waste at most an eighth.
fn padded(positions: usize) -> usize {
    let granularity = (positions.next_power_of_two() / 16).max(1);
    positions.next_multiple_of(granularity)
}

#[cfg(test)]
mod tests;
