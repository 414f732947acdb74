use std::sync::OnceLock;
use std::time::Instant;

use tch::Device;
use weights::Manifest;

use crate::{
    Chosen, ChosenPrecision, DevicePreference, Error, LibtorchEvaluator, PrecisionPreference, choose_device,
    choose_precision, set_threads,
};

/// Hands evaluators to the threads of a process: the device is chosen at once, the precision when the first evaluator is
/// asked for.
///
/// On the CPU every evaluator computes in the thread that asks it: threads of libtorch's own would wait for each other.
#[derive(Debug)]
pub struct Libtorch {
    device: Chosen,
    preference: PrecisionPreference,
    precision: OnceLock<ChosenPrecision>,
    clock: fn() -> Instant,
}

impl Libtorch {
    /// Chooses the device, as [`choose_device`]; `clock` is asked when precisions are measured.
    #[must_use]
    pub fn new(device: DevicePreference, preference: PrecisionPreference, clock: fn() -> Instant) -> Self {
        let device = choose_device(device);
        if device.device == Device::Cpu {
            set_threads(1);
        }
        Self { device, preference, precision: OnceLock::new(), clock }
    }

    /// Whether it found an accelerator.
    #[must_use]
    pub fn is_accelerated(&self) -> bool {
        self.device.device != Device::Cpu
    }

    /// For people: device and precision, and why they were chosen. Measures the precision if nothing has yet.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("libtorch on {}, {}", self.device, self.precision())
    }

    /// An evaluator of a published version for one thread.
    ///
    /// # Errors
    /// Weights that are not of the network their manifest names, or a device that refuses.
    pub fn evaluator(&self, manifest: &Manifest, bytes: &[u8]) -> Result<LibtorchEvaluator, Error> {
        let precision = self.precision().precision;
        LibtorchEvaluator::new(&manifest.architecture, manifest.version, bytes, self.device.device, precision)
    }

    fn precision(&self) -> &ChosenPrecision {
        self.precision.get_or_init(|| choose_precision(self.preference, self.device.device, &mut || (self.clock)()))
    }
}
