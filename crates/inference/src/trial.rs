//! Measurement of an evaluator or a learned model by batch size, before use.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use game::{Action, ObservationShape};

use crate::{Batch, Error, Evaluator, LatentModel, LatentPredictions, Predictions, Slot, Unroll};

/// The speed of an evaluator at one batch size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Number of positions in a batch.
    pub batch: usize,
    /// Positions evaluated per second.
    pub evaluations_per_second: f64,
}

/// The result of a measurement.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trial {
    /// Speeds, ascending by batch.
    pub speeds: Vec<Speed>,
    /// Batch size and reason of a failure; larger batches were not tried.
    pub failure: Option<(usize, String)>,
}

/// Maximum duration of a measurement, in multiples of the intended time, beyond which no larger batch is tried.
const PATIENCE: u32 = 8;

/// Minimum speed gain that justifies one more batch in flight.
const WORTH_IT: f64 = 1.05;

impl Trial {
    /// Returns the evaluations/s at the fastest batch size; 0 without measurements.
    #[must_use]
    pub fn best(&self) -> f64 {
        self.speeds.iter().map(|speed| speed.evaluations_per_second).fold(0.0, f64::max)
    }
}

/// Returns the fastest in-flight depth, at most `depth_max`, and the trial: the depth increases by one while the
/// speed improves. `measure` receives a depth.
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

/// Measures batches of the given `sizes`, ascending, each for about `time` by the clock `now`. Sizes above the
/// evaluators' maximum batch are replaced by the maximum.
///
/// Each of `evaluators`, which must be alike, is called in a loop on a separate thread; speeds are sums over all
/// threads. The first batch of a size is not counted, since it selects kernels and grows buffers.
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
    let mut batch = Batch::new(shape);
    let legal = actions_below(actions);
    let max_batch = evaluators[0].attributes().max_batch;
    each_size(max_batch, sizes, time, now, |size| {
        fill(&mut batch, &legal, size);
        let batch = &batch;
        let call =
            |evaluator: &mut &mut dyn Evaluator, predictions: &mut Predictions| evaluator.evaluate(batch, predictions);
        rate(evaluators, size, call, time, now)
    })
}

/// Measures recurrent steps of learned models like [`try_out`] measures evaluations. Each step writes to another slot
/// than it reads, as in a search.
///
/// # Panics
/// If there are no models.
pub fn try_out_latent(
    models: &mut [&mut dyn LatentModel],
    (shape, actions): (ObservationShape, usize),
    sizes: &[usize],
    time: Duration,
    now: &(dyn Fn() -> Instant + Sync),
) -> Trial {
    let mut batch = Batch::new(shape);
    let legal = actions_below(actions);
    let max_batch = models[0].attributes().max_batch;
    each_size(max_batch, sizes, time, now, |size| {
        fill(&mut batch, &legal, size);
        let slots = u32::try_from(size).map_err(|_| Error::Backend("the batch is too large".to_owned()))?;
        let from: Vec<Slot> = (0..slots).map(Slot).collect();
        for model in models.iter_mut() {
            model.reserve(2 * size)?;
            model.initial(&batch, &from, &mut LatentPredictions::default())?;
        }
        // A model with chance takes codes here; for timing a step, a state is as good as an afterstate.
        let codes = models.first().map_or(0, |model| model.codes());
        let choices = if codes > 0 { actions_below(codes) } else { legal.clone() };
        let step = |(slot, &action): (Slot, &Action)| Unroll { from: slot, action, to: Slot(slots + slot.0) };
        let steps: Vec<Unroll> = from.iter().copied().zip(choices.iter().cycle()).map(step).collect();
        let call = |model: &mut &mut dyn LatentModel, predictions: &mut LatentPredictions| {
            model.recurrent(&steps, predictions)
        };
        rate(models, size, call, time, now)
    })
}

fn actions_below(actions: usize) -> Vec<Action> {
    (0..actions).filter_map(|action| u16::try_from(action).ok()).map(Action).collect()
}

/// Adds positions to `batch` until there are `size`.
fn fill(batch: &mut Batch, legal: &[Action], size: usize) {
    while batch.len() < size {
        let position = batch.len();
        // Speed does not depend on the content of a position, but zeros everywhere might be too favourable.
        batch.push(legal, |planes| planes.iter_mut().skip(position % 3).step_by(3).for_each(|x| *x = 1.0));
    }
}

/// Measures each of `sizes`, limited to `max_batch`, with `rate`, until one fails or takes far longer than `time`.
fn each_size(
    max_batch: usize,
    sizes: &[usize],
    time: Duration,
    now: &(dyn Fn() -> Instant + Sync),
    mut rate: impl FnMut(usize) -> Result<f64, Error>,
) -> Trial {
    let mut trial = Trial::default();
    let mut sizes: Vec<usize> = sizes.iter().map(|&size| size.clamp(1, max_batch)).collect();
    sizes.dedup();
    for size in sizes {
        let begun = now();
        match rate(size) {
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

/// Returns the total positions/s of all `engines`, which start at the same time; each call evaluates `size`.
fn rate<E: Send, P: Default>(
    engines: &mut [E],
    size: usize,
    call: impl Fn(&mut E, &mut P) -> Result<(), Error> + Sync,
    time: Duration,
    now: &(dyn Fn() -> Instant + Sync),
) -> Result<f64, Error> {
    let Some((first, others)) = engines.split_first_mut() else { return Ok(0.0) };
    let (barrier, call) = (&Barrier::new(1 + others.len()), &call);
    let spans = std::thread::scope(|scope| {
        let others: Vec<_> = others
            .iter_mut()
            .map(|other| scope.spawn(move || call_for(|answer| call(other, answer), time, now, barrier)))
            .collect();
        let first = call_for(|answer| call(first, answer), time, now, barrier);
        let others = others.into_iter().map(|other| other.join().unwrap_or_else(|_| Err(panicked())));
        std::iter::once(first).chain(others).collect::<Result<Vec<Span>, Error>>()
    })?;
    let (begin, end) = (spans.iter().map(|span| span.begin).min(), spans.iter().map(|span| span.end).max());
    let seconds = end.zip(begin).map_or(0.0, |(end, begin)| end.saturating_duration_since(begin).as_secs_f64());
    let calls: usize = spans.iter().map(|span| span.calls).sum();
    Ok((calls * size) as f64 / seconds.max(1e-9))
}

/// The number of calls on one thread, and the measurement interval.
struct Span {
    begin: Instant,
    end: Instant,
    calls: usize,
}

/// Repeats a call for about `time`, after a first call that is not counted.
fn call_for<P: Default>(
    mut call: impl FnMut(&mut P) -> Result<(), Error>,
    time: Duration,
    now: &(dyn Fn() -> Instant + Sync),
    barrier: &Barrier,
) -> Result<Span, Error> {
    let mut answer = P::default();
    let first = call(&mut answer);
    // A failing thread still waits at the barrier, which would otherwise block the remaining threads.
    barrier.wait();
    first?;
    let (begin, mut calls) = (now(), 0);
    loop {
        call(&mut answer)?;
        calls += 1;
        let end = now();
        if end.saturating_duration_since(begin) >= time {
            return Ok(Span { begin, end, calls });
        }
    }
}

fn panicked() -> Error {
    Error::Backend("an evaluator panicked during measurement".to_owned())
}
