//! Measurement of an evaluator by batch size, before it is used.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use game::{Action, ObservationShape};

use crate::{Batch, Error, Evaluator, Predictions};

/// The speed of an evaluator at one batch size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// The number of positions in a batch.
    pub batch: usize,
    /// The number of positions answered per second.
    pub evaluations_per_second: f64,
}

/// The result of a measurement.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trial {
    /// The speeds, ascending by batch.
    pub speeds: Vec<Speed>,
    /// The batch size and the reason of a failure; larger batches were not tried.
    pub failure: Option<(usize, String)>,
}

/// The maximum duration of a measurement, in multiples of its intended time, after which no larger batch is tried.
const PATIENCE: u32 = 8;

/// The minimum gain in speed for which another batch in flight is used.
const WORTH_IT: f64 = 1.05;

impl Trial {
    /// The evaluations/s at the fastest batch size; 0 if nothing was measured.
    #[must_use]
    pub fn best(&self) -> f64 {
        self.speeds.iter().map(|speed| speed.evaluations_per_second).fold(0.0, f64::max)
    }
}

/// Returns the fastest in-flight depth, at most `depth_max`, and its trial: the depth is raised by one for as long as
/// the speed improves. `measure` receives a depth.
pub fn choose_depth(depth_max: usize, mut measure: impl FnMut(usize) -> Trial) -> (usize, Trial) {
    let mut chosen = (1, measure(1));
    for depth in 2..=depth_max {
        let trial = measure(depth);
        if trial.best() < WORTH_IT * chosen.1.best() {
            break;
        }
        chosen = (depth, trial);
    }
    chosen
}

/// Returns 1, 2, 4… up to `batch_max`, and `batch_max` itself; at least 1.
#[must_use]
pub fn doubling_sizes(batch_max: usize) -> Vec<usize> {
    let batch_max = batch_max.max(1);
    let powers = std::iter::successors(Some(1), |size: &usize| size.checked_mul(2));
    powers.take_while(|&size| size < batch_max).chain([batch_max]).collect()
}

/// Measures batches of the given `sizes`, ascending, each for about `time` by the clock `now`. Sizes above the largest
/// batch of the evaluators are replaced by it.
///
/// Each of `evaluators`, which must be alike, is called in a loop on its own thread; speeds are the sum over all of
/// them. The first batch of a size is not counted, because it selects kernels and grows buffers.
///
/// # Panics
/// If there are no evaluators.
pub fn try_out(
    evaluators: &mut [&mut dyn Evaluator],
    (shape, actions): (ObservationShape, usize),
    sizes: &[usize],
    time: Duration,
    now: &(dyn Fn() -> Instant + Sync),
) -> Trial {
    let mut trial = Trial::default();
    let mut batch = Batch::new(shape);
    let legal: Vec<Action> = (0..actions).filter_map(|action| u16::try_from(action).ok()).map(Action).collect();
    let max_batch = evaluators[0].attributes().max_batch;
    let mut sizes: Vec<usize> = sizes.iter().map(|&size| size.clamp(1, max_batch)).collect();
    sizes.dedup();
    for size in sizes {
        while batch.len() < size {
            let position = batch.len();
            // Speed does not depend on the content of a position, but zeros everywhere might be too favourable.
            batch.push(&legal, |planes| planes.iter_mut().skip(position % 3).step_by(3).for_each(|x| *x = 1.0));
        }
        let begun = now();
        match rate(evaluators, &batch, time, now) {
            Ok(evaluations_per_second) => trial.speeds.push(Speed { batch: size, evaluations_per_second }),
            Err(error) => {
                trial.failure = Some((size, error.to_string()));
                return trial;
            }
        }
        let is_slow = now().saturating_duration_since(begun) > PATIENCE * time;
        if is_slow {
            return trial;
        }
    }
    trial
}

/// The evaluations/s of all evaluators together, which start at the same time.
fn rate(
    evaluators: &mut [&mut dyn Evaluator],
    batch: &Batch,
    time: Duration,
    now: &(dyn Fn() -> Instant + Sync),
) -> Result<f64, Error> {
    let Some((first, others)) = evaluators.split_first_mut() else { return Ok(0.0) };
    let barrier = &Barrier::new(1 + others.len());
    let spans = std::thread::scope(|scope| {
        let others: Vec<_> = others
            .iter_mut()
            .map(|other| scope.spawn(move || evaluate_for(&mut **other, batch, time, now, barrier)))
            .collect();
        let first = evaluate_for(&mut **first, batch, time, now, barrier);
        let others = others.into_iter().map(|other| other.join().unwrap_or_else(|_| Err(panicked())));
        std::iter::once(first).chain(others).collect::<Result<Vec<Span>, Error>>()
    })?;
    let (begin, end) = (spans.iter().map(|span| span.begin).min(), spans.iter().map(|span| span.end).max());
    let seconds = end.zip(begin).map_or(0.0, |(end, begin)| end.saturating_duration_since(begin).as_secs_f64());
    Ok(spans.iter().map(|span| span.positions).sum::<usize>() as f64 / seconds.max(1e-9))
}

/// The number of positions answered by one thread, and the interval of its measurement.
struct Span {
    begin: Instant,
    end: Instant,
    positions: usize,
}

fn evaluate_for(
    evaluator: &mut dyn Evaluator,
    batch: &Batch,
    time: Duration,
    now: &(dyn Fn() -> Instant + Sync),
    barrier: &Barrier,
) -> Result<Span, Error> {
    let mut predictions = Predictions::new();
    let first = evaluator.evaluate(batch, &mut predictions);
    // A thread that fails still waits at the barrier, which would otherwise block the others.
    barrier.wait();
    first?;
    let (begin, mut positions) = (now(), 0);
    loop {
        evaluator.evaluate(batch, &mut predictions)?;
        positions += batch.len();
        let end = now();
        if end.saturating_duration_since(begin) >= time {
            return Ok(Span { begin, end, positions });
        }
    }
}

fn panicked() -> Error {
    Error::Backend("an evaluator panicked while it was measured".to_owned())
}
