//! Evaluations, moves and analyses by a server that has the weights: `zerofleet.inference.v1`.
//!
//! A process that plays holds [`Evaluations`], one stream for all its threads; a process that needs moves uses an
//! [`AnalysisClient`]. The server reads streams through [`order`] and is added to a server by [`service()`].

mod analysis;
mod connection;
mod evaluations;
pub mod order;
mod replicas;
mod stats;

use std::time::Duration;

use ::inference::Batch;
pub use analysis::{AnalysisClient, AnalysisError, MoveReport, Moves, SearchQuery, SearchReport};
use bytes::Bytes;
pub use evaluations::{Answered, AskError, Evaluations, EvaluationsSettings, Link};
use game::ObservationShape;
use service::trace::TraceContext;
pub use stats::{BatchesOfSize, InferenceStats};

use crate::limits::MESSAGE_BYTES_MAX;

/// Generated from `zerofleet/inference/v1/inference.proto`, which documents every item.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
pub mod v1 {
    tonic::include_proto!("zerofleet.inference.v1");
}

/// The client of a stream and its game.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// For the server's log.
    pub name: String,
    /// The name of the game, as in its spec.
    pub game: String,
    /// Of an observation.
    pub shape: ObservationShape,
    /// A.
    pub actions: usize,
}

/// The message of a server that is ready for requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// The newest weights version.
    pub version: u64,
    /// The maximum number of positions in a request.
    pub positions_max: usize,
    /// Asks that may be unanswered.
    pub asks_max: usize,
}

/// Positions to evaluate together, as they came in.
#[derive(Debug)]
pub struct Asked {
    /// The id of the request.
    pub id: u64,
    /// The weights version that must answer; `None`: the newest.
    pub version: Option<u64>,
    /// Within which time the answer is wanted.
    pub timeout: Option<Duration>,
    /// The positions; each has at least one legal action.
    pub batch: Batch,
    /// The same as they came in.
    pub rows: Rows,
    /// The trace that it is part of.
    pub trace: Option<TraceContext>,
}

/// A position as bytes, for caches: equal positions of one stream have equal bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rows {
    pub(crate) observations: Bytes,
    pub(crate) legal: Bytes,
    pub(crate) observation_bytes: usize,
    pub(crate) legal_bytes: usize,
}

impl Rows {
    /// Observation and legal actions of position `i`.
    #[must_use]
    pub fn row(&self, i: usize) -> (&[u8], &[u8]) {
        (
            &self.observations[i * self.observation_bytes..][..self.observation_bytes],
            &self.legal[i * self.legal_bytes..][..self.legal_bytes],
        )
    }
}

/// The reason for which a request is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// As many positions wait as may.
    Full,
    /// It would come too late.
    Late,
    /// The server has not got the weights version.
    Version,
    /// The evaluator failed.
    Failed,
}

/// A request that is not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the inference server refused: {reason}")]
pub struct Refusal {
    /// For programs.
    pub why: Why,
    /// For people.
    pub reason: String,
    /// The delay before a retry, where a retry helps.
    pub retry_after: Option<Duration>,
}

/// The service with our limits, to be added to a server.
pub fn service<T: v1::inference_server::Inference>(handler: T) -> v1::inference_server::InferenceServer<T> {
    v1::inference_server::InferenceServer::new(handler)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}
