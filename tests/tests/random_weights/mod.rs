//! A published version of random weights: what a learner writes before its first training step, without a learner.

#![allow(clippy::unwrap_used, reason = "what cannot be made fails the test")]

use std::path::{Path, PathBuf};

use game::Spec;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use weights::{Architecture, Digest, Manifest, WeightsVersion};

const CHANNELS: usize = 16;
const BLOCKS: usize = 1;
/// Of both heads: what every network has.
const HEAD_CHANNELS: usize = 32;
const VALUE_HIDDEN: usize = 64;

/// A published version: its manifest, and its bytes.
pub(crate) struct Published {
    pub(crate) manifest: Manifest,
    pub(crate) bytes: Vec<u8>,
}

impl Published {
    /// Random weights for a game.
    pub(crate) fn random(spec: &Spec, version: u64, seed: u64) -> Self {
        let architecture = Architecture {
            game: spec.name.clone(),
            planes: spec.observation.planes,
            height: spec.observation.height,
            width: spec.observation.width,
            actions: spec.actions,
            channels: CHANNELS,
            blocks: BLOCKS,
            squeeze_excitation: 0,
            global_pooling: 0,
        };
        let bytes = bytes(&architecture, seed);
        let (digest, size_bytes) = (Digest::of(&bytes), bytes.len() as u64);
        let manifest =
            Manifest { version: WeightsVersion(version), training_step: 0, digest, size_bytes, architecture };
        Self { manifest, bytes }
    }

    /// Writes both files, and says where the manifest is.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        let stem = format!("v{:06}", self.manifest.version.0);
        std::fs::write(folder.join(format!("{stem}.safetensors")), &self.bytes).unwrap();
        let manifest = folder.join(format!("{stem}.json"));
        std::fs::write(&manifest, serde_json::to_string_pretty(&self.manifest).unwrap()).unwrap();
        manifest
    }
}

/// Every tensor of the architecture, by the names and shapes that the network crate documents.
fn bytes(architecture: &Architecture, seed: u64) -> Vec<u8> {
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    let mut add = |name: String, shape: &[usize], middle: f32, spread: f32| {
        let numbers = (0..shape.iter().product()).map(|_| middle + spread * rng.random_range(-1.0..1.0_f32));
        let numbers = numbers.flat_map(f32::to_le_bytes).collect();
        tensors.push((name, shape.to_vec(), numbers));
    };
    // Uniform within √(3 / fan-in): activations stay of the order of one.
    let reach = |fan_in: usize| (3.0 / fan_in as f32).sqrt();
    let mut convolution = |name: &str, outputs: usize, inputs: usize, side: usize| {
        let shape = [outputs, inputs, side, side];
        add(format!("{name}.convolution.weight"), &shape, 0.0, reach(inputs * side * side));
        for (part, middle) in [("weight", 1.0), ("bias", 0.0), ("mean", 0.0), ("variance", 1.0)] {
            add(format!("{name}.norm.{part}"), &[outputs], middle, 0.1);
        }
    };
    convolution("stem", CHANNELS, planes, 3);
    for block in 0..BLOCKS {
        convolution(&format!("block.{block}.first"), CHANNELS, CHANNELS, 3);
        convolution(&format!("block.{block}.second"), CHANNELS, CHANNELS, 3);
    }
    convolution("policy", HEAD_CHANNELS, CHANNELS, 1);
    convolution("value", HEAD_CHANNELS, CHANNELS, 1);
    let mut dense = |name: &str, outputs: usize, inputs: usize| {
        add(format!("{name}.weight"), &[outputs, inputs], 0.0, reach(inputs));
        add(format!("{name}.bias"), &[outputs], 0.0, 0.1);
    };
    let features = height * width * HEAD_CHANNELS;
    dense("policy.output", actions, features);
    dense("value.hidden", VALUE_HIDDEN, features);
    dense("value.output", 3, VALUE_HIDDEN);
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    safetensors::serialize(views, None).unwrap()
}
