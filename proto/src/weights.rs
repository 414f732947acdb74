//! Publication of weights: manifests are pushed, weights are fetched in chunks and verified by their digest:
//! `zerofleet.weights.v1`.
//!
//! The learner adds a [`WeightsService`] to its server and publishes through its [`Publisher`]; each process that plays
//! holds a [`Subscriber`].

mod serve;
mod service;
mod subscriber;

use ::weights::{Digest, Manifest, WeightsVersion};
use bytes::Bytes;
pub use serve::{serve, serve_with};
pub use service::{PublishError, Publisher, WeightsService};
pub use subscriber::{Subscriber, SubscriberSettings, SubscriberStats};

/// Generated from `zerofleet/weights/v1/weights.proto`, which documents every item.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
pub mod v1 {
    tonic::include_proto!("zerofleet.weights.v1");
}

/// A complete version: the bytes match the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Its metadata.
    pub manifest: Manifest,
    /// Its bytes, a safetensors file.
    pub bytes: Bytes,
}

/// The range of bytes requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchQuery {
    /// The version.
    pub version: WeightsVersion,
    /// The digest from the manifest.
    pub digest: Digest,
    /// The first requested byte.
    pub offset: u64,
}
