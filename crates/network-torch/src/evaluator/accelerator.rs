use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use inference::{DeviceError, Precision};
use tch::{Device, Kind, Tensor};
use weights::Architecture;

use super::graphs::{Graphs, Loaded};
use super::{Guarded, Staging};
use crate::{
    DeviceRules, Error, Network,
    gpu::Completion,
    latent_model::{LatentCall, LatentNetwork, Place, Pool},
    process,
};

/// An accelerator for an engine. One thread calls all methods.
pub(crate) struct Accelerator {
    device: Device,
    graphs: Graphs,
    /// Slots of batches that are not in flight.
    idle: Vec<Slot>,
    /// `[B, A + 3]` of the last awaited batch.
    logits: Vec<f32>,
    /// States of learned models.
    pool: Pool,
}

/// Something that any thread has prepared in host memory, for [`OnDevice`].
#[derive(Debug)]
pub(crate) enum Prepared {
    /// Folded on the host, before the transfer.
    Evaluator(Box<Guarded>),
    /// Folded on the device, in this precision.
    Latent(Box<Network>, Precision),
    /// Slots to reserve as [`Pool::reserve`] does, for `place`.
    Slots { before: Place, slots: usize, place: Arc<OnceLock<Arc<Place>>> },
}

/// Weights on the device; nothing for slots, which the model holds.
#[derive(Debug)]
pub(crate) enum OnDevice {
    /// Shared with the batches in flight.
    Evaluator(Rc<Loaded>),
    Latent(Box<LatentNetwork>),
    Slots,
}

/// Host memory of one batch.
#[derive(Debug)]
struct Slot {
    /// `[B, H, W, C]`, or the rows of [`Pool::compute`].
    observations: Staging,
    /// On CUDA, the point after the copy of the logits.
    completion: Option<Completion>,
}

/// A batch in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// `None` for a batch of a learned model.
    evaluation: Option<Evaluation>,
    slot: Slot,
    /// `[B, A + 3]`, float32: policy and value together, so that one copy transfers both; or the answers of a learned
    /// model. On CUDA it is in pinned host memory, and complete once the device has passed the point of the slot.
    logits: Tensor,
}

/// Everything to evaluate a batch once more in float32, if float16 could not hold the logits.
#[derive(Debug)]
struct Evaluation {
    loaded: Rc<Loaded>,
    /// B.
    size: usize,
    /// `[B · H · W · C]`, in the memory of the slot.
    observations: Tensor,
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
    pub(super) fn new(device: Device, graphs: Graphs) -> Self {
        Self { device, graphs, idle: Vec::new(), logits: Vec::new(), pool: Pool::new(device) }
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
        loaded: &Rc<Loaded>,
        size: usize,
        stage: &mut dyn FnMut(&mut [f32]),
    ) -> Result<InFlight, Error> {
        process::apply();
        let _guard = tch::no_grad_guard();
        let folded = loaded.weights.current();
        let &Architecture { planes, height, width, .. } = folded.architecture();
        let numbers = size * planes * height * width;
        // If this fails, the device may still read from the slot, which is then not used again.
        let mut slot = self.slot()?;
        stage(slot.observations.numbers(numbers)?);
        let observations = slot.observations.tensor(numbers)?;
        let replayed = self.graphs.replayed(loaded, &observations, size);
        let is_fixed = replayed.is_some();
        let logits = match replayed {
            Some(logits) => logits,
            None => folded.forward(&observations, size)?,
        };
        let evaluation = Evaluation { loaded: Rc::clone(loaded), size, observations };
        Self::sent(slot, logits, is_fixed, Some(evaluation))
    }

    fn queue_latent(
        &mut self,
        network: &LatentNetwork,
        batch: (LatentCall, usize),
        stage: &mut dyn FnMut(&mut [f32]),
    ) -> Result<InFlight, Error> {
        process::apply();
        // As above, the slot is not used again after an error.
        let mut slot = self.slot()?;
        let answers = self.pool.compute(network, batch, &mut slot.observations, stage)?;
        Self::sent(slot, answers, false, None)
    }

    /// Returns the batch in flight with logits on the device, which the next batch overwrites if they are fixed.
    fn sent(slot: Slot, mut logits: Tensor, is_fixed: bool, evaluation: Option<Evaluation>) -> Result<InFlight, Error> {
        if slot.completion.is_some() || is_fixed {
            // The copy is queued now, because at the time of the wait it would come after the next batch.
            logits = logits.f_to_device_(Device::Cpu, Kind::Float, slot.completion.is_some(), true)?;
        }
        if let Some(completion) = &slot.completion {
            completion.record()?;
        }
        Ok(InFlight { evaluation, slot, logits })
    }

    fn download(&mut self, InFlight { evaluation, slot, logits }: InFlight) -> Result<(), Error> {
        if let Some(completion) = &slot.completion {
            completion.wait()?;
        }
        let numbers = logits.numel();
        self.logits.resize(numbers, 0.0);
        // Without a completion this copy waits for the device.
        logits.f_copy_data(&mut self.logits, numbers)?;
        if let Some(Evaluation { loaded, size, observations }) = evaluation {
            loaded.weights.check(&mut self.logits, &observations, size)?;
        }
        self.idle.push(slot);
        Ok(())
    }
}

impl inference::Device for Accelerator {
    type Prepared = Prepared;
    type Weights = OnDevice;
    type InFlight = InFlight;

    fn load(&mut self, prepared: Prepared) -> Result<OnDevice, DeviceError> {
        process::apply();
        let loaded = match prepared {
            Prepared::Evaluator(weights) => {
                weights.moved_to(self.device).map(|weights| OnDevice::Evaluator(Rc::new(self.graphs.loaded(weights))))
            }
            Prepared::Latent(network, precision) => {
                let network = network.moved_to(self.device);
                let network = network.and_then(|network| LatentNetwork::new(&network, precision));
                network.map(Box::new).map(OnDevice::Latent)
            }
            Prepared::Slots { before, slots, place } => self.pool.reserve(before, slots).map(|reserved| {
                // Nothing else sets it.
                let _ = place.set(reserved);
                OnDevice::Slots
            }),
        };
        loaded.map_err(failure)
    }

    fn submit(
        &mut self,
        weights: &OnDevice,
        kind: usize,
        size: usize,
        stage: &mut dyn FnMut(&mut [f32]),
    ) -> Result<InFlight, DeviceError> {
        let queued = match weights {
            OnDevice::Evaluator(loaded) => self.queue(loaded, size, stage),
            OnDevice::Latent(network) => self.queue_latent(network, (LatentCall::ALL[kind], size), stage),
            OnDevice::Slots => Err(Error::Libtorch("slots compute nothing".to_owned())),
        };
        queued.map_err(failure)
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
