//! Adds the delay before a retry to the status of a rejected call.

use std::time::Duration;

use tonic::Status;
use tonic::metadata::MetadataValue;
use tonic_types::{ErrorDetails, StatusExt as _};

/// gRPC's trailer for the delay before a retry, in milliseconds.
pub const RETRY_AFTER: &str = "grpc-retry-pushback-ms";

/// Adds the delay before a retry to a rejection, in the trailer and in the details (`google.rpc.RetryInfo`).
#[must_use]
pub fn retry_after(status: Status, after: Duration) -> Status {
    let milliseconds = u64::try_from(after.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    let details = ErrorDetails::with_retry_info(Some(after));
    let mut status = Status::with_error_details(status.code(), status.message(), details);
    // A client may ignore the trailer and use other delays.
    status.metadata_mut().insert(RETRY_AFTER, MetadataValue::from(milliseconds));
    status
}
