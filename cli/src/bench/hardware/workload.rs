use std::fmt;

use network::{DenseNetwork, Device, Precision, VectorOperation};

use super::dense_size::DenseSize;
use super::report::Kind;
use super::series::Series;
use super::setting::{Setting, Split};
use super::tower_network::TowerNetwork;
use super::work::{DenseNetworks, Operations, Products, Work};

/// What is computed.
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

/// What everything is computed with.
#[derive(Debug, Clone)]
pub(super) struct Means {
    /// The CPU first.
    pub(super) devices: Vec<Device>,
    /// Of the CPU, where more than one is to be used.
    pub(super) threads: usize,
    /// Every random number descends from it.
    pub(super) seed: u64,
}

/// What libtorch computes networks in.
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
mod tests;
