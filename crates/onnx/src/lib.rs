//! Writes a published network as models of ONNX, operator set 17, for programs without this project.
//!
//! Layers, shapes and tensors are the declarations of the crate `network`; no evaluator and no trainer is involved. A
//! model contains the weights, and takes batches of any size. Batch norms are folded into the convolutions before them.
//! [docs/networks.md](../../../docs/networks.md#export) lists inputs and outputs. Start with [`models`].

mod alphazero;
mod graph;
mod latent;
mod layers;
mod messages;
mod outputs;

use network::Reader;
use prost::Message as _;
use weights::{Architecture, Model};

/// Maximum bytes of a model: readers of Protocol Buffers reject longer messages.
const BYTES_MAX: usize = i32::MAX as usize;

/// Reasons why a network is not written.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The architecture is invalid, or the bytes do not match the architecture.
    #[error(transparent)]
    Network(#[from] network::Error),
    /// A model is longer than a message of Protocol Buffers may be.
    #[error("{file} would have {bytes} bytes, but models of ONNX have at most {limit}")]
    Size {
        /// File name of the model.
        file: &'static str,
        /// Bytes of the model.
        bytes: usize,
        /// Maximum bytes.
        limit: usize,
    },
}

/// Returns the models of a published network, each with the file name: `model.onnx` for AlphaZero, `initial.onnx` and
/// `recurrent.onnx` for MuZero, and in addition `afterstate.onnx` for Stochastic MuZero.
///
/// # Errors
/// [`Error::Network`] names the dimension or tensor that is invalid, and a tensor that no model would contain.
/// [`Error::Size`] for a network of more than 2 GiB.
pub fn models(architecture: &Architecture, bytes: &[u8]) -> Result<Vec<(&'static str, Vec<u8>)>, Error> {
    let mut reader = Reader::new(bytes)?;
    let models = match architecture.model {
        Model::Alphazero => vec![("model.onnx", alphazero::model(architecture, &mut reader)?)],
        Model::AlphazeroReturns { .. } | Model::Muzero { .. } | Model::StochasticMuzero { .. } => {
            latent::models(architecture, &mut reader)?
        }
    };
    // Every tensor is part of a model, so that no part of a network is left out.
    reader.finish()?;
    models.into_iter().map(|(file, model)| Ok((file, encoded(file, &model, BYTES_MAX)?))).collect()
}

fn encoded(file: &'static str, model: &messages::Model, limit: usize) -> Result<Vec<u8>, Error> {
    match model.encoded_len() {
        bytes if bytes > limit => Err(Error::Size { file, bytes, limit }),
        _ => Ok(model.encode_to_vec()),
    }
}

#[cfg(test)]
mod tests;
