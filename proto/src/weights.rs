//! Publishes weights over `zerofleet.weights.v1`: manifests are pushed, and weights are fetched in chunks and verified
//! by digest.
//!
//! The learner adds a [`WeightsService`] to the server and publishes through the [`Publisher`]; each process that
//! plays holds a [`Subscriber`].

pub(crate) mod convert;
mod serve;
mod service;
mod subscriber;

use ::weights::{Digest, Manifest, WeightsVersion};
use bytes::Bytes;
pub use serve::serve;
pub use service::{PublishError, Publisher, WeightsService};
pub use subscriber::{Subscriber, SubscriberSettings, SubscriberStats};

/// Generated from `zerofleet/weights/v1/weights.proto`, which documents every item.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
pub mod v1 {
    tonic::include_proto!("zerofleet.weights.v1");
}

/// A complete weights version, whose bytes match the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Metadata: version, size, digest and architecture.
    pub manifest: Manifest,
    /// The weights, as a safetensors file.
    pub bytes: Bytes,
}

/// The requested byte range: from `offset` to the end of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchQuery {
    /// The requested version.
    pub version: WeightsVersion,
    /// The digest in the manifest.
    pub digest: Digest,
    /// First requested byte.
    pub offset: u64,
}
