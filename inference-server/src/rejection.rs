//! The reasons for which a request has no answer, and how each is reported.

use std::time::Duration;

use proto::convert::retry_after;
use proto::inference::RejectReason;
use tonic::{Code, Status};

/// The reason for which a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// No weights have come yet.
    #[error("no weights have come yet")]
    NoModel,
    /// That version is not resident.
    #[error("weights version {version} is not here; those that answer are {resident:?}")]
    UnknownVersion {
        /// The version requested.
        version: u64,
        /// The versions held.
        resident: Vec<u64>,
    },
    /// The positions are not of the game that is served, or too many.
    #[error("{0}")]
    Shape(String),
    /// As many positions wait as may.
    #[error("as many positions wait as inference.waiting_positions_max allows; try again in {retry_after:?}")]
    Full {
        /// The delay before there may be room.
        retry_after: Duration,
    },
    /// It would be answered too late.
    #[error("the answer would take {expected:?}, which is later than it is wanted; try again in {retry_after:?}")]
    Late {
        /// The expected duration.
        expected: Duration,
        /// The delay before a retry might be in time.
        retry_after: Duration,
    },
    /// It was waiting when its time was up.
    #[error("its time was up before its turn came")]
    Expired,
    /// The evaluator failed.
    #[error("the evaluator failed: {0}")]
    Failed(String),
    /// The process ends.
    #[error("the inference server is draining; try another, or this one after its restart")]
    Draining,
}

/// The names of a rejection outside this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    /// The label of our metric.
    pub(crate) label: &'static str,
    /// The label of Triton's metric.
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

    /// Returns the delay before a retry, where a retry helps.
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
