//! A set of weights without its tensors: version, manifest, digest, chunks.
//!
//! A version is immutable: the same number always names the same bytes, and the digest proves it. The bytes are a
//! safetensors file that this crate never looks into. Start with [`Manifest`].

mod assembly;
mod manifest;

pub use assembly::{Assembly, AssemblyError};
pub use manifest::{Architecture, Digest, Manifest, WeightsVersion};
