//! The manifest and the file of published weights, read by both evaluators.

use game::{Action, ObservationShape};
use inference::{Batch, Evaluator as _, LatentModel, LatentPredictions, Predictions, Slot, Unroll};
use network::{Entry, LatentLayers, Layers, Role, Tensor};
use network_cpu::{KernelVariant, LatentEvaluator, LatentNetwork, Tower, TowerEvaluator};
use network_torch::{Device, LibtorchEvaluator, LibtorchLatent, Network, Precision};
use prost::Message as _;
use proto::weights::v1;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use weights::{Architecture, Assembly, Digest, Manifest, Model, WeightsVersion};

/// Maximum numbers in a network to build: a larger network makes an input slow, and tests nothing else.
const NUMBERS_MAX: usize = 60_000;
/// Maximum multiply-adds per position, for the same reason.
const MULTIPLY_ADDS_MAX: usize = 4_000_000;
/// Maximum weight for which both evaluators must agree: larger weights lose digits in minimal filtering.
const WEIGHT_MAX: f32 = 2.0;
/// Maximum difference between probabilities and between values.
const TOLERANCE: f32 = 2e-3;

/// Checks that any manifest and any file make a network or are refused, by both evaluators alike. Weights must be
/// assembled correctly from chunks. The outputs of both evaluators must be probabilities and agree.
///
/// The manifest comes first, with a two-byte length prefix. Then a byte chooses the file: the remaining bytes, or a
/// valid file of that network changed by the remaining bytes. A change takes four bytes: three for the position, one
/// for the value.
pub(crate) fn check(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return };
    let (message, rest) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*length))));
    let Ok(mut message) = v1::Manifest::decode(message) else { return };
    let Some((&how, rest)) = rest.split_first() else { return };
    let file = if how & 1 == 0 { rest.to_vec() } else { changed(&message, rest) };
    // The fuzzer cannot find a digest.
    if how & 2 == 0 {
        (message.digest, message.size_bytes) = (Digest::of(&file).to_string(), file.len() as u64);
    }
    let Ok(manifest) = Manifest::try_from(message) else { return };
    assert_eq!(Manifest::try_from(v1::Manifest::from(&manifest)).as_ref(), Ok(&manifest));
    let text = serde_json::to_string(&manifest).expect("a manifest is written as JSON");
    assert_eq!(serde_json::from_str::<Manifest>(&text).expect("it is read back"), manifest);
    let is_intact = (manifest.size_bytes, manifest.digest) == (file.len() as u64, Digest::of(&file));
    assert_eq!(assembled(&manifest, &file, 1 + usize::from(how >> 2)).as_ref(), is_intact.then_some(&file));
    if is_intact && is_small(&manifest.architecture) {
        evaluated(&manifest, &file, how);
    }
}

fn assembled(manifest: &Manifest, file: &[u8], chunk: usize) -> Option<Vec<u8>> {
    let mut assembly = Assembly::new(manifest.clone(), 1 << 20).ok()?;
    for (index, bytes) in file.chunks(chunk * 97).enumerate() {
        assembly.add((index * chunk * 97) as u64, bytes).ok()?;
    }
    assembly.finish().ok().map(|bytes| bytes.to_vec())
}

/// Returns true for a network that is built in milliseconds, and for one that is refused.
fn is_small(architecture: &Architecture) -> bool {
    let Some(tensors) = tensors(architecture) else { return true };
    let &Architecture { height, width, .. } = architecture;
    let numbers: usize = tensors.iter().map(Tensor::numel).sum();
    numbers <= NUMBERS_MAX && numbers * height * width <= MULTIPLY_ADDS_MAX
}

/// Returns the tensors of an architecture; `None` for one that is refused.
fn tensors(architecture: &Architecture) -> Option<Vec<Tensor>> {
    match architecture.model {
        Model::Alphazero => Some(Layers::new(architecture).ok()?.tensors().collect()),
        _ => Some(LatentLayers::new(architecture).ok()?.iter().flat_map(|layer| layer.tensors()).collect()),
    }
}

