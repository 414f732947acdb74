//! What turns published weights into evaluators.

use std::sync::Arc;

use inference::Evaluator;
use proto::weights::Published;
use service::ConfigError;

/// Builds an evaluator from a weights version, once per thread and version.
pub trait Backend: Send + Sync {
    /// For people: device and precision, and why they were chosen.
    fn describe(&self) -> String;

    /// The evaluator of one thread.
    ///
    /// # Errors
    /// Weights that are not of the network their manifest names, or a device that refuses.
    fn build(&self, published: &Published) -> anyhow::Result<Box<dyn Evaluator>>;
}

/// The backend a configuration asks for.
#[cfg(feature = "torch")]
pub(crate) fn of_device(device: &str, precision: &str) -> Result<Arc<dyn Backend>, ConfigError> {
    let device = device.parse().map_err(|reason: String| ConfigError::invalid("actor.device", reason))?;
    let precision = precision.parse().map_err(|reason: String| ConfigError::invalid("actor.precision", reason))?;
    Ok(Arc::new(torch::Torch::choose(device, precision)))
}

/// The backend a configuration asks for.
#[cfg(not(feature = "torch"))]
pub(crate) fn of_device(device: &str, _precision: &str) -> Result<Arc<dyn Backend>, ConfigError> {
    let reason = format!("`{device}` cannot be had: this actor was built without the feature `torch`");
    Err(ConfigError::invalid("actor.device", reason))
}

#[cfg(feature = "torch")]
mod torch {
    use std::time::Instant;

    use inference::Evaluator;
    use network::{Chosen, ChosenPrecision, Device, DevicePreference, LibtorchEvaluator, PrecisionPreference};
    use proto::weights::Published;

    /// libtorch in this process: one evaluator per thread, one thread per operation on the CPU.
    pub(super) struct Torch {
        device: Chosen,
        precision: ChosenPrecision,
    }

    impl Torch {
        pub(super) fn choose(device: DevicePreference, precision: PrecisionPreference) -> Self {
            let device = network::choose_device(device);
            if device.device == Device::Cpu {
                network::set_threads(1);
            }
            let precision = network::choose_precision(precision, device.device, &mut Instant::now);
            Self { device, precision }
        }
    }

    impl super::Backend for Torch {
        fn describe(&self) -> String {
            format!("libtorch on {}, {}", self.device, self.precision)
        }

        fn build(&self, published: &Published) -> anyhow::Result<Box<dyn Evaluator>> {
            let manifest = &published.manifest;
            let (device, precision) = (self.device.device, self.precision.precision);
            let evaluator =
                LibtorchEvaluator::new(&manifest.architecture, manifest.version, &published.bytes, device, precision)?;
            Ok(Box::new(evaluator))
        }
    }
}
