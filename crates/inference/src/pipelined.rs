use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use game::ObservationShape;

use crate::{Attributes, Batch, BufferPool, Error, Evaluator, Predictions};

/// A device that computes batches in the order of their submission, concurrently with its callers.
pub trait Device: Send {
    /// A batch in flight on the device: the buffers of its input and output.
    type InFlightBatch: InFlightBatch;

    /// Returns the attributes of an evaluator on it.
    fn attributes(&self) -> Attributes;

    /// As many positions as it takes at once; larger batches are cut.
    fn chunk(&self) -> usize;

    /// The shape of the observations that its network takes, and the number of its actions.
    fn takes(&self) -> (ObservationShape, usize);

    /// A flight that has not been used.
    fn flight(&self) -> Self::InFlightBatch;

    /// Queues a staged batch and returns; called by one thread at a time. A device without a queue computes here.
    ///
    /// # Errors
    /// The device rejects the batch. The flight is then not used again: the device may still read from it.
    fn submit(&mut self, flight: &mut Self::InFlightBatch) -> Result<(), Error>;
}

/// A batch in flight. It has no access to the device, so that waiting for an answer blocks no other batch.
pub trait InFlightBatch: Send {
    /// Gets the positions ready to be submitted.
    ///
    /// # Errors
    /// Memory that is not to be had.
    fn stage(&mut self, batch: &Batch, positions: Range<usize>) -> Result<(), Error>;

    /// Waits for the answers to what was staged and submitted, the one synchronisation of a batch, and adds them to
    /// `predictions`.
    ///
    /// # Errors
    /// The device reports a late error, or answers that are not finite.
    fn collect(&mut self, batch: &Batch, positions: Range<usize>, predictions: &mut Predictions) -> Result<(), Error>;
}

/// An evaluator on a device that works in order: as many batches in flight as there are slots, so that the next one is
/// queued there while one is computed. Further evaluators on the same device come from [`beside`](Self::beside), one
/// for each thread.
pub struct PipelinedEvaluator<D: Device> {
    device: Arc<Mutex<D>>,
    slots: Arc<BufferPool<D::InFlightBatch>>,
    attributes: Attributes,
    takes: (ObservationShape, usize),
    chunk: usize,
}

impl<D: Device> fmt::Debug for PipelinedEvaluator<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelinedEvaluator").field("attributes", &self.attributes).finish_non_exhaustive()
    }
}

impl<D: Device> PipelinedEvaluator<D> {
    /// The first on `device`. The slots may be those of other weights on the same device.
    pub fn new(device: D, slots: Arc<BufferPool<D::InFlightBatch>>) -> Self {
        let (attributes, takes, chunk) = (device.attributes(), device.takes(), device.chunk().max(1));
        Self { device: Arc::new(Mutex::new(device)), slots, attributes, takes, chunk }
    }

    /// Another one with the same weights on the same device, for another thread.
    #[must_use]
    pub fn beside(&self) -> Self {
        let (device, slots) = (Arc::clone(&self.device), Arc::clone(&self.slots));
        Self { device, slots, attributes: self.attributes.clone(), takes: self.takes, chunk: self.chunk }
    }

    fn device(&self) -> MutexGuard<'_, D> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One flight there and back.
    fn fly(
        &self,
        flight: &mut D::InFlightBatch,
        batch: &Batch,
        positions: Range<usize>,
        predictions: &mut Predictions,
    ) -> Result<(), Error> {
        flight.stage(batch, positions.clone())?;
        // Held while the batch is queued, so that those of two threads do not mix, and not a moment longer.
        self.device().submit(flight)?;
        flight.collect(batch, positions, predictions)
    }
}

impl<D: Device> Evaluator for PipelinedEvaluator<D> {
    fn attributes(&self) -> Attributes {
        self.attributes.clone()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        predictions.clear();
        let (shape, actions) = self.takes;
        batch.check(shape, actions, self.attributes.max_batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        let mut slot = self.slots.take();
        let mut flight = slot.content.take().unwrap_or_else(|| self.device().flight());
        for from in (0..batch.len()).step_by(self.chunk) {
            let positions = from..batch.len().min(from + self.chunk);
            // With an error the flight goes: the device may not have done with it.
            self.fly(&mut flight, batch, positions, predictions)?;
        }
        slot.content = Some(flight);
        Ok(())
    }
}
