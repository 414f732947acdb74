//! The engines that compute MuZero networks, and the models that they build.

use std::sync::Arc;
use std::time::Instant;

use inference::LatentModel;
use network_cpu::{Kernel, KernelPreference};
use network_torch::{Device, LibtorchLatent, Precision, Purpose, choose_device, choose_precision};
use proto::weights::Published;

use super::workload::Workload;

/// The code that computes networks.
#[derive(Debug, Clone)]
pub(super) enum Engine {
    Kernel(Arc<Kernel>),
    Libtorch(Device, Precision),
}

impl Engine {
    /// Finds the engine for evaluations.
    ///
    /// # Errors
    /// A device or precision cannot be used.
    pub(super) fn new(workload: &Workload) -> anyhow::Result<Self> {
        let &Workload { device, precision, kernel, .. } = workload;
        let kernel = if device.is_accelerator() { KernelPreference::Libtorch } else { kernel };
        Ok(match kernel.kernel(precision, &mut Instant::now) {
            Some(kernel) => Self::Kernel(Arc::new(kernel)),
            None => {
                let device = choose_device(device, Purpose::Inference)?.device;
                Self::Libtorch(device, choose_precision(precision, device, &mut Instant::now)?.precision)
            }
        })
    }

    /// Builds the model of one thread.
    ///
    /// # Errors
    /// The engine does not support the network, or a device fails.
    pub(super) fn build(&self, weights: &Published) -> anyhow::Result<Box<dyn LatentModel>> {
        let Published { manifest, bytes } = weights;
        Ok(match self {
            Self::Kernel(kernel) => Box::new(kernel.latent_evaluator(manifest, bytes)?),
            &Self::Libtorch(device, precision) => {
                let (architecture, version) = (&manifest.architecture, manifest.version);
                Box::new(LibtorchLatent::new(architecture, version, bytes, device, precision)?)
            }
        })
    }
}
