//! A published version of random weights, as written by a learner before the first training step.

use std::path::{Path, PathBuf};

use game::Spec;
use network::{Entry, Layers, Role};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use weights::{Architecture, Manifest, WeightsVersion};

const CHANNELS: usize = 16;
const BLOCKS: usize = 1;

/// A published version: the manifest and the bytes of the weights file.
pub(crate) struct Published {
    pub(crate) manifest: Manifest,
    pub(crate) bytes: Vec<u8>,
}

impl Published {
    /// Creates random weights for a game.
    pub(crate) fn random(spec: &Spec, version: u64, seed: u64) -> Self {
        let architecture = Architecture::plain(
            spec.name.clone(),
            [spec.observation.planes, spec.observation.height, spec.observation.width],
            spec.actions,
            [CHANNELS, BLOCKS],
        );
        let bytes = bytes(&architecture, seed);
        Self { manifest: Manifest::of(&bytes, WeightsVersion(version), 0, architecture), bytes }
    }

    /// Writes both files, and returns the path of the manifest.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        let stem = format!("v{:06}", self.manifest.version.0);
        std::fs::write(folder.join(format!("{stem}.safetensors")), &self.bytes).unwrap();
        let manifest = folder.join(format!("{stem}.json"));
        std::fs::write(&manifest, serde_json::to_string_pretty(&self.manifest).unwrap()).unwrap();
        manifest
    }
}

/// Returns a safetensors file with random values for every tensor of the architecture.
fn bytes(architecture: &Architecture, seed: u64) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let layers = Layers::new(architecture).unwrap();
    let entries = layers.tensors().map(|tensor| {
        let (middle, spread) = match tensor.role {
            // Uniform within ±√(3 / fan-in), so that activations stay of the order of one.
            Role::Convolution | Role::Linear => (0.0, (3.0 * tensor.shape[0] as f32 / tensor.numel() as f32).sqrt()),
            Role::NormScale | Role::NormVariance => (1.0, 0.1),
            Role::Bias | Role::Offsets | Role::NormShift | Role::NormMean => (0.0, 0.1),
        };
        let values: Vec<f32> = (0..tensor.numel()).map(|_| middle + spread * rng.random_range(-1.0..1.0_f32)).collect();
        Entry::tensor("", &tensor, &values)
    });
    network::write(entries).unwrap()
}
