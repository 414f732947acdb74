//! Metadata of weights versions, and the assembly of a version from chunks.
//!
//! A version is immutable: a [`WeightsVersion`] always identifies the same bytes, which the [`Digest`] in the
//! [`Manifest`] verifies; the manifest also holds the [`Architecture`]. [`Assembly`] joins the chunks of a transfer,
//! which may be resumed, and returns an [`AssemblyError`] if they do not match the manifest. The bytes are a
//! safetensors file, which this crate does not read. A network with tensors independent of the [`Board`] can be used
//! on several boards of a game. Start with [`Manifest`].

mod assembly;
mod board;
mod manifest;

pub use assembly::{Assembly, AssemblyError};
pub use board::{Board, OneBoard, OtherGame};
pub use manifest::{
    Activation, Architecture, BlockKind, Design, Digest, HeadKind, Manifest, Model, NormKind, WeightsVersion,
};
