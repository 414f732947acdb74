use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use game::{ObservationShape, Outcome};
use inference::{Attributes, Batch, BufferPool, Evaluator, InFlightBatch, PipelinedEvaluator, Predictions};
use tch::{Device, Kind, Tensor};
use weights::{Architecture, Manifest, WeightsVersion};

use crate::{
    Chosen, ChosenPrecision, DevicePreference, Error, Network, Precision, PrecisionPreference, Purpose, choose_device,
    choose_precision, folded::Folded, fusing, layout, process, rules::device_name,
};

/// Positions run through the network at once; a larger batch is split. Larger chunks gain nothing on a CPU, where the
/// tower's activations should stay in the cache, and little elsewhere.
const CHUNK: usize = 256;
/// [`CHUNK`] on an accelerator.
const CHUNK_ACCELERATED: usize = 4096;
/// The most positions of a batch; more are a bug of the caller's configuration.
const MAX_BATCH: usize = 16_384;

/// A set of weights that libtorch evaluates: batch norms folded, channels last, no gradients.
///
/// Belongs to one thread at a time. On the CPU a second thread builds its own from the same bytes, and computes in that
/// thread; on an accelerator it uses one made by [`beside`](Self::beside), and batches of both are in flight at once.
#[derive(Debug)]
pub struct LibtorchEvaluator(PipelinedEvaluator<Loaded>);

/// The slots for batches in flight on a device.
pub(crate) type BatchBuffers = BufferPool<LibtorchFlight>;

impl LibtorchEvaluator {
    /// Builds the network of `architecture` from the bytes of a published version.
    ///
    /// # Errors
    /// Fails if the bytes are not exactly those of such a network; the error names the tensor.
    pub fn new(
        architecture: &Architecture,
        version: WeightsVersion,
        bytes: &[u8],
        device: Device,
        precision: Precision,
    ) -> Result<Self, Error> {
        Self::in_slots(architecture, version, bytes, (device, precision), Arc::new(BufferPool::new(1)))
    }

    /// Builds the network as [`new`](Self::new) does, with slots that are shared by the weights on one device.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub(crate) fn in_slots(
        architecture: &Architecture,
        version: WeightsVersion,
        bytes: &[u8],
        (device, precision): (Device, Precision),
        slots: Arc<BatchBuffers>,
    ) -> Result<Self, Error> {
        process::apply();
        let network = Network::from_safetensors(architecture, bytes, device)?;
        Ok(Self(PipelinedEvaluator::new(Loaded::new(&network, version, precision)?, slots)))
    }

    /// Copies `network` as it is now.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device fails.
    pub fn from_network(network: &Network, version: WeightsVersion, precision: Precision) -> Result<Self, Error> {
        Ok(Self(PipelinedEvaluator::new(Loaded::new(network, version, precision)?, Arc::new(BufferPool::new(1)))))
    }

    /// Creates an evaluator for another thread, which shares the weights on the device and the slots.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self(self.0.beside())
    }
}

impl Evaluator for LibtorchEvaluator {
    fn attributes(&self) -> Attributes {
        self.0.attributes()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), inference::Error> {
        self.0.evaluate(batch, predictions)
    }
}

/// Weights on a device.
#[derive(Debug)]
struct Loaded {
    folded: Folded,
    architecture: Architecture,
    device: Device,
    attributes: Attributes,
    chunk: usize,
}

impl Loaded {
    fn new(network: &Network, version: WeightsVersion, precision: Precision) -> Result<Self, Error> {
        let device = network.device();
        let chunk = if device == Device::Cpu { CHUNK } else { CHUNK_ACCELERATED };
        Ok(Self {
            folded: Folded::new(network, precision)?,
            architecture: network.architecture().clone(),
            device,
            attributes: Attributes {
                name: format!("libtorch {} {precision}", device_name(device)).into(),
                weights_version: version.0,
                preferred_batch: chunk,
                max_batch: MAX_BATCH,
            },
            chunk,
        })
    }

    /// Computes the batch, or only queues it if there is an accelerator.
    fn forward(&self, flight: &mut LibtorchFlight) -> Result<(), Error> {
        let _guard = tch::no_grad_guard();
        let Architecture { planes, height, width, actions, .. } = self.architecture;
        let observations = flight.observations.tensor(flight.padded * planes * height * width)?;
        let logits = self.folded.forward(&observations, flight.padded)?;
        flight.answer = Some(Answer { logits, actions, weights_version: self.attributes.weights_version });
        Ok(())
    }
}

impl inference::Device for Loaded {
    type InFlightBatch = LibtorchFlight;

    fn attributes(&self) -> Attributes {
        self.attributes.clone()
    }

