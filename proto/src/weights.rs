//! Weights out: pushed as manifests, fetched in chunks, proved by their digest: `zerofleet.weights.v1`.
//!
//! The learner adds a [`WeightsService`] to its server and publishes through its [`Publisher`]; whoever plays holds
//! a [`Subscriber`].

mod fetch;
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

/// A version, whole: the bytes are those the manifest names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Everything about it but its bytes.
    pub manifest: Manifest,
    /// Its bytes, a safetensors file.
    pub bytes: Bytes,
}

/// Which bytes are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchQuery {
    /// Of which version.
    pub version: WeightsVersion,
    /// What the manifest promised.
    pub digest: Digest,
    /// The first byte wanted.
    pub offset: u64,
}
