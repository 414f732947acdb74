//! Measuring an evaluator by batch size, before work is given to it.

use std::time::{Duration, Instant};

use game::{Action, ObservationShape};

use crate::{Batch, Evaluator, Predictions};

/// What an evaluator does at one batch size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Positions in a batch.
    pub batch: usize,
    /// Positions answered, by one caller that asks again at once.
    pub evaluations_per_second: f64,
}

/// What came of measuring.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trial {
    /// Ascending by batch.
    pub speeds: Vec<Speed>,
    /// Where it failed and why; larger batches were not tried.
    pub failure: Option<(usize, String)>,
}

/// A larger batch than one that took so many times what a measurement may take is not tried.
const PATIENCE: u32 = 8;

/// Measures batches of 1, 2, 4… positions up to `batch_max`, each for about `time` by the clock `now`.
///
/// The first batch of a size is not counted: it chooses kernels and grows buffers.
pub fn try_out(
    evaluator: &mut dyn Evaluator,
    (shape, actions): (ObservationShape, usize),
    batch_max: usize,
    time: Duration,
    now: &mut dyn FnMut() -> Instant,
) -> Trial {
    let mut trial = Trial::default();
    let (mut batch, mut predictions) = (Batch::new(shape), Predictions::new());
    let legal: Vec<Action> = (0..actions).filter_map(|action| u16::try_from(action).ok()).map(Action).collect();
    let batch_max = batch_max.clamp(1, evaluator.attributes().max_batch);
    let mut size = 1;
    loop {
        while batch.len() < size {
            let position = batch.len();
            // Speed does not depend on what is on the board, only zeros everywhere might be too easy.
            batch.push(&legal, |planes| planes.iter_mut().skip(position % 3).step_by(3).for_each(|x| *x = 1.0));
        }
        let begun = now();
        if let Err(error) = evaluator.evaluate(&batch, &mut predictions) {
            trial.failure = Some((size, error.to_string()));
            return trial;
        }
        let (start, mut count, mut end) = (now(), 0_usize, now());
        while count == 0 || end.saturating_duration_since(start) < time {
            if let Err(error) = evaluator.evaluate(&batch, &mut predictions) {
                trial.failure = Some((size, error.to_string()));
                return trial;
            }
            count += size;
            end = now();
        }
        let seconds = end.saturating_duration_since(start).as_secs_f64().max(1e-9);
        trial.speeds.push(Speed { batch: size, evaluations_per_second: count as f64 / seconds });
        let is_slow = end.saturating_duration_since(begun) > PATIENCE * time;
        if size == batch_max || is_slow {
            return trial;
        }
        size = (2 * size).min(batch_max);
    }
}

#[cfg(test)]
mod tests;
