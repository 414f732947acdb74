use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use inference::LatentModel;
use network_cpu::{Kernel, KernelVariant, Tower, choose_latent_variant, choose_variant, fastest_first};
use network_torch::{Device, LibtorchLatent, Operands, Operation, Precision, PrecisionPreference};
use proto::weights::Published;

use super::latent::{Inference, unrolling};
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
    /// Residual tower of AlphaZero.
    Tower(NetworkSize, Published),
    /// Inference of a MuZero network.
    Latent(NetworkSize, Inference, Published),
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
/// Convolutions: sizes are positions of a batch, speeds are multiply-adds.
pub(super) const CONVOLUTION: Kind = Kind { sizes: "batch", ..MATRIX_PRODUCT };
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
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Operation(Operation::Product) => MATRIX_PRODUCT,
            Self::Operation(Operation::Convolution) => CONVOLUTION,
            Self::Operation(_) => VECTOR_OPERATION,
            Self::Tower(..) | Self::Latent(..) => NETWORK,
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
            if device == Device::Cpu {
                all.extend(self.kernels(means));
            }
        }
        all
    }

    /// Returns the splits to measure: evaluators run in parallel for networks only, and on a CPU only.
    fn splits(&self, device: Device, threads: usize) -> Vec<Split> {
        let mut splits = if device == Device::Cpu { Split::all(threads) } else { vec![Split::SINGLE] };
        let is_network = !matches!(self, Self::Operation(_));
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
            Self::Tower(_, Published { manifest, bytes }) => {
                let architecture = &manifest.architecture;
                let evaluators = libtorch_evaluators(architecture, bytes, (device, precision), evaluators)?;
                evaluating(evaluators, architecture, threads, seed)
            }
            Self::Latent(_, inference, Published { manifest, bytes }) => {
                let (manifest, bytes, architecture) = (manifest.clone(), bytes.clone(), manifest.architecture.clone());
                let build = move || -> anyhow::Result<Box<dyn LatentModel>> {
                    let (architecture, version) = (&manifest.architecture, manifest.version);
                    Ok(Box::new(LibtorchLatent::new(architecture, version, &bytes, device, precision)?))
                };
                unrolling(build, *inference, architecture, (evaluators, threads), seed)
            }
        })
    }

    /// Returns the series of the CPU kernel on the fastest available path in each precision, with one evaluator and
    /// with one per thread; none for operations.
    fn kernels(&self, means: &Means) -> Vec<Series<Setting>> {
        let (Self::Tower(_, weights) | Self::Latent(_, _, weights)) = self else { return Vec::new() };
        let (architecture, available) = (&weights.manifest.architecture, fastest_first(&mut Instant::now));
        let mut all = Vec::new();
        for precision in PRECISIONS {
            let is_of = |path: &KernelVariant| path.is_bf16() == (precision == Precision::Bf16);
            let paths: Vec<KernelVariant> = available.iter().copied().filter(is_of).collect();
            if paths.is_empty() {
                continue;
            }
            let choose = if matches!(self, Self::Tower(..)) { choose_variant } else { choose_latent_variant };
            let chosen = choose(architecture, &paths).map(|chosen| chosen.path);
            let engine = chosen.as_ref().map_or("kernel", |path| path.name());
            // The kernel does not distribute an operation over threads.
            for split in Split::all(means.threads).into_iter().filter(|split| split.threads == 1) {
                let work = chosen.as_ref().map_err(|error| anyhow::anyhow!("{error}"));
                let work = work.and_then(|&path| self.kernel(path, split.evaluators, means.seed));
                all.push(Series::new(Setting::new(Device::Cpu, engine, precision, split), split.evaluators, work));
            }
        }
        all
    }

    /// Returns the work of evaluators of the CPU kernel on a path, each on one thread.
    fn kernel(&self, path: KernelVariant, evaluators: usize, seed: u64) -> anyhow::Result<Work> {
        match self {
            Self::Operation(operation) => anyhow::bail!("the CPU kernel computes no {operation}"),
            Self::Tower(_, Published { manifest, bytes }) => {
                let tower = Arc::new(Tower::new(&manifest.architecture, bytes, path)?);
                Ok(evaluating(kernel_evaluators(&tower, evaluators), &manifest.architecture, 1, seed))
            }
            Self::Latent(_, inference, Published { manifest, bytes }) => {
                let (manifest, bytes, architecture) = (manifest.clone(), bytes.clone(), manifest.architecture.clone());
                let kernel = Kernel::new(vec![path], PrecisionPreference::Auto);
                let build = move || -> anyhow::Result<Box<dyn LatentModel>> {
                    Ok(Box::new(kernel.latent_evaluator(&manifest, &bytes)?))
                };
                Ok(unrolling(build, *inference, architecture, (evaluators, 1), seed))
            }
        }
    }
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

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(operation) => operation.fmt(f),
            Self::Tower(size, _) => write!(f, "tower {size}"),
            Self::Latent(size, Inference::Initial, _) => write!(f, "initial inference {size}"),
            Self::Latent(size, Inference::Recurrent, _) => write!(f, "recurrent inference {size}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::latent;
    use super::*;
    use crate::Turn;
    use crate::network::published;
    use crate::series::Limits;

    /// Returns a tower, and recurrent inference of a MuZero network.
    fn networks() -> [Workload; 2] {
        let size = NetworkSize { blocks: 1, channels: 32, height: 3, width: 3 };
        let weights = |architecture| published(architecture, 1).unwrap();
        [
            Workload::Tower(size, weights(size.architecture())),
            Workload::Latent(size, Inference::Recurrent, weights(latent::architecture(size))),
        ]
    }

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
    fn networks_are_also_measured_with_evaluators_in_parallel_and_by_the_kernel_in_float32_everywhere() {
        for network in networks() {
            let settings = settings(&network, vec![Device::Cpu]);
            let (libtorch, kernel): (Vec<String>, Vec<String>) =
                settings.into_iter().partition(|setting| setting.contains("libtorch"));
            assert_eq!(libtorch.len(), 6);
            assert!(libtorch.contains(&"cpu libtorch bf16, 2 evaluators".to_owned()), "{libtorch:?}");
            assert!(kernel.iter().any(|setting| setting.ends_with("f32, 1 thread")), "{kernel:?}");
            assert!(kernel.iter().any(|setting| setting.ends_with("f32, 2 evaluators")), "{kernel:?}");
        }
    }

    #[test]
    fn an_unsupported_device_is_reported_as_not_measured() {
        // No supported build of libtorch computes on this device.
        let means = Means { devices: vec![Device::Vulkan], threads: 2, seed: 1 };
        let limits = Limits { time: Duration::ZERO, call_time_max: Duration::from_secs(1) };
        let operations = [Operation::Product, Operation::Add].map(Workload::Operation);
        for workload in operations.into_iter().chain(networks()) {
            let mut all = workload.series(&means);
            assert_eq!(all.len(), 2);
            for series in &mut all {
                series.measure(1, limits);
                assert!(series.speeds(Turn::Median).not_measured.is_some(), "{workload}");
            }
        }
    }
}