    fn takes(&self) -> (ObservationShape, usize) {
        let &Architecture { planes, height, width, actions, .. } = &self.architecture;
        (ObservationShape { planes, height, width }, actions)
    }

    fn chunk(&self) -> usize {
        self.chunk
    }

    fn flight(&self) -> LibtorchFlight {
        LibtorchFlight::new(self.device)
    }

    fn submit(&mut self, flight: &mut LibtorchFlight) -> Result<(), inference::Error> {
        process::apply();
        self.forward(flight).map_err(failed)
    }
}

/// A batch in flight through libtorch, in its own memory.
#[derive(Debug)]
pub(crate) struct LibtorchFlight {
    /// `[B, H, W, C]`, the order that the convolutions use, B padded.
    observations: Staging,
    padded: usize,
    answer: Option<Answer>,
    /// `[B, A + 3]`.
    logits: Staging,
}

/// An answer whose computation may still be running until it is read.
#[derive(Debug)]
struct Answer {
    /// `[B, A + 3]`, float32, on the device: policy and value together, so that one copy transfers both.
    logits: Tensor,
    actions: usize,
    weights_version: u64,
}

impl LibtorchFlight {
    fn new(device: Device) -> Self {
        Self { observations: Staging::new(device), padded: 0, answer: None, logits: Staging::new(device) }
    }

    fn write(&mut self, batch: &Batch, positions: Range<usize>) -> Result<(), Error> {
        let ObservationShape { planes, height, width } = batch.shape();
        let len = planes * height * width;
        self.padded = padded(positions.len());
        let staged = self.observations.numbers(self.padded * len)?;
        let (staged, padding) = staged.split_at_mut(positions.len() * len);
        let observations = &batch.observations()[positions.start * len..positions.end * len];
        layout::channels_last(observations, planes, height * width, staged);
        padding.fill(0.0);
        Ok(())
    }

    /// Waits for the logits.
    fn read(&mut self, Answer { logits, actions, .. }: &Answer) -> Result<&[f32], Error> {
        let _guard = tch::no_grad_guard();
        let numbers = self.padded * (actions + Outcome::RESULTS);
        // The copy is queued behind the batch and ends with it. Nothing else is waited for.
        self.logits.tensor(numbers)?.f_copy_(&logits.f_reshape([-1])?)?;
        Ok(self.logits.numbers(numbers)?)
    }
}

impl InFlightBatch for LibtorchFlight {
    fn stage(&mut self, batch: &Batch, positions: Range<usize>) -> Result<(), inference::Error> {
        self.write(batch, positions).map_err(failed)
    }

    fn collect(
        &mut self,
        batch: &Batch,
        positions: Range<usize>,
        predictions: &mut Predictions,
    ) -> Result<(), inference::Error> {
        let answer = self.answer.take().expect("what is collected was submitted");
        let logits = self.read(&answer).map_err(failed)?;
        let Answer { actions, weights_version, .. } = answer;
        for (i, row) in positions.zip(logits.chunks_exact(actions + Outcome::RESULTS)) {
            let (policy, wdl) = row.split_at(actions);
            if !predictions.push_logits(policy, batch.legal(i), [wdl[0], wdl[1], wdl[2]]) {
                return Err(inference::Error::NotFinite { weights_version });
            }
        }
        Ok(())
    }
}

fn failed(error: Error) -> inference::Error {
    inference::Error::Backend(error.to_string())
}

/// Returns the batch size to run for `positions`. The kernels need a set-up for every size, which they cache for a
/// limited number of sizes; eight sizes per octave bound that number and waste at most an eighth.
fn padded(positions: usize) -> usize {
    let granularity = (positions.next_power_of_two() / 16).max(1);
    positions.next_multiple_of(granularity)
}

/// A buffer on the CPU for copies to or from a device. It is kept from batch to batch, and pinned where that allows a
/// copy while a batch is computed.
#[derive(Debug)]
pub(crate) struct Staging {
    device: Device,
    /// `[capacity]`, float32, contiguous, on the CPU.
    tensor: Option<Tensor>,
    capacity: usize,
}

impl Staging {
    /// Creates a buffer for copies to or from `device`; nothing is allocated yet.
    pub(crate) fn new(device: Device) -> Self {
        Self { device, tensor: None, capacity: 0 }
    }

    /// The first `len` numbers as a tensor `[len]` in the same memory.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if memory cannot be allocated.
    pub(crate) fn tensor(&mut self, len: usize) -> Result<Tensor, Error> {
        let tensor = match self.tensor.take() {
            Some(tensor) if self.capacity >= len => tensor,
            _ => {
                // Batches differ by a little from call to call.
                self.capacity = len.next_power_of_two();
                allocate(self.capacity, self.device)?
            }
        };
        Ok(self.tensor.insert(tensor).f_narrow(0, 0, i64::try_from(len).expect("a batch fits memory"))?)
    }

