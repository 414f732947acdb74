//! Lists the reasons why a request gets no result, and how each reason is reported.

use std::time::Duration;

use proto::inference::RejectReason;
use tonic::{Code, Status};
use transport::retry_after;

/// The reason why a request gets no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// No weights have arrived yet.
    #[error("the server has no weights yet")]
    NoModel,
    /// The requested version is not loaded.
    #[error("weights version {version} is not loaded; loaded versions: {resident:?}")]
    UnknownVersion {
        /// Requested version.
        version: u64,
        /// The loaded versions.
        resident: Vec<u64>,
    },
    /// The positions do not fit the served game, or are too many.
    #[error("{0}")]
    Shape(String),
    /// The queue is full.
    #[error("the queue is full (inference.waiting_positions_max); retry in {retry_after:?}")]
    Full {
        /// Delay until the queue may have capacity.
        retry_after: Duration,
    },
    /// The response would be too late.
    #[error("the response would take {expected:?}, longer than the deadline allows; retry in {retry_after:?}")]
    Late {
        /// Expected time until the response.
        expected: Duration,
        /// Delay until a retry may be in time.
        retry_after: Duration,
    },
    /// The deadline passed while the request was waiting.
    #[error("the deadline passed while the request waited in the queue")]
    Expired,
    /// The evaluator failed.
    #[error("the evaluator failed: {0}")]
    Failed(String),
    /// The process is shutting down.
    #[error("the inference server is draining; use another server, or retry after the restart")]
    Draining,
}

/// The names of a rejection in metrics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    /// Label in this project's metric.
    pub(crate) label: &'static str,
    /// Label in Triton's metric.
    pub(crate) triton: &'static str,
    code: Code,
    fast_path: RejectReason,
}

impl Rejection {
    pub(crate) fn names(&self) -> Names {
        let (label, triton, code, fast_path) = match self {
            Self::NoModel => ("no_model", "REJECTED", Code::Unavailable, RejectReason::Version),
            Self::UnknownVersion { .. } => ("version", "REJECTED", Code::NotFound, RejectReason::Version),
            Self::Shape(_) => ("shape", "REJECTED", Code::InvalidArgument, RejectReason::Failed),
            Self::Full { .. } => ("full", "REJECTED", Code::ResourceExhausted, RejectReason::Full),
            Self::Late { .. } => ("late", "REJECTED", Code::ResourceExhausted, RejectReason::Late),
            Self::Expired => ("expired", "CANCELED", Code::DeadlineExceeded, RejectReason::Late),
            Self::Failed(_) => ("failed", "BACKEND", Code::Internal, RejectReason::Failed),
            Self::Draining => ("draining", "CANCELED", Code::Unavailable, RejectReason::Failed),
        };
        Names { label, triton, code, fast_path }
    }

    /// Returns the delay before a retry, if a retry may succeed.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Full { retry_after } | Self::Late { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}

impl From<Rejection> for Status {
    fn from(rejection: Rejection) -> Self {
        let status = Self::new(rejection.names().code, rejection.to_string());
        match rejection.retry_after() {
            Some(after) => retry_after(status, after),
            None => status,
        }
    }
}

impl From<Rejection> for proto::inference::Rejection {
    fn from(rejection: Rejection) -> Self {
        let (reason, retry_after) = (rejection.names().fast_path, rejection.retry_after());
        Self { reason, message: rejection.to_string(), retry_after }
    }
}
