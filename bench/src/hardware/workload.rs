use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use network_cpu::{KernelVariant, Tower, choose_variant, fastest_first};
use network_torch::{DenseNetwork, DenseShape, Device, Network, Operands, Operation, Precision};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use weights::Architecture;

use super::setting::{Setting, Split};
use crate::network::{NetworkSize, evaluating, kernel_evaluators, libtorch_evaluators};
use crate::report::Unit;
use crate::series::{Series, Work};
use crate::threads;

/// Duration of a burst: independent calls with a wait only for the last. Waiting costs some hundredths of a millisecond
/// on an accelerator, and then does not distort the measured rate.
const BURST: Duration = Duration::from_millis(2);

/// A computation to measure.
#[derive(Debug)]
pub(super) enum Workload {
    /// An operation on square matrices or vectors.
    Operation(Operation),
    /// Residual tower of AlphaZero, with the weights as published.
    Tower(NetworkSize, Vec<u8>),
    /// Dense network as in MuZero.
    Dense(DenseShape),
}

/// Kind of a workload, which determines the meaning of sizes and speeds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// Name of the sizes.
    pub(super) sizes: &'static str,
    /// Metric of the speeds.
    pub(super) metric: &'static str,
    /// Unit of the speeds.
    pub(super) unit: Unit,
}

/// Matrix products: sizes are rows of square matrices, speeds are multiply-adds.
pub(super) const MATRIX_PRODUCT: Kind = Kind { sizes: "side", metric: "multiply-adds/s", unit: Unit::PerSecond };
/// Vector operations: sizes are elements of vectors, speeds are bytes read and written.
pub(super) const VECTOR_OPERATION: Kind = Kind { sizes: "elements", metric: "bytes/s", unit: Unit::BytesPerSecond };
/// Networks: sizes are positions of a batch, speeds are evaluations.
pub(super) const NETWORK: Kind = Kind { sizes: "batch", metric: "evaluations/s", unit: Unit::PerSecond };

/// Devices and threads to measure.
#[derive(Debug, Clone)]
pub(super) struct Means {
    /// Devices, the CPU first.
    pub(super) devices: Vec<Device>,
    /// Threads of the CPU, in settings with more than one.
    pub(super) threads: usize,
    /// Seed of all random numbers.
    pub(super) seed: u64,
}

/// Precisions of libtorch.
const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::Bf16];

impl Workload {
    /// Creates a residual tower with random weights, which depend on the seed alone.
    ///
    /// # Errors
    /// The network size is invalid.
    pub(super) fn tower(size: NetworkSize, seed: u64) -> anyhow::Result<Self> {
        Ok(Self::Tower(size, Network::new(&size.architecture(), Device::Cpu, seed)?.to_safetensors()?))
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Operation(Operation::Product) => MATRIX_PRODUCT,
            Self::Operation(_) => VECTOR_OPERATION,
            Self::Tower(..) | Self::Dense(_) => NETWORK,
        }
    }

    /// Returns a series for every setting; a setting that cannot compute this workload holds the reason.
    pub(super) fn series(&self, means: &Means) -> Vec<Series<Setting>> {
        let libtorch = |device, precision, split: Split| {
            let work = self.libtorch(device, precision, split, means.seed);
            Series::new(Setting::new(device, "libtorch", precision, split), split.evaluators, work)
        };
        let mut all = Vec::new();
        for &device in &means.devices {
            let splits = self.splits(device, means.threads);
            for precision in PRECISIONS {
                all.extend(splits.iter().map(|&split| libtorch(device, precision, split)));
            }
            if let (Self::Tower(size, bytes), Device::Cpu) = (self, device) {
                all.extend(kernels(&size.architecture(), bytes, means));
            }
        }
        all
    }

    /// Returns the splits to measure: evaluators run in parallel for networks only, and on a CPU only.
    fn splits(&self, device: Device, threads: usize) -> Vec<Split> {
        let mut splits = if device == Device::Cpu { Split::all(threads) } else { vec![Split::SINGLE] };
        let is_network = matches!(self, Self::Tower(..) | Self::Dense(_));
        splits.retain(|split| split.evaluators == 1 || is_network);
        splits
    }

    fn libtorch(&self, device: Device, precision: Precision, split: Split, seed: u64) -> anyhow::Result<Work> {
        let Split { evaluators, threads } = split;
        Ok(match self {
            &Self::Operation(operation) => Work {
                units: Box::new(move |size| operation.units(size, precision)),
                rate: Box::new(move |size, time| {
                    network_torch::set_threads(threads);
                    // The operands are allocated anew each time, so that memory holds only one size.
                    let operands = Operands::new(operation, size, device, precision, seed)?;
                    in_bursts(operands, time, |operands, times| Ok(operands.operate(times)?))
                }),
            },
            Self::Tower(size, bytes) => {
                let architecture = size.architecture();
                let evaluators = libtorch_evaluators(&architecture, bytes, (device, precision), evaluators)?;
                evaluating(evaluators, &architecture, threads, seed)
            }
            &Self::Dense(shape) => {
                let network = |_| DenseNetwork::new(shape, device, precision, seed);
                dense((0..evaluators).map(network).collect::<Result<_, _>>()?, shape, threads, seed)
            }
        })
    }
}

