use std::sync::Arc;
use std::time::Instant;

use inference::Evaluator;
use network_cpu::{Error, KernelVariant, Tower, TowerEvaluator, choose_variant, fastest_first};
use network_torch::{Device, LibtorchEvaluator, Network, Precision};
use weights::{Architecture, WeightsVersion};

use super::series::Series;
use super::setting::{Setting, Split};
use super::work::{Evaluators, Work};
use super::workload::{Means, PRECISIONS};
use crate::kernel::NetworkSize;

/// A residual tower of random weights.
#[derive(Debug)]
pub(super) struct TowerNetwork {
    size: NetworkSize,
    architecture: Architecture,
    /// As it would be published.
    bytes: Vec<u8>,
    seed: u64,
}

impl TowerNetwork {
    /// The seed alone decides its weights.
    ///
    /// # Errors
    /// A size that no network has.
    pub(super) fn new(size: NetworkSize, seed: u64) -> anyhow::Result<Self> {
        let architecture = size.architecture();
        let bytes = Network::new(&architecture, Device::Cpu, seed)?.to_safetensors()?;
        Ok(Self { size, architecture, bytes, seed })
    }

    pub(super) fn size(&self) -> NetworkSize {
        self.size
    }

    /// libtorch, as self-play asks it.
    ///
    /// # Errors
    /// A device that refuses.
    pub(super) fn libtorch(&self, device: Device, precision: Precision, split: Split) -> anyhow::Result<Box<dyn Work>> {
        let Self { architecture, bytes, .. } = self;
        let evaluator = |_| LibtorchEvaluator::new(architecture, WeightsVersion(1), bytes, device, precision);
        Ok(self.work((0..split.evaluators).map(evaluator).collect::<Result<_, _>>()?, split.threads))
    }

    /// The CPU kernel on its fastest path, in each precision that it has here.
    pub(super) fn kernels(&self, means: &Means) -> Vec<Series> {
        let available = fastest_first(&mut Instant::now);
        let paths = |precision: Precision| -> Vec<KernelVariant> {
            available.iter().copied().filter(|path| path.is_bf16() == (precision == Precision::Bf16)).collect()
        };
        let present = PRECISIONS.map(|precision| (precision, paths(precision)));
        let present = present.into_iter().filter(|(_, paths)| !paths.is_empty());
        present.flat_map(|(precision, paths)| self.kernel(precision, &paths, means.threads)).collect()
    }

    /// The first of `paths` that works, on one thread and on each.
    fn kernel(&self, precision: Precision, paths: &[KernelVariant], threads: usize) -> Vec<Series> {
        let tower = self.packed(paths);
        // The kernel shares no operation out.
        let splits = Split::all(threads).into_iter().filter(|split| split.threads == 1);
        let series = |split: Split| match &tower {
            Ok(tower) => {
                let evaluator = |_| TowerEvaluator::new(Arc::clone(tower), WeightsVersion(1));
                let work = self.work((0..split.evaluators).map(evaluator).collect(), split.threads);
                Series::new(Setting::kernel(tower.path().name(), precision, split), Ok(work))
            }
            Err(error) => Series::new(Setting::kernel("kernel", precision, split), Err(anyhow::anyhow!("{error}"))),
        };
        splits.map(series).collect()
    }

    fn packed(&self, paths: &[KernelVariant]) -> Result<Arc<Tower>, Error> {
        let chosen = choose_variant(&self.architecture, paths)?;
        Ok(Arc::new(Tower::new(&self.architecture, &self.bytes, chosen.path)?))
    }

    fn work<E: Evaluator + 'static>(&self, evaluators: Vec<E>, threads: usize) -> Box<dyn Work> {
        Box::new(Evaluators { evaluators, architecture: self.architecture.clone(), threads, seed: self.seed })
    }
}
