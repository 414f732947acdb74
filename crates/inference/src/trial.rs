//! Measuring an evaluator by batch size, before work is given to it.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use game::{Action, ObservationShape};

use crate::{Batch, Error, Evaluator, Predictions};

/// The speed of an evaluator at one batch size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Positions in a batch.
    pub batch: usize,
    /// Positions answered.
    pub evaluations_per_second: f64,
}

/// The result of a measurement.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trial {
    /// Ascending by batch.
    pub speeds: Vec<Speed>,
    /// The batch size and the reason of the failure; larger batches were not tried.
    pub failure: Option<(usize, String)>,
}

/// A larger batch than one that took so many times what a measurement may take is not tried.
const PATIENCE: u32 = 8;

/// Another batch in flight is worth having if this many times as much is evaluated with it.
const WORTH_IT: f64 = 1.05;

impl Trial {
    /// Evaluations/s at the batch where they are most; 0 where nothing was measured.
    #[must_use]
    pub fn best(&self) -> f64 {
        self.speeds.iter().map(|speed| speed.evaluations_per_second).fold(0.0, f64::max)
    }
}

/// The in-flight depth, at most `depth_max`, that evaluates most, and its trial: one more at a time is tried for as
/// long as that pays. `measure` is given a depth.
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

/// Measures batches of 1, 2, 4… positions up to `batch_max`, each for about `time` by the clock `now`.
///
/// Each of `evaluators`, which are alike, is called in a loop by a thread of its own; speeds are those of all of them
/// together. The first batch of a size is not counted: it chooses kernels and grows buffers.
///
/// # Panics
/// Without an evaluator.
pub fn try_out(
    evaluators: &mut [&mut dyn Evaluator],
    (shape, actions): (ObservationShape, usize),
    batch_max: usize,
    time: Duration,
    now: &(dyn Fn() -> Instant + Sync),
) -> Trial {
    let mut trial = Trial::default();
    let mut batch = Batch::new(shape);
    let legal: Vec<Action> = (0..actions).filter_map(|action| u16::try_from(action).ok()).map(Action).collect();
    let batch_max = batch_max.clamp(1, evaluators[0].attributes().max_batch);
    let mut size = 1;
    loop {
        while batch.len() < size {
            let position = batch.len();
            // Speed does not depend on what is on the board, only zeros everywhere might be too easy.
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
        if size == batch_max || is_slow {
            return trial;
        }
        size = (2 * size).min(batch_max);
    }
}

/// Evaluations/s of all evaluators together, which begin together.
fn rate(
    evaluators: &mut [&mut dyn Evaluator],
    batch: &Batch,
    time: Duration,
    now: &(dyn Fn() -> Instant + Sync),
) -> Result<f64, Error> {
    let Some((first, others)) = evaluators.split_first_mut() else { return Ok(0.0) };
    let barrier = &Barrier::new(1 + others.len());
    let spans = std::thread::scope(|scope| {
        let others: Vec<_> =
            others.iter_mut().map(|other| scope.spawn(move || ask(&mut **other, batch, time, now, barrier))).collect();
        let first = ask(&mut **first, batch, time, now, barrier);
        let others = others.into_iter().map(|other| other.join().unwrap_or_else(|_| Err(panicked())));
        std::iter::once(first).chain(others).collect::<Result<Vec<Span>, Error>>()
    })?;
    let (begin, end) = (spans.iter().map(|span| span.begin).min(), spans.iter().map(|span| span.end).max());
    let seconds = end.zip(begin).map_or(0.0, |(end, begin)| end.saturating_duration_since(begin).as_secs_f64());
    Ok(spans.iter().map(|span| span.positions).sum::<usize>() as f64 / seconds.max(1e-9))
}

/// The answers of one thread, and their times.
struct Span {
    begin: Instant,
    end: Instant,
    positions: usize,
}

fn ask(
    evaluator: &mut dyn Evaluator,
    batch: &Batch,
    time: Duration,
    now: &(dyn Fn() -> Instant + Sync),
    barrier: &Barrier,
) -> Result<Span, Error> {
    let mut predictions = Predictions::new();
    let first = evaluator.evaluate(batch, &mut predictions);
    // A thread that fails still meets the others.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::testing::{Fault, Faulty, Uniform};
    use crate::{Attributes, Error};

    const SHAPE: ObservationShape = ObservationShape { planes: 2, height: 3, width: 3 };

    /// A clock that an evaluator moves on: so many microseconds for a call and so many for a position.
    struct Costing {
        inner: Uniform,
        clock: Arc<AtomicU64>,
        call_us: u64,
        position_us: u64,
    }

    impl Evaluator for Costing {
        fn attributes(&self) -> Attributes {
            self.inner.attributes()
        }

        fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
            let us = self.call_us + self.position_us * batch.len() as u64;
            self.clock.fetch_add(us, Ordering::Relaxed);
            self.inner.evaluate(batch, predictions)
        }
    }

    /// Some moment: only what is added to it matters.
    #[expect(clippy::disallowed_methods, reason = "there is no other way to make one")]
    fn zero() -> Instant {
        Instant::now()
    }

    fn measured(call_us: u64, position_us: u64, batch_max: usize) -> Trial {
        let clock = Arc::<AtomicU64>::default();
        let mut evaluator = Costing { inner: Uniform::new(SHAPE), clock: clock.clone(), call_us, position_us };
        let zero = zero();
        let now = || zero + Duration::from_micros(clock.load(Ordering::Relaxed));
        try_out(&mut [&mut evaluator], (SHAPE, 9), batch_max, Duration::from_millis(20), &now)
    }

    #[test]
    fn speeds_are_positions_over_time_by_the_clock() {
        let trial = measured(900, 100, 8);
        let speeds: Vec<_> =
            trial.speeds.iter().map(|speed| (speed.batch, speed.evaluations_per_second.round())).collect();
        assert_eq!(speeds, [(1, 1000.0), (2, 1818.0), (4, 3077.0), (8, 4706.0)]);
        assert_eq!(trial.failure, None);
    }

    #[test]
    fn the_largest_batch_is_measured_even_if_it_is_no_power_of_two() {
        let batches = |trial: Trial| trial.speeds.iter().map(|speed| speed.batch).collect::<Vec<_>>();
        assert_eq!(batches(measured(10, 10, 48)), [1, 2, 4, 8, 16, 32, 48]);
        assert_eq!(batches(measured(10, 10, 0)), [1]);
    }

    #[test]
    fn a_batch_that_takes_far_too_long_is_the_last() {
        let trial = measured(0, 100_000, 4096);
        assert_eq!(trial.speeds.len(), 1, "{trial:?}");
    }

    #[test]
    fn a_failure_ends_the_trial_and_leaves_what_was_measured() {
        let calls = AtomicU64::new(0);
        let zero = zero();
        let now = || zero + Duration::from_millis(30 * calls.fetch_add(1, Ordering::Relaxed));
        // Two batches of each size: the fifth is the first of four positions.
        let mut evaluator = Faulty::new(SHAPE, Fault::Backend, 4);
        let trial = try_out(&mut [&mut evaluator], (SHAPE, 9), 64, Duration::from_millis(20), &now);
        assert_eq!(trial.speeds.iter().map(|speed| speed.batch).collect::<Vec<_>>(), [1, 2]);
        let (batch, why) = trial.failure.unwrap();
        assert!(batch == 4 && why.contains("the test made it fail"), "{batch}: {why}");
    }

    #[test]
    fn evaluators_are_asked_at_once_and_counted_together() {
        let clock = Arc::<AtomicU64>::default();
        let evaluator = || Costing { inner: Uniform::new(SHAPE), clock: clock.clone(), call_us: 1000, position_us: 0 };
        let (mut one, mut other) = (evaluator(), evaluator());
        let zero = zero();
        let now = || zero + Duration::from_micros(clock.load(Ordering::Relaxed));
        let trial = try_out(&mut [&mut one, &mut other], (SHAPE, 9), 4, Duration::from_millis(20), &now);
        // The clock advances by a millisecond for each batch of any thread: a device that cannot compute two at once.
        for Speed { batch, evaluations_per_second } in trial.speeds {
            let share = evaluations_per_second / (1000.0 * batch as f64);
            assert!((0.5..=1.1).contains(&share), "{batch}: {evaluations_per_second}");
        }
    }

    #[test]
    fn one_of_several_that_fails_ends_the_trial() {
        let calls = AtomicU64::new(0);
        let zero = zero();
        let now = || zero + Duration::from_millis(30 * calls.fetch_add(1, Ordering::Relaxed));
        let (mut good, mut bad) = (Uniform::new(SHAPE), Faulty::new(SHAPE, Fault::Backend, 0));
        let trial = try_out(&mut [&mut good, &mut bad], (SHAPE, 9), 64, Duration::from_millis(20), &now);
        assert!(trial.speeds.is_empty(), "{trial:?}");
        assert_eq!(trial.failure.unwrap().0, 1);
    }

    /// A device that takes this long for a batch, with this long to bring and to read it; speeds of each depth.
    fn overlapped(compute_us: u64, bring_us: u64) -> impl FnMut(usize) -> Trial {
        move |depth| {
            let batch_us = compute_us.max((compute_us + bring_us) / depth as u64);
            Trial { speeds: vec![Speed { batch: 64, evaluations_per_second: 64e6 / batch_us as f64 }], failure: None }
        }
    }

    #[test]
    fn as_many_batches_are_in_flight_as_pay() {
        let chosen = |compute_us, bring_us, depth_max| choose_depth(depth_max, overlapped(compute_us, bring_us)).0;
        assert_eq!(chosen(1000, 10, 4), 1, "what is brought at once needs no second one");
        assert_eq!(chosen(1000, 600, 4), 2);
        assert_eq!(chosen(1000, 1900, 4), 3);
        assert_eq!(chosen(1000, 9000, 4), 4);
        assert_eq!(chosen(1000, 9000, 2), 2, "no more than there are threads");
        let trial = choose_depth(4, overlapped(1000, 600)).1;
        assert_eq!(trial.best(), 64e3, "the trial is that of the depth");
    }

    #[test]
    fn what_fails_with_more_in_flight_is_left_at_less() {
        let measure = |depth| match depth {
            1 => overlapped(1000, 600)(1),
            _ => Trial { speeds: Vec::new(), failure: Some((1, "out of memory".to_owned())) },
        };
        assert_eq!(choose_depth(4, measure).0, 1);
    }
}
