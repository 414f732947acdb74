//! Networks with random weights, random positions, and evaluators.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use bytes::Bytes;
use evaluators::{Backend, BatchMax, Calibration, Host, Invalid, Store};
use game::{Action, ObservationShape, Spec};
use inference::{Batch, DevicePreference, Evaluator, PrecisionPreference, Predictions};
use network_cpu::{KernelPreference, KernelVariant, Tower, TowerEvaluator, choose_variant};
use network_torch::{Device, Libtorch, LibtorchEvaluator, Network, Precision};
use proto::weights::Published;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use weights::{Architecture, Manifest, WeightsVersion};

use crate::series::Work;
use crate::threads;

/// Planes of every observation; the number affects the first convolution only.
const PLANES: usize = 3;
/// Share of occupied cells in an observation.
const OCCUPIED: f64 = 0.3;

/// Size of a measured network and board: `BLOCKSxCHANNELS@HEIGHTxWIDTH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkSize {
    /// Residual blocks of the tower.
    pub blocks: usize,
    /// Channels of the tower.
    pub channels: usize,
    /// Rows of the board.
    pub height: usize,
    /// Columns of the board.
    pub width: usize,
}

impl NetworkSize {
    /// Returns a plain tower of this size. Square boards have an action for each cell and one to pass, as in Go; all
    /// other boards have one for each column, as in Connect Four.
    #[must_use]
    pub fn architecture(self) -> Architecture {
        let Self { blocks, channels, height, width } = self;
        let actions = if height == width { height.saturating_mul(width).saturating_add(1) } else { width };
        Architecture::plain("benchmark", [PLANES, height, width], actions, [channels, blocks])
    }
}

impl fmt::Display for NetworkSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}@{}x{}", self.blocks, self.channels, self.height, self.width)
    }
}

impl FromStr for NetworkSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (tower, board) = text.split_once('@')?;
            let ([blocks, channels], [height, width]) = (numbers(tower)?, numbers(board)?);
            Some(Self { blocks, channels, height, width })
        };
        parse().ok_or_else(|| {
            format!("`{text}` is not the size of a network: expected BLOCKSxCHANNELS@HEIGHTxWIDTH, such as 6x64@6x7")
        })
    }
}

/// Parses the `N` numbers of a text such as `6x64`.
pub(crate) fn numbers<const N: usize>(text: &str) -> Option<[usize; N]> {
    let numbers: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
    numbers.ok()?.try_into().ok()
}

/// Creates a tower with random weights for a game, as the first published version; the weights depend on the seed
/// alone.
///
/// # Errors
/// The network size is invalid.
pub(crate) fn random_weights(spec: &Spec, blocks: usize, channels: usize, seed: u64) -> anyhow::Result<Published> {
    let ObservationShape { planes, height, width } = spec.observation;
    let size = NetworkSize { blocks, channels, height, width };
    let (game, actions) = (spec.name.clone(), spec.actions);
    published(Architecture { game, planes, actions, ..size.architecture() }, seed)
}

/// Creates a network with random weights, which depend on the seed alone, as the first published version.
///
/// # Errors
/// The network size is invalid.
pub(crate) fn published(architecture: Architecture, seed: u64) -> anyhow::Result<Published> {
    let bytes = Network::new(&architecture, Device::Cpu, seed)?.to_safetensors()?;
    let manifest = Manifest::of(&bytes, WeightsVersion(1), 0, architecture);
    Ok(Published { manifest, bytes: bytes.into() })
}

/// Generates random binary observations with all actions legal.
pub(crate) fn random_positions(architecture: &Architecture, seed: u64, positions: usize) -> Batch {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let shape =
        ObservationShape { planes: architecture.planes, height: architecture.height, width: architecture.width };
    let legal: Vec<Action> =
        (0..architecture.actions).filter_map(|action| u16::try_from(action).ok()).map(Action).collect();
    let mut batch = Batch::new(shape);
    for _ in 0..positions {
        batch.push(&legal, |planes| planes.fill_with(|| f32::from(rng.random_bool(OCCUPIED))));
    }
    batch
}

/// libtorch as a backend. The feature `torch` of `evaluators` also has one, but enabling it here would link libtorch
/// into every program that is built together with this one.
pub(crate) struct LibtorchBackend(pub Libtorch);

impl Backend for LibtorchBackend {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn Evaluator>, evaluators::Error> {
        self.0.evaluator(manifest, bytes).map_err(|error| evaluators::Error::Other(error.to_string()))
    }

