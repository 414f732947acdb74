//! Publication of weights: manifests are pushed, weights are fetched in chunks and verified by their digest:
//! `zerofleet.weights.v1`.
//!
//! The learner adds a [`WeightsService`] to its server and publishes through its [`Publisher`]; each process that plays
//! holds a [`Subscriber`].

mod serve;
mod service;
mod subscriber;

use ::weights::{Architecture, Digest, Manifest, WeightsVersion};
use bytes::Bytes;
use game::Spec;
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

/// The reason why weights do not match a game.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OtherGame {
    /// The weights were trained for another game.
    #[error("the weights are for {weights}, not for {game}")]
    Name {
        /// The game of the weights.
        weights: String,
        /// The game played here.
        game: String,
    },
    /// The network takes other observations or actions.
    #[error("the network takes [planes, height, width, actions] {takes:?}, the game has {has:?}")]
    Shape {
        /// The shape of the network.
        takes: [usize; 4],
        /// The shape of the game.
        has: [usize; 4],
    },
}

impl Published {
    /// Checks that the network can play a game.
    ///
    /// # Errors
    /// [`OtherGame`].
    pub fn check_game(&self, spec: &Spec) -> Result<(), OtherGame> {
        let Architecture { game, planes, height, width, actions, .. } = &self.manifest.architecture;
        if *game != spec.name {
            return Err(OtherGame::Name { weights: game.clone(), game: spec.name.clone() });
        }
        let (takes, shape) = ([*planes, *height, *width, *actions], spec.observation);
        let has = [shape.planes, shape.height, shape.width, spec.actions];
        if takes == has { Ok(()) } else { Err(OtherGame::Shape { takes, has }) }
    }
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
