use std::sync::Arc;

use crate::{Batch, Predictions};

/// Evaluates batches of observations: priors over the legal actions, and values. These are probabilities of a win, a
/// draw and a loss, or in a game that is scored by its rewards returns.
pub trait Evaluator: Send {
    /// Returns its attributes: the weights that answer, and the maximum batch.
    fn attributes(&self) -> Attributes;

    /// Evaluates every position of `batch` and replaces the contents of `predictions`, in the same order.
    ///
    /// Priors are non-negative and sum to one over the legal actions of each position; values are those of the player
    /// to move. Every number is finite: an evaluator itself fails on NaN.
    ///
    /// # Errors
    /// See [`Error`]; `predictions` is then unspecified and must not be used.
    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error>;
}

/// The attributes of an evaluator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// The human-readable name: `libtorch cpu bf16`. It is shared, since callers read it once for each batch.
    pub name: Arc<str>,
    /// The version of the weights behind the answers, 0 for evaluators without weights.
    pub weights_version: u64,
    /// The batch size beyond which larger batches gain little.
    pub preferred_batch: usize,
    /// The largest accepted batch.
    pub max_batch: usize,
}

/// The error of a batch that was not evaluated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The batch does not fit the network: another game, or another observation shape.
    #[error("the batch has {got}, the network takes {expected}")]
    Shape {
        /// The shape that the network expects.
        expected: String,
        /// The shape of the batch.
        got: String,
    },
    /// The network answered NaN or an infinity.
    #[error("the network answered a number that is not finite (weights version {weights_version})")]
    NotFinite {
        /// The version of the network.
        weights_version: u64,
    },
    /// The device or the remote end failed.
    #[error("the evaluator failed: {0}")]
    Backend(String),
    /// A device has failed, and the evaluators on it are not usable again.
    #[error("the device {device} failed: {reason}")]
    Lost {
        /// The name of the device.
        device: String,
        /// The cause.
        reason: String,
    },
}
