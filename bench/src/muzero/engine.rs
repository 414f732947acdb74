//! The engines that compute MuZero networks, and models built by them.

use std::sync::Arc;
use std::time::Instant;

use inference::LatentModel;
use network_cpu::{Kernel, KernelPreference, LatentEvaluator};
use network_torch::{
    Device, DevicePreference, LibtorchLatent, Network, Precision, PrecisionPreference, Purpose, choose_device,
    choose_precision, device_name,
};
use proto::weights::Published;
use weights::{Architecture, Digest, Manifest, WeightsVersion};

use super::host_latents::{HostLatents, OwnStates};
use super::single_calls::SingleCalls;
use super::traffic::Traffic;

/// The engine that is named on the command line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args)]
pub struct EngineArgs {
    /// The device of evaluations: `cpu`, `cuda`, `cuda:1` or `mps`.
    #[arg(long, default_value = "cpu")]
    pub device: DevicePreference,
    /// The precision of evaluations: `auto`, `f32` or `bf16`.
    #[arg(long, default_value = "auto")]
    pub precision: PrecisionPreference,
    /// The engine on a CPU: `auto` for the fastest path of the CPU kernel, `libtorch`, or a path such as `avx512-bf16`.
    #[arg(long, default_value = "auto")]
    pub kernel: KernelPreference,
}

/// An engine.
#[derive(Debug, Clone)]
pub(super) enum Engine {
    Kernel(Arc<Kernel>),
    Libtorch { device: Device, precision: Precision },
}

/// The place of the latent states of a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Latents {
    /// The pool of the engine, on its device.
    #[default]
    Pool,
    /// The memory of the host: each state is copied from the device when it is computed, and to it when a step begins
    /// in it.
    Host,
}

/// The evaluations of one call of the engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Calls {
    /// All that a round of the searches requests.
    #[default]
    Batched,
    /// One.
    Single,
}

impl Engine {
    /// Finds the engine of an option.
    ///
    /// # Errors
    /// A device or precision that cannot be used.
    pub(super) fn new(args: EngineArgs) -> anyhow::Result<Self> {
        let EngineArgs { device, precision, kernel } = args;
        let kernel = if device.is_accelerator() { KernelPreference::Libtorch } else { kernel };
        if let Some(kernel) = kernel.kernel(precision, &mut Instant::now) {
            return Ok(Self::Kernel(Arc::new(kernel)));
        }
        let device = choose_device(device, Purpose::Inference)?.device;
        let precision = choose_precision(precision, device, &mut Instant::now)?.precision;
        Ok(Self::Libtorch { device, precision })
    }

    /// Builds the model of one thread, which counts the latent states that it copies in `traffic`.
    ///
    /// # Errors
    /// A network that the engine does not compute; a device that fails.
    pub(super) fn build(
        &self,
        published: &Published,
        latents: Latents,
        calls: Calls,
        traffic: &Arc<Traffic>,
    ) -> anyhow::Result<Box<dyn LatentModel>> {
        match self {
            Self::Kernel(_) => Ok(arranged(self.kernel(published)?, latents, calls, traffic)),
            Self::Libtorch { .. } => Ok(arranged(self.libtorch(published)?, latents, calls, traffic)),
        }
    }

    fn kernel(&self, published: &Published) -> anyhow::Result<LatentEvaluator> {
        let Self::Kernel(kernel) = self else { unreachable!("only asked of the kernel") };
        Ok(kernel.latent_evaluator(&published.manifest, &published.bytes)?)
    }

    fn libtorch(&self, published: &Published) -> anyhow::Result<LibtorchLatent> {
        let &Self::Libtorch { device, precision } = self else { unreachable!("only asked of libtorch") };
        let Published { manifest: Manifest { architecture, version, .. }, bytes } = published;
        Ok(LibtorchLatent::new(architecture, *version, bytes, device, precision)?)
    }

    /// The name, which for the kernel depends on the network.
    ///
    /// # Errors
    /// A network that the engine does not compute.
    pub(super) fn name(&self, published: &Published) -> anyhow::Result<String> {
        Ok(match self {
            Self::Kernel(_) => format!("cpu {}", self.kernel(published)?.network().path()),
            Self::Libtorch { device, precision } => format!("libtorch {} {precision}", device_name(*device)),
        })
    }
}

/// Puts the parts of a naive model around one.
fn arranged<M: OwnStates + 'static>(
    model: M,
    latents: Latents,
    calls: Calls,
    traffic: &Arc<Traffic>,
) -> Box<dyn LatentModel> {
    match (latents, calls) {
        (Latents::Pool, Calls::Batched) => Box::new(model),
        (Latents::Pool, Calls::Single) => Box::new(SingleCalls::new(model)),
        (Latents::Host, Calls::Batched) => Box::new(HostLatents::new(model, Arc::clone(traffic))),
        (Latents::Host, Calls::Single) => Box::new(SingleCalls::new(HostLatents::new(model, Arc::clone(traffic)))),
    }
}

/// Returns the weights of a new network, as the first published version; they depend on the seed alone.
///
/// # Errors
/// An invalid size of a network.
pub(super) fn first_weights(architecture: Architecture, seed: u64) -> anyhow::Result<Published> {
    let bytes = Network::new(&architecture, Device::Cpu, seed)?.to_safetensors()?;
    Ok(published(architecture, bytes, WeightsVersion(1)))
}

/// Returns weights as a published version.
pub(super) fn published(architecture: Architecture, bytes: Vec<u8>, version: WeightsVersion) -> Published {
    let (digest, size_bytes) = (Digest::of(&bytes), bytes.len() as u64);
    let manifest = Manifest { version, training_step: 0, digest, size_bytes, architecture };
    Published { manifest, bytes: bytes.into() }
}
