use std::sync::{Mutex, PoisonError, TryLockError};

use game::ObservationShape;
use inference::Batch;

/// Positions of a sample: half of them to calibrate on, half to check with.
pub(crate) const SAMPLE: usize = 256;
/// One position of so many is taken, so that a sample is spread over many games.
const STRIDE: usize = 16;

/// Positions that the evaluators of a process received lately. In an actor they are those that go to the replay.
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
    /// Stores positions of a batch. While another thread stores some, nothing is stored.
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
mod tests {
    use game::Action;

    use super::*;

    const SHAPE: ObservationShape = ObservationShape { planes: 1, height: 1, width: 2 };

    /// Positions numbered from `first` on.
    fn batch(first: usize, positions: usize) -> Batch {
        let mut batch = Batch::new(SHAPE);
        for number in first..first + positions {
            batch.push(&[Action(1)], |planes| planes.copy_from_slice(&[number as f32, 0.5]));
        }
        batch
    }

    #[test]
    fn a_sample_is_every_sixteenth_position_and_the_last_complete_one() {
        let recent = Recent::default();
        let mut next = 0;
        let mut show = |positions: usize| {
            recent.show(&batch(next, positions));
            next += positions;
        };
        for size in (1..=63).cycle().take(120) {
            show(size);
        }
        // 63 * 64 / 2 + 57 * 58 / 2 = 3,669 so far: 230 taken.
        assert!(recent.sample(SHAPE).is_none());
        show(SAMPLE * STRIDE);
        let sample = recent.sample(SHAPE).unwrap();
        let numbers: Vec<f32> = (0..sample.len()).map(|index| sample.observation(index)[0]).collect();
        let wanted: Vec<f32> = (0..SAMPLE).map(|index| (index * STRIDE) as f32).collect();
        assert_eq!(numbers, wanted);
        assert_eq!(sample.legal(7), [Action(1)]);
        show(SAMPLE * STRIDE);
        let later = recent.sample(SHAPE).unwrap();
        assert_eq!(later.observation(0)[0], (SAMPLE * STRIDE) as f32);
    }

    #[test]
    fn positions_of_another_shape_begin_anew() {
        let recent = Recent::default();
        recent.show(&batch(0, SAMPLE * STRIDE / 2));
        let other = ObservationShape { planes: 1, height: 2, width: 2 };
        let mut wider = Batch::new(other);
        (0..SAMPLE * STRIDE).for_each(|_| wider.push(&[Action(0)], |planes| planes.fill(0.0)));
        recent.show(&wider);
        assert!(recent.sample(SHAPE).is_none());
        assert_eq!(recent.sample(other).map(|sample| sample.len()), Some(SAMPLE));
    }
}
