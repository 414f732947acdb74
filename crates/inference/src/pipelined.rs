use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use game::ObservationShape;

use crate::{Attributes, Batch, BufferPool, Error, Evaluator, Predictions};

/// A device that computes batches in the order of their submission, concurrently with its callers.
pub trait Device: Send {
    /// A batch in flight on the device: the buffers of its input and output.
    type InFlightBatch: InFlightBatch;

    /// Returns the attributes of an evaluator on the device.
    fn attributes(&self) -> Attributes;

    /// The maximum number of positions in one submission; larger batches are split.
    fn chunk(&self) -> usize;

    /// The shape of the observations that its network expects, and the number of its actions.
    fn takes(&self) -> (ObservationShape, usize);

    /// Creates an unused in-flight batch.
    fn flight(&self) -> Self::InFlightBatch;

    /// Queues a staged batch and returns; called by one thread at a time. A device without a queue computes it here.
    ///
    /// # Errors
    /// If the device rejects the batch. The in-flight batch is then not reused: the device may still read from it.
    fn submit(&mut self, flight: &mut Self::InFlightBatch) -> Result<(), Error>;
}

/// A batch in flight. It has no access to the device, so that waiting for an answer blocks no other batch.
pub trait InFlightBatch: Send {
    /// Prepares the positions for submission.
    ///
    /// # Errors
    /// If memory cannot be allocated.
    fn stage(&mut self, batch: &Batch, positions: Range<usize>) -> Result<(), Error>;

    /// Waits for the answers to the staged and submitted positions, the only synchronisation of a batch, and adds them
    /// to `predictions`.
    ///
    /// # Errors
    /// If the device reports a late error, or if answers are not finite.
    fn collect(&mut self, batch: &Batch, positions: Range<usize>, predictions: &mut Predictions) -> Result<(), Error>;
}

/// An evaluator on a device that processes batches in order, with as many batches in flight as there are slots, so that
/// the next batch is queued on the device while one is computed. [`beside`](Self::beside) creates further evaluators on
/// the same device, one for each thread.
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
    /// Creates the first evaluator on `device`. Its slots may be shared with other weights on the same device.
    pub fn new(device: D, slots: Arc<BufferPool<D::InFlightBatch>>) -> Self {
        let (attributes, takes, chunk) = (device.attributes(), device.takes(), device.chunk().max(1));
        Self { device: Arc::new(Mutex::new(device)), slots, attributes, takes, chunk }
    }

    /// Creates another evaluator with the same weights on the same device, for another thread.
    #[must_use]
    pub fn beside(&self) -> Self {
        let (device, slots) = (Arc::clone(&self.device), Arc::clone(&self.slots));
        Self { device, slots, attributes: self.attributes.clone(), takes: self.takes, chunk: self.chunk }
    }

    fn device(&self) -> MutexGuard<'_, D> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stages, submits and collects one chunk of a batch.
    fn fly(
        &self,
        flight: &mut D::InFlightBatch,
        batch: &Batch,
        positions: Range<usize>,
        predictions: &mut Predictions,
    ) -> Result<(), Error> {
        flight.stage(batch, positions.clone())?;
        // The lock is held only while the batch is queued, so that the submissions of two threads do not interleave.
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
            // On an error the in-flight batch is dropped: the device may still be using its buffers.
            self.fly(&mut flight, batch, positions, predictions)?;
        }
        slot.content = Some(flight);
        Ok(())
    }
}
