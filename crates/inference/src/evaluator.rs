use std::sync::Arc;

use crate::{Batch, Predictions};

/// Evaluates batches of observations: priors over the legal actions, and values. Values are probabilities of win,
/// draw and loss, or returns in games scored by rewards.
pub trait Evaluator: Send {
    /// Returns the attributes: evaluating weights, and maximum batch.
    fn attributes(&self) -> Attributes;

    /// Evaluates every position of `batch` and replaces the contents of `predictions`, in the same order.
    ///
    /// Priors are non-negative and sum to one over the legal actions of each position; values are for the player to
    /// move. Every number is finite: an evaluator itself fails on NaN.
    ///
    /// # Errors
    /// See [`Error`]; `predictions` is then unspecified and must not be used.
    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error>;
}

/// The attributes of an evaluator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Human-readable name: `libtorch cpu bf16`. It is shared, since callers read it once per batch.
    pub name: Arc<str>,
    /// Version of the evaluating weights; 0 for evaluators without weights.
    pub weights_version: u64,
    /// Batch size beyond which larger batches gain little.
    pub preferred_batch: usize,
    /// Maximum batch size.
    pub max_batch: usize,
}

/// The error of a batch that was not evaluated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The batch does not fit the network: another game, or another observation shape.
    #[error("the batch has {got}, the network accepts {expected}")]
    Shape {
        /// Shape that the network expects.
        expected: String,
        /// Shape of the batch.
        got: String,
    },
    /// The network computed NaN or an infinity.
    #[error("network output is not finite (weights version {weights_version})")]
    NotFinite {
        /// Weights version of the network.
        weights_version: u64,
    },
    /// The device or the remote end failed.
    #[error("the evaluator failed: {0}")]
    Backend(String),
    /// A device has failed, and the evaluators on it are not usable again.
    #[error("the device {device} failed: {reason}")]
    Lost {
        /// Name of the device.
        device: String,
        /// The cause.
        reason: String,
    },
}
