use std::cell::Cell;
use std::rc::Rc;
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
    let mut now = || zero + Duration::from_micros(clock.load(Ordering::Relaxed));
    try_out(&mut evaluator, (SHAPE, 9), batch_max, Duration::from_millis(20), &mut now)
}

#[test]
fn speeds_are_positions_over_time_by_the_clock() {
    let trial = measured(900, 100, 8);
    let speeds: Vec<_> = trial.speeds.iter().map(|speed| (speed.batch, speed.evaluations_per_second.round())).collect();
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
    let calls = Rc::new(Cell::new(0_u64));
    let zero = zero();
    let mut now = || {
        calls.set(calls.get() + 1);
        zero + Duration::from_millis(30 * calls.get())
    };
    // Two batches of each size: the fifth is the first of four positions.
    let mut evaluator = Faulty::new(SHAPE, Fault::Backend, 4);
    let trial = try_out(&mut evaluator, (SHAPE, 9), 64, Duration::from_millis(20), &mut now);
    assert_eq!(trial.speeds.iter().map(|speed| speed.batch).collect::<Vec<_>>(), [1, 2]);
    let (batch, why) = trial.failure.unwrap();
    assert!(batch == 4 && why.contains("it was told to"), "{batch}: {why}");
}
