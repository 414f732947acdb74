//! The engines that compute MuZero networks, and the models that they build.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use inference::LatentModel;
use network_cpu::{Kernel, KernelPreference};
use network_torch::{
    Device, DevicePreference, LibtorchLatent, Precision, PrecisionPreference, Purpose, choose_device, choose_precision,
};
use proto::weights::Published;

use super::host_latents::{HostLatents, OwnStates};
use super::single_calls::SingleCalls;

/// The engine that is named on the command line, and the use that is made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args, serde::Serialize)]
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
    /// Evaluations of one call of the engine.
    #[arg(long, value_enum, default_value_t)]
    pub calls: Calls,
    /// The place of latent states.
    #[arg(long, value_enum, default_value_t)]
    pub latents: Latents,
}

/// The place of the latent states of a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Latents {
    /// The pool of the engine, on its device.
    #[default]
    Pool,
    /// The memory of the host: each state is copied from the device when it is computed, and to it when a step begins
    /// in it.
    Host,
}

/// The evaluations of one call of the engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Calls {
    /// All that a round of the searches requests.
    #[default]
    Batched,
    /// One.
    Single,
}

/// The bytes of latent states that models have copied between device and host.
pub(super) type Traffic = Arc<AtomicU64>;

/// An engine, and the use that is made of it.
#[derive(Debug, Clone)]
pub(super) struct Engine {
    pub(super) computes: Computes,
    pub(super) calls: Calls,
    pub(super) latents: Latents,
}

/// The code that computes networks.
#[derive(Debug, Clone)]
pub(super) enum Computes {
    Kernel(Arc<Kernel>),
    Libtorch(Device, Precision),
}

impl Engine {
    /// Finds the engine of an option.
    ///
    /// # Errors
    /// A device or precision that cannot be used.
    pub(super) fn new(args: EngineArgs) -> anyhow::Result<Self> {
        let EngineArgs { device, precision, kernel, calls, latents } = args;
        let kernel = if device.is_accelerator() { KernelPreference::Libtorch } else { kernel };
        let computes = match kernel.kernel(precision, &mut Instant::now) {
            Some(kernel) => Computes::Kernel(Arc::new(kernel)),
            None => {
                let device = choose_device(device, Purpose::Inference)?.device;
                Computes::Libtorch(device, choose_precision(precision, device, &mut Instant::now)?.precision)
            }
        };
        Ok(Self { computes, calls, latents })
    }

    /// Builds the model of one thread, which adds the latent states that it copies to `traffic`.
    ///
    /// # Errors
    /// A network that the engine does not compute; a device that fails.
    pub(super) fn build(&self, weights: &Published, traffic: &Traffic) -> anyhow::Result<Box<dyn LatentModel>> {
        let Published { manifest, bytes } = weights;
        Ok(match &self.computes {
            Computes::Kernel(kernel) => self.used(kernel.latent_evaluator(manifest, bytes)?, traffic),
            &Computes::Libtorch(device, precision) => {
                let (architecture, version) = (&manifest.architecture, manifest.version);
                self.used(LibtorchLatent::new(architecture, version, bytes, device, precision)?, traffic)
            }
        })
    }

    /// Puts the naive parts around a model.
    fn used<M: OwnStates + 'static>(&self, model: M, traffic: &Traffic) -> Box<dyn LatentModel> {
        let on_host = |model| HostLatents::new(model, Arc::clone(traffic));
        match (self.latents, self.calls) {
            (Latents::Pool, Calls::Batched) => Box::new(model),
            (Latents::Pool, Calls::Single) => Box::new(SingleCalls::new(model)),
            (Latents::Host, Calls::Batched) => Box::new(on_host(model)),
            (Latents::Host, Calls::Single) => Box::new(SingleCalls::new(on_host(model))),
        }
    }
}

impl From<Computes> for Engine {
    fn from(computes: Computes) -> Self {
        Self { computes, calls: Calls::Batched, latents: Latents::Pool }
    }
}
