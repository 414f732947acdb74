use std::sync::{Mutex, PoisonError, TryLockError};

use game::ObservationShape;
use inference::Batch;

/// Positions of a sample: half of them to calibrate on, half to check with.
pub(crate) const SAMPLE: usize = 256;
/// One position of so many is taken, so that a sample is spread over many games.
const STRIDE: usize = 16;

/// Positions that the evaluators of a process were asked lately. In an actor they are those that go to the replay.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<Positions>);

#[derive(Debug, Default)]
struct Positions {
    /// Evaluated so far.
    seen: usize,
    filling: Option<Batch>,
    /// The last complete sample.
    sample: Option<Batch>,
}

impl Recent {
    /// Shows what was asked. Where another thread shows at the same time, nothing is taken.
    pub(crate) fn show(&self, batch: &Batch) {
        let mut positions = match self.0.try_lock() {
            Ok(positions) => positions,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let first = (STRIDE - positions.seen % STRIDE) % STRIDE;
        positions.seen += batch.len();
        for index in (first..batch.len()).step_by(STRIDE) {
            positions.take(batch, index);
        }
    }

    /// The last complete sample of observations of `shape`.
    pub(crate) fn sample(&self, shape: ObservationShape) -> Option<Batch> {
        let positions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        positions.sample.clone().filter(|sample| sample.shape() == shape)
    }
}

impl Positions {
    fn take(&mut self, batch: &Batch, index: usize) {
        let filling = self.filling.take().filter(|filling| filling.shape() == batch.shape());
        let mut filling = filling.unwrap_or_else(|| Batch::new(batch.shape()));
        filling.push(batch.legal(index), |planes| planes.copy_from_slice(batch.observation(index)));
        if filling.len() < SAMPLE {
            self.filling = Some(filling);
            return;
        }
        // The older sample's memory serves the next.
        self.filling = self.sample.replace(filling);
        if let Some(filling) = &mut self.filling {
            filling.clear();
        }
    }
}

#[cfg(test)]
mod tests;
