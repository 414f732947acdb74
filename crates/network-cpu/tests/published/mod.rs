//! A published version, made by hand.

#![allow(clippy::expect_used, reason = "what cannot be made ends the test")]

use std::collections::BTreeMap;

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use weights::Architecture;

/// Tensors by name: shape and values.
pub(crate) type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// A small network with every part.
pub(crate) fn architecture() -> Architecture {
    Architecture {
        game: "test".to_owned(),
        planes: 2,
        height: 3,
        width: 3,
        actions: 9,
        channels: 16,
        blocks: 3,
        squeeze_excitation: 4,
        global_pooling: 6,
    }
}

/// Every tensor that a network of [`architecture`] has, by the names and shapes that the network crate documents.
pub(crate) fn tensors() -> Tensors {
    let mut tensors = Tensors::new();
    let mut add = |name: String, shape: &[usize]| {
        let spread = |i: usize| ((i + 97 * name.len()) as u32).wrapping_mul(2_654_435_761) >> 16;
        let values = (0..shape.iter().product()).map(|i| spread(i) as f32 / 65_536.0 - 0.45).collect();
        tensors.insert(name, (shape.to_vec(), values));
    };
    let mut convolution = |name: &str, outputs: usize, inputs: usize, side: usize| {
        add(format!("{name}.convolution.weight"), &[outputs, inputs, side, side]);
        for part in ["weight", "bias", "mean", "variance"] {
            add(format!("{name}.norm.{part}"), &[outputs]);
        }
    };
    convolution("stem", 16, 2, 3);
    for block in 0..3 {
        convolution(&format!("block.{block}.first"), 16, 16, 3);
        convolution(&format!("block.{block}.second"), 16, 16, 3);
    }
    convolution("policy", 32, 16, 1);
    convolution("value", 32, 16, 1);
    let mut layer = |name: &str, outputs: usize, inputs: usize| {
        add(format!("{name}.weight"), &[outputs, inputs]);
        add(format!("{name}.bias"), &[outputs]);
    };
    layer("block.2.pooling", 10, 12);
    for block in 0..3 {
        layer(&format!("block.{block}.excitation.hidden"), 4, 16);
        layer(&format!("block.{block}.excitation.output"), 32, 4);
    }
    layer("policy.output", 9, 9 * 32);
    layer("value.hidden", 64, 9 * 32);
    layer("value.output", 3, 64);
    for (name, (_, values)) in &mut tensors {
        if name.ends_with("variance") {
            values.iter_mut().for_each(|value| *value = value.abs() + 0.5);
        }
    }
    tensors
}

/// The bytes of a published version.
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