    fn set_in_flight(&self, depth: usize) {
        self.0.set_in_flight(depth);
    }
}

/// Chooses evaluators: libtorch if the options request it or an accelerator, or if the CPU kernel does not support the
/// network; else the kernel, chosen as in the processes of a fleet.
///
/// # Errors
/// This machine cannot satisfy an option; the error names it.
pub(crate) fn choose_evaluators(
    (device, precision, kernel): (DevicePreference, PrecisionPreference, KernelPreference),
    calibration: Calibration,
    architecture: &Architecture,
    threads: usize,
    batch_max: usize,
) -> anyhow::Result<Arc<dyn Backend>> {
    let is_for_libtorch = match kernel {
        KernelPreference::Auto => choose_variant(architecture, &[KernelVariant::PortableF32]).is_err(),
        KernelPreference::Libtorch => true,
        KernelPreference::Only(_) => false,
    };
    if device.is_accelerator() || is_for_libtorch {
        return Ok(Arc::new(LibtorchBackend(Libtorch::new(device, precision, Instant::now)?)));
    }
    let threads = evaluators::Threads::exactly(threads);
    let (batch_max, torch_build) = (BatchMax::exactly(batch_max), "use --device or --kernel libtorch");
    let settings = evaluators::Settings { device, precision, kernel, calibration, threads, batch_max, torch_build };
    let host = Host { clock: Instant::now, machine: service::machine::describe(), speeds: Store::none() };
    let chosen = evaluators::choose(&settings, host);
    chosen.map(|chosen| chosen.backend).map_err(|Invalid { setting, reason }| anyhow!("--{setting}: {reason}"))
}

/// Builds the evaluators that an actor would choose, one for each thread.
///
/// # Errors
/// The weights are invalid.
pub(crate) fn automatic_evaluators(
    weights: &Published,
    threads: usize,
    batch_max: usize,
) -> anyhow::Result<Vec<Box<dyn Evaluator>>> {
    let auto = (DevicePreference::Auto, PrecisionPreference::Auto, KernelPreference::Auto);
    let Published { manifest, bytes } = weights;
    let backend = choose_evaluators(auto, Calibration::Off, &manifest.architecture, threads, batch_max)?;
    (0..threads).map(|_| Ok(backend.build(manifest, bytes)?)).collect()
}

/// Measures the evaluations/s over all evaluators, each in a separate thread with a separate batch. `batch` makes the
/// batch from the thread index.
///
/// # Errors
/// An evaluator fails.
pub(crate) fn evaluations_per_second(
    evaluators: &mut [Box<dyn Evaluator>],
    batch: impl Fn(usize) -> Batch,
    time: Duration,
) -> anyhow::Result<f64> {
    let with_batch = |(index, evaluator)| (evaluator, batch(index), Predictions::new());
    let mut workers: Vec<(&mut Box<dyn Evaluator>, Batch, Predictions)> =
        evaluators.iter_mut().enumerate().map(with_batch).collect();
    threads::rate(&mut workers, time, |(evaluator, batch, predictions)| {
        evaluator.evaluate(batch, predictions)?;
        Ok(batch.len())
    })
}

/// Returns evaluators of a packed network, one for each thread.
pub(crate) fn kernel_evaluators(tower: &Arc<Tower>, threads: usize) -> Vec<Box<dyn Evaluator>> {
    let evaluator = |_| Box::new(TowerEvaluator::new(Arc::clone(tower), WeightsVersion(1))) as _;
    (0..threads).map(evaluator).collect()
}

/// Returns evaluators of libtorch, one for each thread.
///
/// # Errors
/// The device fails.
pub(crate) fn libtorch_evaluators(
    architecture: &Architecture,
    bytes: &[u8],
    (device, precision): (Device, Precision),
    threads: usize,
) -> anyhow::Result<Vec<Box<dyn Evaluator>>> {
    let evaluator = || LibtorchEvaluator::new(architecture, WeightsVersion(1), bytes, device, precision);
    (0..threads).map(|_| Ok(Box::new(evaluator()?) as _)).collect()
}

