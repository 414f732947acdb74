use std::fmt;

use network_torch::{DenseNetwork, Device, Precision, VectorOperation};

use super::dense_size::DenseSize;
use super::series::Series;
use super::setting::{Setting, Split};
use super::speeds::Kind;
use super::tower_network::TowerNetwork;
use super::work::{DenseNetworks, Operations, Products, Work};

/// A computation that is measured.
#[derive(Debug)]
pub(super) enum Workload {
    /// Square matrices.
    Product,
    /// Vectors.
    Vector(VectorOperation),
    /// The residual tower of AlphaZero.
    Tower(TowerNetwork),
    /// A dense network as MuZero has them.
    Dense(DenseSize),
}

/// The devices and threads that are measured.
#[derive(Debug, Clone)]
pub(super) struct Means {
    /// The CPU first.
    pub(super) devices: Vec<Device>,
    /// Of the CPU, where more than one is to be used.
    pub(super) threads: usize,
    /// Every random number descends from it.
    pub(super) seed: u64,
}

/// The precisions of libtorch.
pub(super) const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::Bf16];

impl Workload {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Product => Kind::MatrixProduct,
            Self::Vector(_) => Kind::VectorOperation,
            Self::Tower(_) | Self::Dense(_) => Kind::Network,
        }
    }

    /// Every setting that computes it, ready or with the reason why not.
    pub(super) fn series(&self, means: &Means) -> Vec<Series> {
        let libtorch = |device, precision, split| {
            let work = self.libtorch(device, precision, split, means.seed);
            Series::new(Setting::libtorch(device, precision, split), work)
        };
        let mut all = Vec::new();
        for &device in &means.devices {
            let splits = self.splits(device, means.threads);
            for precision in PRECISIONS {
                all.extend(splits.iter().map(|&split| libtorch(device, precision, split)));
            }
            if let (Self::Tower(tower), Device::Cpu) = (self, device) {
                all.extend(tower.kernels(means));
            }
        }
        all
    }

    /// Only networks are asked side by side, and only on a CPU.
    fn splits(&self, device: Device, threads: usize) -> Vec<Split> {
        let mut splits = if device == Device::Cpu { Split::all(threads) } else { vec![Split::SINGLE] };
        splits.retain(|split| split.evaluators == 1 || self.kind() == Kind::Network);
        splits
    }

    fn libtorch(&self, device: Device, precision: Precision, split: Split, seed: u64) -> anyhow::Result<Box<dyn Work>> {
        let Split { evaluators, threads } = split;
        Ok(match *self {
            Self::Product => Box::new(Products { device, precision, threads, seed }),
            Self::Vector(operation) => Box::new(Operations { operation, device, precision, threads, seed }),
            Self::Tower(ref tower) => tower.libtorch(device, precision, split)?,
            Self::Dense(DenseSize(shape)) => {
                let network = |_| DenseNetwork::new(shape, device, precision, seed);
                let networks = (0..evaluators).map(network).collect::<Result<_, _>>()?;
                Box::new(DenseNetworks { networks, shape, threads, seed })
            }
        })
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Product => f.write_str("matrix product"),
            Self::Vector(operation) => write!(f, "vector {operation}"),
            Self::Tower(tower) => write!(f, "tower {}", tower.size()),
            Self::Dense(size) => write!(f, "dense {size}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::series::Limits;
    use super::*;
    use crate::Turn;
    use crate::kernel::NetworkSize;

    fn settings(workload: &Workload, devices: Vec<Device>) -> Vec<String> {
        let means = Means { devices, threads: 2, seed: 1 };
        let reports = workload.series(&means).into_iter().map(|series| series.report(Turn::Median));
        reports.map(|report| report.setting.to_string()).collect()
    }

    #[test]
    fn what_is_no_network_is_computed_by_one_at_a_time() {
        for workload in [Workload::Product, Workload::Vector(VectorOperation::Sum)] {
            let expected = ["f32", "bf16"]
                .map(|precision| ["1 thread", "2 threads"].map(|cores| format!("cpu libtorch {precision}, {cores}")));
            assert_eq!(settings(&workload, vec![Device::Cpu]), expected.concat());
        }
    }

    #[test]
    fn networks_are_asked_side_by_side_too() {
        let dense = Workload::Dense("4x8x2".parse().unwrap());
        let settings = settings(&dense, vec![Device::Cpu]);
        assert_eq!(settings.len(), 6);
        assert!(settings.contains(&"cpu libtorch bf16, 2 evaluators".to_owned()), "{settings:?}");
    }

    #[test]
    fn towers_are_computed_by_the_kernel_too_in_float32_everywhere() {
        let size: NetworkSize = "1x16@3x3".parse().unwrap();
        let tower = Workload::Tower(TowerNetwork::new(size, 1).unwrap());
        let settings = settings(&tower, vec![Device::Cpu]);
        let kernel: Vec<&String> = settings.iter().filter(|setting| !setting.contains("libtorch")).collect();
        assert!(kernel.iter().any(|setting| setting.ends_with("f32, 1 thread")), "{settings:?}");
        assert!(kernel.iter().any(|setting| setting.ends_with("f32, 2 evaluators")), "{settings:?}");
    }

    #[test]
    fn a_device_that_refuses_is_a_reason_and_no_crash() {
        // No libtorch that this is built with computes there.
        let means = Means { devices: vec![Device::Vulkan], threads: 2, seed: 1 };
        let limits = Limits { time: Duration::ZERO, call_time_max: Duration::from_secs(1) };
        let tower = TowerNetwork::new("1x16@3x3".parse().unwrap(), 1).unwrap();
        let dense = Workload::Dense("4x8x2".parse().unwrap());
        for workload in [Workload::Product, Workload::Vector(VectorOperation::Add), Workload::Tower(tower), dense] {
            let mut all = workload.series(&means);
            assert_eq!(all.len(), 2);
            for series in &mut all {
                series.measure(1, limits);
                assert!(series.report(Turn::Median).not_measured.is_some(), "{workload}");
            }
        }
    }
}
