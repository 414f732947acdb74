use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use inference::BufferPool;
use tch::Device;
use weights::Manifest;

use crate::{
    Chosen, ChosenPrecision, DevicePreference, Error, LibtorchEvaluator, PrecisionPreference, choose_device,
    choose_precision, evaluator::BatchBuffers, set_threads,
};

/// Batches in flight on an accelerator before any measurement: one is computed, the next one waits there.
const IN_FLIGHT: usize = 2;

/// Hands evaluators to the threads of a process: the device is chosen at once, the precision for the first evaluator.
///
/// On the CPU every evaluator computes in the thread that calls it: threads of libtorch's own would wait for each
/// other. On an accelerator the evaluators of a version share its weights, and all share the slots for batches under
/// way.
#[derive(Debug)]
pub struct Libtorch {
    device: Chosen,
    slots: Arc<BatchBuffers>,
    /// On an accelerator, the version that was requested last: the other threads request the same one.
    newest: Mutex<Option<(Manifest, LibtorchEvaluator)>>,
    preference: PrecisionPreference,
    precision: OnceLock<ChosenPrecision>,
    clock: fn() -> Instant,
}

impl Libtorch {
    /// Chooses the device, as [`choose_device`]; `clock` times precisions when they are measured.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn new(
        device: DevicePreference,
        preference: PrecisionPreference,
        clock: fn() -> Instant,
    ) -> Result<Self, Error> {
        let device = choose_device(device)?;
        if device.device == Device::Cpu {
            set_threads(1);
        }
        let slots = Arc::new(BufferPool::new(IN_FLIGHT));
        Ok(Self { device, slots, newest: Mutex::default(), preference, precision: OnceLock::new(), clock })
    }

    /// Returns whether it found an accelerator.
    #[must_use]
    pub fn is_accelerated(&self) -> bool {
        self.device.device != Device::Cpu
    }

    /// Sets how many batches may be in flight on an accelerator; on the CPU it is always one for each thread.
    pub fn set_in_flight(&self, depth: usize) {
        self.slots.set_depth(depth);
    }

    /// The same; `None` on the CPU.
    #[must_use]
    pub fn in_flight(&self) -> Option<usize> {
        self.is_accelerated().then(|| self.slots.depth())
    }

    /// For people: device and precision, and why they were chosen, and on an accelerator how many batches may be in
    /// flight. Measures the precision if nothing has yet.
    #[must_use]
    pub fn describe(&self) -> String {
        let in_flight = self.in_flight().map_or(String::new(), |depth| format!(", {depth} in flight"));
        format!("libtorch on {}, {}{in_flight}", self.device, self.precision())
    }

    /// An evaluator of a published version for one thread.
    ///
    /// # Errors
    /// Weights that are not of the network their manifest names, or a device that refuses.
    pub fn evaluator(&self, manifest: &Manifest, bytes: &[u8]) -> Result<LibtorchEvaluator, Error> {
        if !self.is_accelerated() {
            return self.load(manifest, bytes, Arc::new(BufferPool::new(1)));
        }
        // Held while weights are brought to the device: other threads want the same ones meanwhile.
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, evaluator)) = newest.as_ref().filter(|(newest, _)| newest == manifest) {
            return Ok(evaluator.beside());
        }
        let evaluator = self.load(manifest, bytes, Arc::clone(&self.slots))?;
        *newest = Some((manifest.clone(), evaluator.beside()));
        Ok(evaluator)
    }

    fn load(&self, manifest: &Manifest, bytes: &[u8], slots: Arc<BatchBuffers>) -> Result<LibtorchEvaluator, Error> {
        let on = (self.device.device, self.precision().precision);
        LibtorchEvaluator::in_slots(&manifest.architecture, manifest.version, bytes, on, slots)
    }

    fn precision(&self) -> &ChosenPrecision {
        self.precision.get_or_init(|| choose_precision(self.preference, self.device.device, &mut || (self.clock)()))
    }
}
