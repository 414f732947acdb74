//! Networks, positions and batches of random numbers, and the distance between two predictions.

use game::{Action, ObservationShape};
use inference::{Batch, Predictions};
use network::{Entry, Layers, Reader, Role};
use network_torch::{Device, Network};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use training::TrainingBatch;
use weights::Architecture;

use crate::Result;

/// A board: planes, height, width and actions.
pub(super) type Board = [usize; 4];
/// The board of Connect Four.
pub(super) const CONNECT_FOUR: Board = [3, 6, 7, 7];
/// The board of Go.
pub(super) const GO: Board = [3, 19, 19, 362];

/// A tower of this many blocks and channels.
pub(super) fn plain(blocks: usize, channels: usize, [planes, height, width, actions]: Board) -> Architecture {
    Architecture::plain("device_check", [planes, height, width], actions, [channels, blocks])
}

/// A tower with squeeze-and-excitation and global pooling.
pub(super) fn complete(blocks: usize, channels: usize, board: Board) -> Architecture {
    Architecture { squeeze_excitation: channels / 4, global_pooling: channels / 4, ..plain(blocks, channels, board) }
}

/// Returns a name such as `20x256@19x19`, with `+SE+pool` for the additions to blocks.
pub(super) fn name(architecture: &Architecture) -> String {
    let Architecture { blocks, channels, height, width, .. } = architecture;
    let additions = if architecture.squeeze_excitation > 0 { "+SE+pool" } else { "" };
    format!("{blocks}x{channels}{additions}@{height}x{width}")
}

/// Returns weights like a trained network's: no number is at the initial value, the logits have a magnitude of about
/// one, and the activations of a deep tower do not grow.
///
/// # Errors
/// Fails for an architecture that is out of range.
pub(super) fn trained_weights(architecture: &Architecture, seed: u64) -> Result<Vec<u8>> {
    /// Scale of the last norm of each block, so that twenty blocks together add as much as the input.
    const RESIDUAL_SCALE: f32 = 0.25;
    /// Outputs of the heads start at a tenth of the usual size.
    const OUTPUT_SCALE: f32 = 10.0;
    let bytes = Network::new(architecture, Device::Cpu, seed)?.to_safetensors()?;
    let mut reader = Reader::new(&bytes)?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut entries = Vec::new();
    for tensor in Layers::new(architecture)?.tensors() {
        let mut values = reader.tensor("", &tensor)?;
        for value in &mut values {
            *value = match tensor.role {
                Role::NormScale if tensor.name.contains(".second.") => RESIDUAL_SCALE * rng.random_range(0.5..1.5),
                Role::NormScale | Role::NormVariance => rng.random_range(0.7..1.3),
                Role::Bias | Role::Offsets | Role::NormShift | Role::NormMean => rng.random_range(-0.2..0.2),
                Role::Linear if tensor.name.ends_with("output.weight") => *value * OUTPUT_SCALE,
                Role::Convolution | Role::Linear => *value,
            };
        }
        entries.push(Entry::tensor("", &tensor, &values));
    }
    Ok(network::write(entries)?)
}

/// Random zero-one observations, with every action legal.
pub(super) fn positions(architecture: &Architecture, count: usize, seed: u64) -> Batch {
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let legal: Vec<Action> = (0..actions).filter_map(|action| u16::try_from(action).ok()).map(Action).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut batch = Batch::new(ObservationShape { planes, height, width });
    for _ in 0..count {
        batch.push(&legal, |observation| observation.fill_with(|| f32::from(u8::from(rng.random_bool(0.3)))));
    }
    batch
}

/// Random positions with random targets: action 0 is illegal in every second row, and every third row has no policy
/// target.
pub(super) fn training_batch(architecture: &Architecture, rows: usize, seed: u64) -> TrainingBatch {
    let shares = |values: Vec<f32>| {
        let sum: f32 = values.iter().sum();
        values.into_iter().map(move |value| value / sum)
    };
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut batch = TrainingBatch::default();
    let numbers = architecture.planes * architecture.height * architecture.width;
    for row in 0..rows {
        batch.observations.extend((0..numbers).map(|_| f32::from(u8::from(rng.random_bool(0.3)))));
        let legal: Vec<u8> = (0..architecture.actions).map(|action| u8::from(action > 0 || row % 2 == 0)).collect();
        batch
            .policies
            .extend(shares(legal.iter().map(|&legal| f32::from(legal) * rng.random_range(0.1..1.0)).collect()));
        batch.legal.extend(legal);
        batch.wdl.extend(shares((0..3).map(|_| rng.random_range(0.1..1.0)).collect()));
        batch.policy_weights.push(if row % 3 == 2 { 0.0 } else { 1.0 });
    }
    batch
}

/// Returns the squared distance between the logits of two predictions, and the squared size of the second. The logits
/// are recovered up to a constant, as logarithms minus the mean: probabilities themselves hide errors near uniform.
pub(super) fn distance(got: &Predictions, i: usize, reference: &Predictions, j: usize) -> (f64, f64) {
    let value = |predictions: &Predictions, i: usize| {
        let wdl = predictions.wdl()[i];
        [wdl.win, wdl.draw, wdl.loss]
    };
    let policy = squares(got.priors(i), reference.priors(j));
    let outcome = squares(&value(got, i), &value(reference, j));
    (policy.0 + outcome.0, policy.1 + outcome.1)
}

/// Returns the largest error, NaN if there is one; 0 without errors.
pub(super) fn largest(errors: impl IntoIterator<Item = f64>) -> f64 {
    let larger = |most: f64, error| if most.is_nan() || error <= most { most } else { error };
    errors.into_iter().fold(0.0, larger)
}

fn squares(got: &[f32], reference: &[f32]) -> (f64, f64) {
    let logits = |probabilities: &[f32]| -> Vec<f64> {
        let logarithms: Vec<f64> = probabilities.iter().map(|&probability| f64::from(probability).ln()).collect();
        let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
        logarithms.into_iter().map(|logarithm| logarithm - mean).collect()
    };
    let (got, reference) = (logits(got), logits(reference));
    let error = got.iter().zip(&reference).map(|(got, reference)| (got - reference).powi(2)).sum();
    (error, reference.iter().map(|reference| reference.powi(2)).sum())
}

/// Returns all numbers of a weights file, in layer order.
pub(super) fn numbers(architecture: &Architecture, bytes: &[u8]) -> Result<Vec<f32>> {
    let mut reader = Reader::new(bytes)?;
    let mut numbers = Vec::new();
    for tensor in Layers::new(architecture)?.tensors() {
        numbers.extend(reader.tensor("", &tensor)?);
    }
    Ok(numbers)
}