/// Returns a changed file of a network with random weights; an empty file if there is no such network.
fn changed(message: &v1::Manifest, changes: &[u8]) -> Vec<u8> {
    let message = v1::Manifest { digest: Digest::of(&[]).to_string(), ..message.clone() };
    let architecture = Manifest::try_from(message).ok().map(|manifest| manifest.architecture);
    let tensors = architecture.filter(is_small).and_then(|architecture| tensors(&architecture));
    let Some(tensors) = tensors else { return Vec::new() };
    let mut rng = ChaCha8Rng::seed_from_u64(changes.len() as u64);
    let entries = tensors.iter().map(|tensor| {
        let (middle, spread) = match tensor.role {
            Role::Convolution | Role::Linear => (0.0, (3.0 * tensor.shape[0] as f32 / tensor.numel() as f32).sqrt()),
            Role::NormScale | Role::NormVariance => (1.0, 0.1),
            Role::Bias | Role::Offsets | Role::NormShift | Role::NormMean => (0.0, 0.1),
        };
        let values: Vec<f32> = (0..tensor.numel()).map(|_| middle + spread * rng.random_range(-1.0..1.0_f32)).collect();
        Entry::tensor("", tensor, &values)
    });
    let mut file = network::write(entries).expect("no name occurs twice");
    for change in changes.chunks_exact(4) {
        let at = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize % file.len();
        file[at] = change[3];
    }
    file
}

fn evaluated(manifest: &Manifest, file: &[u8], how: u8) {
    let architecture = &manifest.architecture;
    let available: Vec<KernelVariant> =
        KernelVariant::ALL.into_iter().filter(|path| path.is_available() && !path.is_bf16()).collect();
    let path = available[usize::from(how >> 2) % available.len()];
    let read = Network::from_safetensors(architecture, file, Device::Cpu);
    let reason = |error: &network_cpu::Error| error.is_of_the_kernel();
    match architecture.model {
        Model::Alphazero => {
            let tower = match Tower::new(architecture, file, path) {
                Ok(tower) => tower,
                Err(error) => return assert!(reason(&error) || read.is_err(), "libtorch takes it: {error}"),
            };
            assert!(read.is_ok(), "libtorch refuses it: {:?}", read.err());
            let mut cpu = TowerEvaluator::new(tower.into(), manifest.version);
            let device = (Device::Cpu, Precision::F32);
            let torch = LibtorchEvaluator::new(architecture, manifest.version, file, device.0, device.1);
            let mut torch = torch.expect("its network was read");
            let batch = batch(architecture);
            let (mut first, mut second) = (Predictions::new(), Predictions::new());
            let done = (cpu.evaluate(&batch, &mut first).is_ok(), torch.evaluate(&batch, &mut second).is_ok());
            if done.0 {
                are_probabilities((0..batch.len()).map(|i| first.priors(i)));
            }
            if done.1 {
                are_probabilities((0..batch.len()).map(|i| second.priors(i)));
            }
            if is_moderate(architecture, file) {
                assert_eq!(done, (true, true), "moderate weights have finite answers");
                for i in 0..batch.len() {
                    agree(first.priors(i), second.priors(i));
                    agree(&[first.value(i)], &[second.value(i)]);
                }
            }
        }
        _ => {
            let network = match LatentNetwork::new(architecture, file, path) {
                Ok(network) => network,
                Err(error) => return assert!(reason(&error) || read.is_err(), "libtorch takes it: {error}"),
            };
            let network_of_torch = read.unwrap_or_else(|error| panic!("libtorch refuses it: {error}"));
            let mut cpu = LatentEvaluator::new(network.into(), manifest.version);
            let torch = LibtorchLatent::from_network(&network_of_torch, manifest.version, Precision::F32);
            let mut torch = torch.expect("its network was read");
            let (first, second) = (steps(&mut cpu, architecture), steps(&mut torch, architecture));
            if is_moderate(architecture, file) {
                let (first, second) = (first.expect("moderate weights"), second.expect("moderate weights"));
                for i in 0..first.len() {
                    agree(first.priors(i), second.priors(i));
                    let scale = 1.0 + first.value(i).abs();
                    agree(&[first.value(i) / scale], &[second.value(i) / scale]);
                }
            }
        }
    }
}

/// Returns two positions with all actions legal.
fn batch(architecture: &Architecture) -> Batch {
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let mut batch = Batch::new(ObservationShape { planes, height, width });
    let legal: Vec<Action> = (0..=u16::MAX).take(actions).map(Action).collect();
    for period in [2, 3] {
        batch.push(&legal, |cells| {
            cells.iter_mut().enumerate().for_each(|(index, cell)| *cell = f32::from(u8::from(index % period == 0)));
        });
    }
    batch
}

