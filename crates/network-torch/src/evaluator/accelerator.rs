use std::rc::Rc;

use inference::DeviceError;
use tch::{Device, Kind, Tensor};
use weights::Architecture;

use super::{Guarded, Staging};
use crate::{DeviceRules, Error, gpu::Completion, process};

/// An accelerator for an engine. One thread calls all methods.
#[derive(Debug)]
pub(super) struct Accelerator {
    device: Device,
    /// Slots of batches that are not in flight.
    idle: Vec<Slot>,
    /// `[B, A + 3]` of the last awaited batch.
    logits: Vec<f32>,
}

/// Host memory of one batch.
#[derive(Debug)]
struct Slot {
    /// `[B, H, W, C]`.
    observations: Staging,
    /// On CUDA, the point after the copy of the logits.
    completion: Option<Completion>,
}

/// A batch in flight.
#[derive(Debug)]
pub(super) struct InFlight {
    weights: Rc<Guarded>,
    /// B.
    size: usize,
    slot: Slot,
    /// `[B · H · W · C]`, in the memory of the slot.
    observations: Tensor,
    /// `[B, A + 3]`, float32: policy and value together, so that one copy transfers both. On CUDA it is in pinned
    /// host memory, and complete once the device has passed the point of the slot.
    logits: Tensor,
}

/// Returns the maximum batches in flight on `device`. On CUDA without events, waiting for a batch means waiting for
/// all later batches too.
pub(super) fn in_flight_max(device: Device) -> usize {
    match device {
        Device::Cuda(index) if Completion::new(index).is_err() => 1,
        _ => DeviceRules::of(device).batches_in_flight_max,
    }
}

impl Accelerator {
    pub(super) fn new(device: Device) -> Self {
        Self { device, idle: Vec::new(), logits: Vec::new() }
    }

    fn slot(&mut self) -> Result<Slot, Error> {
        if let Some(slot) = self.idle.pop() {
            return Ok(slot);
        }
        let completion = match self.device {
            Device::Cuda(index) => Completion::new(index).ok(),
            _ => None,
        };
        Ok(Slot { observations: Staging::new(self.device), completion })
    }

    fn queue(
        &mut self,
        weights: &Rc<Guarded>,
        size: usize,
        stage: &mut dyn FnMut(&mut [f32]),
    ) -> Result<InFlight, Error> {
        process::apply();
        let _guard = tch::no_grad_guard();
        let folded = weights.current();
        let &Architecture { planes, height, width, .. } = folded.architecture();
        let numbers = size * planes * height * width;
        // If this fails, the device may still read from the slot, which is then not used again.
        let mut slot = self.slot()?;
        stage(slot.observations.numbers(numbers)?);
        let observations = slot.observations.tensor(numbers)?;
        let mut logits = folded.forward(&observations, size)?;
        if let Some(completion) = &slot.completion {
            // The copy is queued now, because at the time of the wait it would come after the next batch.
            logits = logits.f_to_device_(Device::Cpu, Kind::Float, true, false)?;
            completion.record()?;
        }
        Ok(InFlight { weights: Rc::clone(weights), size, slot, observations, logits })
    }

    fn download(&mut self, batch: InFlight) -> Result<(), Error> {
        let InFlight { weights, size, slot, observations, logits } = batch;
        if let Some(completion) = &slot.completion {
            completion.wait()?;
        }
        let numbers = logits.numel();
        self.logits.resize(numbers, 0.0);
        // Without a completion this copy waits for the device.
        logits.f_copy_data(&mut self.logits, numbers)?;
        weights.check(&mut self.logits, &observations, size)?;
        self.idle.push(slot);
        Ok(())
    }
}

impl inference::Device for Accelerator {
    /// Folded on the host, before the transfer.
    type Prepared = Guarded;
    /// Shared with the batches in flight.
    type Weights = Rc<Guarded>;
    type InFlight = InFlight;

    fn load(&mut self, prepared: Guarded) -> Result<Rc<Guarded>, DeviceError> {
        process::apply();
        prepared.moved_to(self.device).map(Rc::new).map_err(failure)
    }

    fn submit(
        &mut self,
        weights: &Rc<Guarded>,
        size: usize,
        stage: &mut dyn FnMut(&mut [f32]),
    ) -> Result<InFlight, DeviceError> {
        self.queue(weights, size, stage).map_err(failure)
    }

    fn has_ended(&mut self, batch: &InFlight) -> bool {
        batch.slot.completion.as_ref().map_or(self.device == Device::Cpu, Completion::has_passed)
    }

    fn wait(&mut self, batch: InFlight, read: &mut dyn FnMut(&[f32])) -> Result<(), DeviceError> {
        self.download(batch).map_err(failure)?;
        read(&self.logits);
        Ok(())
    }
}

fn failure(error: Error) -> DeviceError {
    match error {
        Error::OutOfMemory { message } => DeviceError::OutOfMemory(message),
        error => DeviceError::Failed(error.to_string()),
    }
}
