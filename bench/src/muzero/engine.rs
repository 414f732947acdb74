//! The engines that compute MuZero networks, and the models that they build.

use std::sync::Arc;
use std::time::Instant;

use inference::LatentModel;
use network_cpu::{Kernel, KernelPreference};
use network_torch::{
    Device, DevicePreference, LibtorchLatent, Precision, PrecisionPreference, Purpose, choose_device, choose_precision,
};
use proto::weights::Published;

/// Options that select the engine for evaluations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args, serde::Serialize)]
pub struct EngineArgs {
    /// Device for evaluations: `cpu`, `cuda`, `cuda:1` or `mps`.
    #[arg(long, default_value = "cpu")]
    pub device: DevicePreference,
    /// Precision of evaluations: `auto`, `f32` or `bf16`.
    #[arg(long, default_value = "auto")]
    pub precision: PrecisionPreference,
    /// CPU engine: `auto`, `libtorch`, or a kernel path like `avx512-bf16`.
    ///
    /// `auto` selects the fastest path of the CPU kernel.
    #[arg(long, default_value = "auto")]
    pub kernel: KernelPreference,
}

/// libtorch on a CPU, the baseline of other engines.
pub(super) const LIBTORCH: EngineArgs = EngineArgs {
    device: DevicePreference::Cpu,
    precision: PrecisionPreference::F32,
    kernel: KernelPreference::Libtorch,
};

/// The code that computes networks.
#[derive(Debug, Clone)]
pub(super) enum Engine {
    Kernel(Arc<Kernel>),
    Libtorch(Device, Precision),
}

impl Engine {
    /// Finds the engine for the options.
    ///
    /// # Errors
    /// A device or precision cannot be used.
    pub(super) fn new(args: EngineArgs) -> anyhow::Result<Self> {
        let EngineArgs { device, precision, kernel } = args;
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
