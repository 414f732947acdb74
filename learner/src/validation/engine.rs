//! Builds the evaluators with which validation evaluates published weights: the CPU kernel in float32, or libtorch on a
//! training accelerator and for networks that the kernel does not support.

use std::time::Instant;

use anyhow::Context as _;
#[cfg(feature = "torch")]
use inference::{Attributes, Batch, Predictions};
use inference::{Evaluator, PrecisionPreference, ReturnEvaluator};
use network_cpu::{Kernel, KernelPreference};
use weights::{Manifest, Model};

use crate::device::Device;

/// Builds evaluators for validation.
#[derive(Debug)]
pub(crate) struct Engine {
    kernel: Kernel,
    #[cfg(feature = "torch")]
    device: Device,
}

impl Engine {
    /// Creates an engine for the training device if other threads may use this device, otherwise for the CPU.
    pub(crate) fn new(device: Device) -> Self {
        #[cfg(not(feature = "torch"))]
        let Device::Cpu = device;
        let kernel = KernelPreference::Auto.kernel(PrecisionPreference::F32, &mut Instant::now);
        Self {
            kernel: kernel.expect("the kernel is the preference"),
            #[cfg(feature = "torch")]
            device: match network_torch::DeviceRules::of(device).submitting_threads {
                network_torch::SubmittingThreads::Many => device,
                network_torch::SubmittingThreads::One => Device::Cpu,
            },
        }
    }

    /// Builds the evaluator of a published version. For a MuZero network, the evaluator applies representation and
    /// prediction.
    ///
    /// # Errors
    /// The weights do not match the manifest, no available engine supports the network, or the device fails.
    pub(crate) fn evaluator(&self, manifest: &Manifest, bytes: &[u8]) -> anyhow::Result<Box<dyn Evaluator>> {
        #[cfg(feature = "torch")]
        if self.device != Device::Cpu {
            return on_libtorch(self.device, manifest, bytes);
        }
        match self.on_kernel(manifest, bytes) {
            #[cfg(feature = "torch")]
            Err(error) if error.is_of_the_kernel() => on_libtorch(Device::Cpu, manifest, bytes),
            evaluator => evaluator.context("build the evaluator"),
        }
    }

    fn on_kernel(&self, manifest: &Manifest, bytes: &[u8]) -> Result<Box<dyn Evaluator>, network_cpu::Error> {
        Ok(match manifest.architecture.model {
            Model::Alphazero => Box::new(self.kernel.evaluator(manifest, bytes)?),
            Model::AlphazeroReturns { .. } | Model::Muzero { .. } | Model::StochasticMuzero { .. } => {
                Box::new(ReturnEvaluator::new(Box::new(self.kernel.latent_evaluator(manifest, bytes)?)))
            }
        })
    }
}

/// An evaluator on the training device, which does not compute while the trainer records a graph.
#[cfg(feature = "torch")]
struct OnSharedDevice(Box<dyn Evaluator>);

#[cfg(feature = "torch")]
impl Evaluator for OnSharedDevice {
    fn attributes(&self) -> Attributes {
        self.0.attributes()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), inference::Error> {
        let _guard = network_torch::share_device();
        self.0.evaluate(batch, predictions)
    }
}

/// Builds a libtorch evaluator in float32.
#[cfg(feature = "torch")]
pub(super) fn on_libtorch(device: Device, manifest: &Manifest, bytes: &[u8]) -> anyhow::Result<Box<dyn Evaluator>> {
    use network_torch::{LibtorchEvaluator, LibtorchLatent, Precision};
    let Manifest { architecture, version, .. } = manifest;
    let _guard = network_torch::share_device();
    let evaluator: Box<dyn Evaluator> = match architecture.model {
        Model::Alphazero => Box::new(LibtorchEvaluator::new(architecture, *version, bytes, device, Precision::F32)?),
        Model::AlphazeroReturns { .. } | Model::Muzero { .. } | Model::StochasticMuzero { .. } => {
            let model = LibtorchLatent::new(architecture, *version, bytes, device, Precision::F32)?;
            Box::new(ReturnEvaluator::new(Box::new(model)))
        }
    };
    Ok(Box::new(OnSharedDevice(evaluator)))
}