    /// The first `len` numbers, for writing. Tensors in the same memory must not be in use meanwhile.
    ///
    /// # Errors
    /// Same as [`tensor`](Self::tensor).
    pub(crate) fn numbers(&mut self, len: usize) -> Result<&mut [f32], Error> {
        let tensor = self.tensor(len)?;
        // SAFETY: the tensor is float32, contiguous, on the CPU and at least `len` long; `self.tensor` keeps its memory
        // for as long as `self` is borrowed. Nothing else accesses it: other tensors of this memory live only while a
        // batch is submitted and collected, which also borrows `self` mutably, and a device that copies from it has
        // finished once the answers of that batch were read; a flight whose batch failed is never staged again.
        Ok(unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast::<f32>(), len) })
    }
}

fn allocate(capacity: usize, device: Device) -> Result<Tensor, Error> {
    let size = i64::try_from(capacity).expect("a batch fits memory");
    let plain = Tensor::f_zeros([size], (Kind::Float, Device::Cpu))?;
    if !device.is_cuda() {
        return Ok(plain);
    }
    // Where the system cannot pin memory, copies are slower but equally correct.
    Ok(plain.f_pin_memory(device).unwrap_or(plain))
}

/// Batches in flight on an accelerator before any measurement: one is computed, the next one is queued.
const IN_FLIGHT: usize = 2;

/// Builds evaluators for the threads of a process: the device is chosen at once, the precision when the first evaluator
/// is built.
///
/// On the CPU every evaluator computes in the thread that calls it: threads of libtorch's own would wait for each
/// other. On an accelerator the evaluators of a version share its weights, and all share the slots for batches in
/// flight.
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
    /// [`Error::Device`] for a named device that cannot be used.
    pub fn new(
        device: DevicePreference,
        preference: PrecisionPreference,
        clock: fn() -> Instant,
    ) -> Result<Self, Error> {
        let device = choose_device(device, Purpose::Inference)?;
        if device.device == Device::Cpu {
            process::set_threads(1);
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

    /// Returns how many batches may be in flight on an accelerator; `None` on the CPU.
    #[must_use]
    pub fn in_flight(&self) -> Option<usize> {
        self.is_accelerated().then(|| self.slots.depth())
    }

    /// Returns a human-readable description: device and precision, the reasons for their choice, and on an accelerator
    /// how many batches may be in flight and, once weights are loaded, how convolutions are computed. Measures the
    /// precision if that has not been done yet.
    #[must_use]
    pub fn describe(&self) -> String {
        let precision = self.precision().map_or_else(|error| error.to_string(), ToString::to_string);
        let in_flight = self.in_flight().map_or(String::new(), |depth| format!(", {depth} in flight"));
        let fusing = fusing::description(self.device.device).map_or(String::new(), |fusing| format!(", {fusing}"));
        format!("libtorch on {}, {precision}{in_flight}{fusing}", self.device)
    }

    /// Builds an evaluator of a published version for one thread.
    ///
    /// # Errors
    /// Fails if the weights are not of the network that their manifest names, or if the device fails.
    pub fn evaluator(&self, manifest: &Manifest, bytes: &[u8]) -> Result<LibtorchEvaluator, Error> {
        if !self.is_accelerated() {
            return self.load(manifest, bytes, Arc::new(BufferPool::new(1)));
        }
        // The lock is held while weights are copied to the device: other threads need the same ones.
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, evaluator)) = newest.as_ref().filter(|(newest, _)| newest == manifest) {
            return Ok(evaluator.beside());
        }
        let evaluator = self.load(manifest, bytes, Arc::clone(&self.slots))?;
        *newest = Some((manifest.clone(), evaluator.beside()));
        Ok(evaluator)
    }

    fn load(&self, manifest: &Manifest, bytes: &[u8], slots: Arc<BatchBuffers>) -> Result<LibtorchEvaluator, Error> {
        let on = (self.device.device, self.precision()?.precision);
        LibtorchEvaluator::in_slots(&manifest.architecture, manifest.version, bytes, on, slots)
    }

    fn precision(&self) -> Result<&ChosenPrecision, Error> {
        if let Some(precision) = self.precision.get() {
            return Ok(precision);
        }
        let (device, purpose) = (self.device.device, Purpose::Inference);
        let precision = choose_precision(self.preference, device, purpose, &mut || (self.clock)())?;
        Ok(self.precision.get_or_init(|| precision))
    }
}

#[cfg(test)]
mod tests;
