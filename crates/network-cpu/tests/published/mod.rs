//! A published version, made by hand.

#![allow(clippy::expect_used, reason = "what cannot be made ends the test")]

use std::collections::BTreeMap;

use network::{Layers, Role};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use weights::Architecture;

/// Tensors by name: shape and values.
pub(crate) type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// A small network with every part.
pub(crate) fn architecture() -> Architecture {
    Architecture { squeeze_excitation: 4, global_pooling: 6, ..Architecture::plain("test", [2, 3, 3], 9, [16, 3]) }
}

/// Returns every tensor of a network with [`architecture`].
#[allow(dead_code, reason = "not every test binary uses it")]
pub(crate) fn tensors() -> Tensors {
    tensors_of(&architecture())
}

/// Returns every tensor of a network.
pub(crate) fn tensors_of(architecture: &Architecture) -> Tensors {
    let values = |tensor: &network::Tensor| {
        let spread = |i: usize| ((i + 97 * tensor.name.len()) as u32).wrapping_mul(2_654_435_761) >> 16;
        let values = (0..tensor.numel()).map(|i| spread(i) as f32 / 65_536.0 - 0.45);
        match tensor.role {
            Role::NormVariance => values.map(|value| value.abs() + 0.5).collect(),
            _ => values.collect(),
        }
    };
    let layers = Layers::new(architecture).expect("an architecture");
    layers.tensors().map(|tensor| (tensor.name.clone(), (tensor.shape.clone(), values(&tensor)))).collect()
}

/// Returns the bytes of a published version.
pub(crate) fn file(tensors: &Tensors) -> Vec<u8> {
    let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, (shape, values))| {
            (name.clone(), shape.clone(), values.iter().flat_map(|value| value.to_le_bytes()).collect())
        })
        .collect();
    let views = bytes.iter().map(|(name, shape, bytes)| {
        (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).expect("a tensor"))
    });
    safetensors::serialize(views, None).expect("a file")
}
