//! The inputs of all backends of a case: network, first weights, batch and training settings.

use std::path::{Path, PathBuf};

use network_torch::{Device, Network};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use training::{Decay, Examples, TrainerSettings, TrainingBatch};
use weights::Architecture;

use super::case::Case;
use crate::output;

/// Share of observation values that are 1.
const OCCUPIED: f64 = 0.3;
/// Share of legal actions, not counting the first, which is always legal.
const LEGAL: f64 = 0.7;
/// Share of positions with a policy target, as with playout cap randomisation.
const WITH_POLICY: f64 = 0.75;

/// Inputs of all backends of a case.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) case: Case,
    pub(super) architecture: Architecture,
    /// Training settings with a constant learning rate, so that the first steps change the weights.
    pub(super) settings: TrainerSettings,
    /// Seed of the first weights.
    pub(super) seed: u64,
    pub(super) examples: Examples,
    /// Safetensors file with the first weights.
    pub(super) weights: PathBuf,
    /// File with the batch: observations, policies, legal actions, results and policy weights, all as float32.
    pub(super) batch: PathBuf,
}

impl Inputs {
    /// Makes weights and a batch, and writes both to files in `folder`.
    ///
    /// # Errors
    /// A network cannot be built, or files cannot be written.
    pub(super) fn new(case: Case, seed: u64, folder: &Path) -> anyhow::Result<Self> {
        let architecture = case.network.architecture();
        let settings = TrainerSettings {
            precision: case.precision,
            warm_up_steps: 0,
            decay: Decay::Constant,
            ..TrainerSettings::default()
        };
        let network = Network::to_train(&architecture, &settings, Device::Cpu, seed)?;
        let batch = random_batch(&architecture, case.batch, seed);
        let write = |name: &str, bytes: Vec<u8>| {
            let path = folder.join(name);
            output::write(&path, bytes).map(|()| path)
        };
        Ok(Self {
            weights: write("weights.safetensors", network.to_safetensors()?)?,
            batch: write("batch", bytes(&batch))?,
            examples: Examples::Positions(batch),
            case,
            architecture,
            settings,
            seed,
        })
    }
}

/// Returns random binary positions with random targets, which depend on the seed alone.
pub(super) fn random_batch(architecture: &Architecture, positions: usize, seed: u64) -> TrainingBatch {
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let cells = positions * planes * height * width;
    let mut batch = TrainingBatch {
        observations: (0..cells).map(|_| f32::from(u8::from(rng.random_bool(OCCUPIED)))).collect(),
        ..TrainingBatch::default()
    };
    for _ in 0..positions {
        let legal: Vec<u8> = (0..actions).map(|action| u8::from(action == 0 || rng.random_bool(LEGAL))).collect();
        let visits: Vec<f32> =
            legal.iter().map(|&legal| f32::from(legal) * f32::from(rng.random_range(1..60_u8))).collect();
        let sum: f32 = visits.iter().sum();
        batch.policies.extend(visits.iter().map(|visits| visits / sum));
        batch.legal.extend(legal);
        let result = rng.random_range(0..3);
        batch.wdl.extend((0..3).map(|index| f32::from(u8::from(index == result))));
        batch.policy_weights.push(f32::from(u8::from(rng.random_bool(WITH_POLICY))));
    }
    batch
}

/// Returns the fields of a batch as float32, one after the other.
fn bytes(batch: &TrainingBatch) -> Vec<u8> {
    let TrainingBatch { board, observations, policies, legal, wdl, policy_weights, importance, .. } = batch;
    assert!(*board == 0 && importance.is_empty(), "PyTorch is given one board and no importance");
    let (observations, legal) = (observations.to_floats(), legal.iter().copied().map(f32::from));
    let fields = observations.into_iter().chain(policies.iter().copied()).chain(legal);
    fields.chain(wdl.iter().copied()).chain(policy_weights.iter().copied()).flat_map(f32::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::NetworkSize;

    #[test]
    fn a_batch_is_valid_and_its_file_holds_every_number_of_its_fields() {
        let architecture = NetworkSize { blocks: 1, channels: 8, height: 3, width: 4 }.architecture();
        let batch = random_batch(&architecture, 50, 1);
        assert_eq!(batch.positions(&architecture).unwrap(), 50);
        for (policy, legal) in batch.policies.chunks(4).zip(batch.legal.chunks(4)) {
            assert!((policy.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{policy:?}");
            assert!(policy.iter().zip(legal).all(|(&share, &legal)| (share > 0.0) == (legal == 1)), "{policy:?}");
        }
        assert!(batch.legal.contains(&0) && batch.policy_weights.contains(&0.0));
        assert_eq!(bytes(&batch).len(), 4 * 50 * (3 * 12 + 4 + 4 + 3 + 1));
    }
}