/// Returns the predictions of two observations; each then takes a step with checked predictions. `None` if any number
/// is not finite.
fn steps(model: &mut dyn LatentModel, architecture: &Architecture) -> Option<LatentPredictions> {
    let (batch, slots) = (batch(architecture), [Slot(0), Slot(1)]);
    model.reserve(4).expect("four small states fit the memory");
    let mut predictions = LatentPredictions::default();
    model.initial(&batch, &slots, &mut predictions).ok()?;
    are_probabilities((0..batch.len()).map(|i| predictions.priors(i)));
    if architecture.model.has_dynamics() {
        let mut next = LatentPredictions::default();
        let step = |from: usize| Unroll { from: slots[from], action: Action(0), to: Slot(2 + from as u32) };
        let steps = [step(0), step(1)];
        let taken = if model.codes() > 0 { model.act(&steps, &mut next) } else { model.recurrent(&steps, &mut next) };
        taken.ok()?;
        are_probabilities((0..batch.len()).map(|i| next.priors(i)));
    }
    Some(predictions)
}

/// Returns true if no number is so large that float32 sums in another order differ.
fn is_moderate(architecture: &Architecture, file: &[u8]) -> bool {
    let Some(tensors) = tensors(architecture) else { return false };
    let mut reader = network::Reader::new(file).expect("it was read before");
    tensors.iter().all(|tensor| {
        let values = reader.tensor("", tensor).expect("it was read before");
        let least = if tensor.role == Role::NormVariance { 0.25 } else { -WEIGHT_MAX };
        values.iter().all(|value| (least..=WEIGHT_MAX).contains(value))
    })
}

fn are_probabilities<'a>(rows: impl Iterator<Item = &'a [f32]>) {
    for row in rows {
        let sum: f32 = row.iter().sum();
        assert!((sum - 1.0).abs() < 1e-3 && row.iter().all(|prior| (0.0..=1.0).contains(prior)), "{row:?}");
    }
}

fn agree(first: &[f32], second: &[f32]) {
    let is_near = |(first, second): (&f32, &f32)| (first - second).abs() <= TOLERANCE;
    assert!(first.len() == second.len() && first.iter().zip(second).all(is_near), "{first:?} and {second:?}");
}

/// Returns networks of every model: small files, and changes to them.
#[allow(dead_code, reason = "used by the test of the corpus alone")]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let architecture = |model, shape: [usize; 3], parts: usize| {
        let (plain, units) = (Architecture::plain("any", shape, 5, [16, parts]), 4 * (parts / 3));
        Architecture { squeeze_excitation: units, global_pooling: units, model, ..plain }
    };
    let architectures = [
        architecture(Model::Alphazero, [2, 1, 1], 0),
        architecture(Model::Alphazero, [3, 3, 4], 1),
        architecture(Model::Alphazero, [1, 2, 2], 3),
        architecture(Model::AlphazeroReturns { support: 3 }, [4, 1, 1], 1),
        architecture(Model::Muzero { support: 3 }, [4, 1, 1], 1),
        architecture(Model::Muzero { support: 2 }, [2, 2, 3], 1),
        architecture(Model::StochasticMuzero { support: 2, codes: 3 }, [4, 1, 1], 1),
        architecture(Model::StochasticMuzero { support: 2, codes: 3 }, [1, 2, 2], 1),
    ];
    let seed = |architecture: &Architecture, how: u8, rest: &[u8]| {
        let manifest = Manifest::of(rest, WeightsVersion(3), 9, architecture.clone());
        let message = v1::Manifest::from(&manifest).encode_to_vec();
        [&(message.len() as u16).to_le_bytes()[..], &message, &[how], rest].concat()
    };
    let mut seeds = Vec::new();
    for (how, architecture) in (0..).zip(&architectures) {
        seeds.push(seed(architecture, 1 | how << 2, &[]));
        seeds.push(seed(architecture, 1 | how << 2, &[0, 16, 0, 0x7f, 9, 32, 0, 0xff]));
    }
    let empty = b"\x08\0\0\0\0\0\0\0{}      ";
    seeds.push(seed(&architectures[0], 0, empty));
    seeds.push(seed(&architectures[0], 2, b"not the file of the digest"));
    seeds
}
