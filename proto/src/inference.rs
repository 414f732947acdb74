//! Requests evaluations, moves and analyses from a server that holds the weights: `zerofleet.inference.v1`.
//!
//! A process that plays holds [`Evaluations`], one stream for all threads; a process that needs moves uses an
//! [`AnalysisClient`]. The server reads streams through [`order`]; [`service()`] adds the service to a server.

mod analysis;
mod connection;
mod convert;
mod evaluations;
pub mod order;
mod replicas;

use std::time::Duration;

pub use analysis::{AnalysisClient, AnalysisError, Moves, SearchQuery};
use bytes::Bytes;
pub use convert::{analyse_from_wire, predictions_to_wire, rejection_to_wire};
pub use evaluations::{EvalError, Evaluated, Evaluations, EvaluationsSettings, Link};
use game::ObservationShape;
use service::trace::TraceContext;
use tonic::codec::CompressionEncoding::{Deflate, Gzip};
use transport::Channel;
use transport::limits::MESSAGE_BYTES_MAX;
pub use v1::rejection::Reason as RejectReason;

/// Generated from `zerofleet/inference/v1/inference.proto`, which documents every item.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
pub mod v1 {
    tonic::include_proto!("zerofleet.inference.v1");
}

/// The first message of a stream: the client and the game that the client plays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Client name, for the server's log.
    pub name: String,
    /// Name of the game, as in the spec.
    pub game: String,
    /// Shape of an observation.
    pub shape: ObservationShape,
    /// A, the number of actions.
    pub actions: usize,
}

/// The message that a server sends once it is ready for requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// The latest weights version.
    pub version: u64,
    /// Maximum number of positions in a request.
    pub positions_max: usize,
    /// Maximum number of unanswered requests.
    pub requests_max: usize,
}

/// Positions to evaluate together, as received.
#[derive(Debug)]
pub struct EvalRequest {
    /// Id of the request, unique in the stream while unanswered.
    pub id: u64,
    /// The weights version to evaluate with; `None` for the latest.
    pub version: Option<u64>,
    /// Time limit for the response.
    pub timeout: Option<Duration>,
    /// The positions; each has at least one legal action.
    pub positions: PackedPositions,
    /// The trace context of the request.
    pub trace: Option<TraceContext>,
}

/// Positions in the encoding of the wire, which are checked on arrival and unpacked only for evaluation.
#[derive(Debug, Clone)]
pub struct PackedPositions {
    pub(crate) shape: ObservationShape,
    pub(crate) count: usize,
    pub(crate) observations: v1::eval_request::Observations,
    pub(crate) legal: Bytes,
}

/// The reason why a server rejected a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the inference server rejected the request: {message}")]
pub struct Rejection {
    /// Machine-readable reason; never `Unspecified` in a rejection from a server.
    pub reason: RejectReason,
    /// Human-readable reason, for logs and errors.
    pub message: String,
    /// Delay before a retry, if a retry may succeed.
    pub retry_after: Option<Duration>,
}

/// Returns the generated client with the message limit of this crate.
fn client(channel: Channel) -> v1::inference_client::InferenceClient<Channel> {
    v1::inference_client::InferenceClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// Returns the service with the message limit of this crate, to add to a server. It accepts compressed messages.
pub fn service<T: v1::inference_server::Inference>(handler: T) -> v1::inference_server::InferenceServer<T> {
    v1::inference_server::InferenceServer::new(handler)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
        .accept_compressed(Gzip)
        .accept_compressed(Deflate)
}
