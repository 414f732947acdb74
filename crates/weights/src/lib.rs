//! Describes one version of a network's weights without its tensors: number, manifest, digest, chunks.
//!
//! A version is immutable: the same [`WeightsVersion`] always names the same bytes, and the [`Digest`] in its
//! [`Manifest`] proves it; the manifest also holds the [`Architecture`]. [`Assembly`] joins the chunks of a transfer,
//! which may resume, and returns an [`AssemblyError`] where they do not add up. The bytes are a safetensors file, which
//! this crate does not read. Start with [`Manifest`].

mod assembly;
mod manifest;

pub use assembly::{Assembly, AssemblyError};
pub use manifest::{Architecture, Digest, Manifest, WeightsVersion};