/// Returns evaluation work for evaluators of one network, each with separate batches. libtorch distributes each
/// operation over `threads` threads.
pub(crate) fn evaluating(
    mut evaluators: Vec<Box<dyn Evaluator>>,
    architecture: &Architecture,
    threads: usize,
    seed: u64,
) -> Work {
    let architecture = architecture.clone();
    Work::of_size(move |size, time| {
        network_torch::set_threads(threads);
        let batch = |thread| random_positions(&architecture, seed.wrapping_add(thread as u64), size);
        Ok(evaluations_per_second(&mut evaluators, batch, time)? / size as f64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_back() {
        for text in ["6x64@6x7", "20x256@19x19", "0x32@1x1"] {
            assert_eq!(text.parse::<NetworkSize>().unwrap().to_string(), text);
        }
        let size: NetworkSize = "6x128@9x8".parse().unwrap();
        assert_eq!(size, NetworkSize { blocks: 6, channels: 128, height: 9, width: 8 });
    }

    #[test]
    fn an_invalid_network_size_is_rejected_with_an_example() {
        for text in
            ["", "6x64", "6@6x7", "6x64@6", "6x64@6x7x8", "sixx64@6x7", "-1x64@6x7", "99999999999999999999x64@6x7"]
        {
            let error = text.parse::<NetworkSize>().unwrap_err();
            assert!(error.contains(&format!("`{text}`")) && error.contains("6x64@6x7"), "{error}");
        }
    }

    #[test]
    fn square_boards_have_an_action_for_each_cell_and_one_to_pass() {
        let actions = |text: &str| text.parse::<NetworkSize>().unwrap().architecture().actions;
        assert_eq!((actions("1x16@9x9"), actions("1x16@6x7")), (82, 7));
    }

    /// Returns the evaluator of untrained weights of a small network for tic-tac-toe.
    fn evaluator(
        (precision, kernel): (PrecisionPreference, KernelPreference),
        channels: usize,
    ) -> anyhow::Result<Box<dyn Evaluator>> {
        let size = NetworkSize { blocks: 3, channels, height: 3, width: 3 };
        let architecture = Architecture { squeeze_excitation: 8, global_pooling: 4, ..size.architecture() };
        let Published { manifest, bytes } = published(architecture, 1)?;
        let preference = (DevicePreference::Cpu, precision, kernel);
        let backend = choose_evaluators(preference, Calibration::Off, &manifest.architecture, 1, 1)?;
        Ok(backend.build(&manifest, &bytes)?)
    }

    /// Returns the outputs for a few observations.
    fn answers(preference: (PrecisionPreference, KernelPreference)) -> Vec<f32> {
        let mut batch = Batch::new(ObservationShape { planes: PLANES, height: 3, width: 3 });
        for position in 0..40 {
            let legal = [Action(0), Action(4), Action(8)];
            batch.push(&legal, |cells| {
                cells.iter_mut().enumerate().for_each(|(i, cell)| *cell = f32::from((i * i + position) % 5 < 2));
            });
        }
        let mut predictions = Predictions::new();
        evaluator(preference, 16).unwrap().evaluate(&batch, &mut predictions).unwrap();
        let numbers = |i| {
            let value = predictions.wdl()[i];
            predictions.priors(i).iter().copied().chain([value.win, value.draw, value.loss]).collect::<Vec<_>>()
        };
        (0..batch.len()).flat_map(numbers).collect()
    }

    #[test]
    fn every_variant_of_the_cpu_kernel_answers_as_libtorch_does() {
        let libtorch = answers((PrecisionPreference::F32, KernelPreference::Libtorch));
        for variant in KernelVariant::ALL.into_iter().filter(|variant| variant.is_available()) {
            let (precision, tolerance) = match variant.is_bf16() {
                true => (PrecisionPreference::Bf16, 5e-3),
                false => (PrecisionPreference::F32, 1e-5),
            };
            let kernel = answers((precision, KernelPreference::Only(variant)));
            for (kernel, libtorch) in kernel.iter().zip(&libtorch) {
                assert!((kernel - libtorch).abs() <= tolerance, "{variant}: {kernel}, not {libtorch}");
            }
        }
    }

    #[test]
    fn libtorch_evaluates_networks_that_the_cpu_kernel_does_not_support() {
        let of = |kernel| evaluator((PrecisionPreference::F32, kernel), 12);
        assert_eq!(&*of(KernelPreference::Auto).unwrap().attributes().name, "libtorch cpu f32");
        let error = of(KernelPreference::Only(KernelVariant::PortableF32)).map(drop).unwrap_err().to_string();
        assert!(error.contains("the CPU kernel does not support 12 channels"), "{error}");
    }
}