/// Evaluates with dense networks, each in a separate thread.
fn dense(mut networks: Vec<DenseNetwork>, shape: DenseShape, threads: usize, seed: u64) -> Work {
    Work::of_size(move |size, time| {
        network_torch::set_threads(threads);
        let with_observations = |(index, network)| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed.wrapping_add(index as u64));
            // `[B, I]`.
            let observations = (0..size * shape.inputs).map(|_| rng.random_range(-1.0..1.0)).collect();
            (network, observations, Vec::new())
        };
        let mut workers: Vec<(&mut DenseNetwork, Vec<f32>, Vec<f32>)> =
            networks.iter_mut().enumerate().map(with_observations).collect();
        threads::rate(&mut workers, time, |(network, observations, answers)| {
            network.evaluate(observations, answers)?;
            Ok(1)
        })
    })
}

/// Measures the calls/s of `call`, which makes the given number of calls and waits for the last. The number grows until
/// the calls take about as long as [`BURST`].
fn in_bursts<S: Send>(
    state: S,
    time: Duration,
    call: impl Fn(&mut S, usize) -> anyhow::Result<f64> + Sync,
) -> anyhow::Result<f64> {
    threads::rate(&mut [(state, 1)], time, |(state, times)| {
        let (begun, calls) = (Instant::now(), *times);
        call(state, calls)?;
        if begun.elapsed() < BURST / 2 {
            *times *= 2;
        }
        Ok(calls)
    })
}

/// Returns the series of the CPU kernel on the fastest available path in each precision, with one evaluator and with
/// one per thread.
fn kernels(architecture: &Architecture, bytes: &[u8], means: &Means) -> Vec<Series<Setting>> {
    let available = fastest_first(&mut Instant::now);
    let mut all = Vec::new();
    for precision in PRECISIONS {
        let is_of = |path: &KernelVariant| path.is_bf16() == (precision == Precision::Bf16);
        let paths: Vec<KernelVariant> = available.iter().copied().filter(is_of).collect();
        if paths.is_empty() {
            continue;
        }
        let chosen = choose_variant(architecture, &paths);
        let tower = chosen.and_then(|chosen| Ok(Arc::new(Tower::new(architecture, bytes, chosen.path)?)));
        let engine = tower.as_ref().map_or("kernel", |tower| tower.path().name());
        // The kernel does not distribute an operation over threads.
        for split in Split::all(means.threads).into_iter().filter(|split| split.threads == 1) {
            let work = tower.as_ref().map_err(|error| anyhow::anyhow!("{error}")).map(|tower| {
                let evaluators = kernel_evaluators(tower, split.evaluators);
                evaluating(evaluators, architecture, split.threads, means.seed)
            });
            all.push(Series::new(Setting::new(Device::Cpu, engine, precision, split), split.evaluators, work));
        }
    }
    all
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(operation) => operation.fmt(f),
            Self::Tower(size, _) => write!(f, "tower {size}"),
            Self::Dense(DenseShape { inputs, hidden, actions }) => write!(f, "dense {inputs}x{hidden}x{actions}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Turn;
    use crate::series::Limits;

    const DENSE: Workload = Workload::Dense(DenseShape { inputs: 4, hidden: 8, actions: 2 });
    const TOWER: NetworkSize = NetworkSize { blocks: 1, channels: 16, height: 3, width: 3 };

    fn settings(workload: &Workload, devices: Vec<Device>) -> Vec<String> {
        let means = Means { devices, threads: 2, seed: 1 };
        workload.series(&means).iter().map(|series| series.label.to_string()).collect()
    }

    #[test]
    fn operations_are_measured_with_a_single_evaluator() {
        for workload in [Operation::Product, Operation::Sum].map(Workload::Operation) {
            let expected = ["f32", "bf16"]
                .map(|precision| ["1 thread", "2 threads"].map(|cores| format!("cpu libtorch {precision}, {cores}")));
            assert_eq!(settings(&workload, vec![Device::Cpu]), expected.concat());
        }
    }

    #[test]
    fn networks_are_also_measured_with_evaluators_in_parallel() {
        let settings = settings(&DENSE, vec![Device::Cpu]);
        assert_eq!(settings.len(), 6);
        assert!(settings.contains(&"cpu libtorch bf16, 2 evaluators".to_owned()), "{settings:?}");
    }

    #[test]
    fn towers_are_computed_by_the_kernel_too_in_float32_everywhere() {
        let tower = Workload::tower(TOWER, 1).unwrap();
        let settings = settings(&tower, vec![Device::Cpu]);
        let kernel: Vec<&String> = settings.iter().filter(|setting| !setting.contains("libtorch")).collect();
        assert!(kernel.iter().any(|setting| setting.ends_with("f32, 1 thread")), "{settings:?}");
        assert!(kernel.iter().any(|setting| setting.ends_with("f32, 2 evaluators")), "{settings:?}");
    }

    #[test]
    fn an_unsupported_device_is_reported_as_not_measured() {
        // No supported build of libtorch computes on this device.
        let means = Means { devices: vec![Device::Vulkan], threads: 2, seed: 1 };
        let limits = Limits { time: Duration::ZERO, call_time_max: Duration::from_secs(1) };
        let tower = Workload::tower(TOWER, 1).unwrap();
        for workload in [Workload::Operation(Operation::Product), Workload::Operation(Operation::Add), tower, DENSE] {
            let mut all = workload.series(&means);
            assert_eq!(all.len(), 2);
            for series in &mut all {
                series.measure(1, limits);
                assert!(series.speeds(Turn::Median).not_measured.is_some(), "{workload}");
            }
        }
    }
}
