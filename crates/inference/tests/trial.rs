//! Tests of measurements, with a clock that the evaluators advance.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use std::time::{Duration, Instant};

use evaluator_doubles::{Fault, Faulty, Uniform};
use game::ObservationShape;
use inference::{
    Attributes, Batch, Error, Evaluator, Predictions, Speed, Trial, choose_depth, doubling_sizes, try_out,
};

const SHAPE: ObservationShape = ObservationShape { planes: 2, height: 3, width: 3 };

/// An evaluator that advances a clock by a fixed time per call and per position, in microseconds.
struct ClockAdvancing {
    inner: Uniform,
    clock: Arc<AtomicU64>,
    call_us: u64,
    position_us: u64,
}

impl Evaluator for ClockAdvancing {
    fn attributes(&self) -> Attributes {
        self.inner.attributes()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        let us = self.call_us + self.position_us * batch.len() as u64;
        self.clock.fetch_add(us, Ordering::Relaxed);
        self.inner.evaluate(batch, predictions)
    }
}

/// Returns an arbitrary instant: only differences matter.
#[expect(clippy::disallowed_methods, reason = "there is no other way to make one")]
fn zero() -> Instant {
    Instant::now()
}

fn measured(call_us: u64, position_us: u64, batch_max: usize) -> Trial {
    let clock = Arc::<AtomicU64>::default();
    let mut evaluator = ClockAdvancing { inner: Uniform::new(SHAPE), clock: clock.clone(), call_us, position_us };
    let zero = zero();
    let now = || zero + Duration::from_micros(clock.load(Ordering::Relaxed));
    try_out(&mut [&mut evaluator], (SHAPE, 9), &doubling_sizes(batch_max), Duration::from_millis(20), &now)
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
fn a_failure_ends_the_trial_and_keeps_the_speeds_measured_so_far() {
    let calls = AtomicU64::new(0);
    let zero = zero();
    let now = || zero + Duration::from_millis(30 * calls.fetch_add(1, Ordering::Relaxed));
    // Each size takes two batches, so the fifth batch is the first with four positions.
    let mut evaluator = Faulty::new(SHAPE, Fault::Backend, 4);
    let trial = try_out(&mut [&mut evaluator], (SHAPE, 9), &doubling_sizes(64), Duration::from_millis(20), &now);
    assert_eq!(trial.speeds.iter().map(|speed| speed.batch).collect::<Vec<_>>(), [1, 2]);
    let (batch, why) = trial.failure.unwrap();
    assert!(batch == 4 && why.contains("the test made it fail"), "{batch}: {why}");
}

#[test]
fn evaluators_are_called_concurrently_and_measured_together() {
    let clock = Arc::<AtomicU64>::default();
    let evaluator =
        || ClockAdvancing { inner: Uniform::new(SHAPE), clock: clock.clone(), call_us: 1000, position_us: 0 };
    let (mut one, mut other) = (evaluator(), evaluator());
    let zero = zero();
    let now = || zero + Duration::from_micros(clock.load(Ordering::Relaxed));
    let trial = try_out(&mut [&mut one, &mut other], (SHAPE, 9), &doubling_sizes(4), Duration::from_millis(20), &now);
    // The clock advances by a millisecond per batch of any thread, like a device that computes one batch at a time.
    for Speed { batch, evaluations_per_second } in trial.speeds {
        let share = evaluations_per_second / (1000.0 * batch as f64);
        assert!((0.5..=1.1).contains(&share), "{batch}: {evaluations_per_second}");
    }
}

#[test]
fn one_failing_evaluator_of_several_ends_the_trial() {
    let calls = AtomicU64::new(0);
    let zero = zero();
    let now = || zero + Duration::from_millis(30 * calls.fetch_add(1, Ordering::Relaxed));
    let (mut good, mut bad) = (Uniform::new(SHAPE), Faulty::new(SHAPE, Fault::Backend, 0));
    let trial = try_out(&mut [&mut good, &mut bad], (SHAPE, 9), &doubling_sizes(64), Duration::from_millis(20), &now);
    assert!(trial.speeds.is_empty(), "{trial:?}");
    assert_eq!(trial.failure.unwrap().0, 1);
}

/// Returns trials by depth for a device with these times for computing and transferring a batch.
fn overlapped(compute_us: u64, bring_us: u64) -> impl FnMut(usize) -> Trial {
    move |depth| {
        let batch_us = compute_us.max((compute_us + bring_us) / depth as u64);
        Trial { speeds: vec![Speed { batch: 64, evaluations_per_second: 64e6 / batch_us as f64 }], failure: None }
    }
}

#[test]
fn the_depth_is_raised_while_the_speed_improves() {
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
fn a_failure_at_a_higher_depth_keeps_the_lower_one() {
    let measure = |depth| match depth {
        1 => overlapped(1000, 600)(1),
        _ => Trial { speeds: Vec::new(), failure: Some((1, "out of memory".to_owned())) },
    };
    assert_eq!(choose_depth(4, measure).0, 1);
}
