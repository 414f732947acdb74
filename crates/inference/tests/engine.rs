//! Tests of the batching engine on a simulated device that works in order.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use evaluator_doubles::conformance;
use game::{Action, ObservationShape, mix};
use inference::{
    Attributes, BATCH_SIZES, Batch, BatchedEvaluator, BatchingEngine, Caller, Candidate, Device, DeviceError,
    EngineSettings, Error, Evaluator, Hashing, LoadedNetwork, Predictions, Routed, Weights,
};

const SHAPE: ObservationShape = ObservationShape { planes: 2, height: 3, width: 3 };
const ACTIONS: usize = 9;
/// Timeout after which a wait fails the test.
const DEADLINE: Duration = Duration::from_secs(60);
/// A request of another kind is answered as by a later version.
const OF_KIND: u64 = 100;
/// Duration of a batch on the simulated clock.
const BATCH_US: u64 = 200;

/// Writes the logits of a position: pseudo-random numbers that depend on the observation, the action and the version.
fn write_logits(observation: &[f32], version: u64, logits: &mut [f32]) {
    let hash = observation.iter().fold(mix(version), |hash, x| mix(hash ^ u64::from(x.to_bits())));
    for (index, logit) in (0..).zip(logits) {
        *logit = (mix(hash ^ index) >> 40) as f32 / (1_u64 << 22) as f32;
    }
}

/// An evaluator that computes the same results as the machine, one position after another.
struct Alone(u64);

impl Evaluator for Alone {
    fn attributes(&self) -> Attributes {
        attributes(self.0)
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        predictions.clear();
        let mut logits = [0.0; ACTIONS + 3];
        for i in 0..batch.len() {
            write_logits(batch.observation(i), self.0, &mut logits);
            let [.., win, draw, loss] = logits;
            assert!(predictions.push_logits(&logits[..ACTIONS], batch.legal(i), [win, draw, loss]));
        }
        Ok(())
    }
}

fn attributes(version: u64) -> Attributes {
    Attributes { name: "machine".into(), weights_version: version, preferred_batch: 256, max_batch: 4096 }
}

/// The state of a simulated device, shared with the test.
#[derive(Default)]
struct Machine {
    log: Mutex<Log>,
    changed: Condvar,
    clock_us: AtomicU64,
    /// While true, the clock stands still, so that the device thread waits for requests while a batch is in flight.
    /// The submission of a second batch resets this.
    is_held: AtomicBool,
}

#[derive(Default)]
struct Log {
    /// Submitted batches: version, to which a kind adds [`OF_KIND`], size and the earlier versions in flight.
    batches: Vec<(u64, usize, Vec<u64>)>,
    in_flight_max: usize,
    /// Threads that called the device or dropped device weights.
    threads: Vec<ThreadId>,
    freed: Vec<u64>,
    reports: Vec<String>,
}

impl Machine {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap()
    }

    fn wait_for(&self, holds: impl Fn(&Log) -> bool) {
        let (log, waited) = self.changed.wait_timeout_while(self.log(), DEADLINE, |log| !holds(log)).unwrap();
        drop(log);
        assert!(!waited.timed_out(), "nothing came for {DEADLINE:?}");
    }

    fn note_thread(&self) {
        let (mut log, thread) = (self.log(), thread::current().id());
        if !log.threads.contains(&thread) {
            log.threads.push(thread);
        }
    }
}

/// A fault of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    None,
    /// Batches of at least this size are rejected.
    TooLarge(usize),
    /// Batches of at least this size fail during the computation.
    TooLargeLate(usize),
    /// The batch with this number fails on submission or during the computation, by an error or by a panic.
    Submit(usize),
    Wait(usize),
    PanicInSubmit(usize),
    PanicInWait(usize),
}

struct Simulated {
    machine: Arc<Machine>,
    failure: Failure,
    in_flight: VecDeque<u64>,
    submitted: usize,
    waited: usize,
}

struct OnDevice {
    version: u64,
    machine: Arc<Machine>,
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        self.machine.note_thread();
        self.machine.log().freed.push(self.version);
        self.machine.changed.notify_all();
    }
}

struct InFlight {
    number: usize,
    size: usize,
    version: u64,
    observations: Vec<f32>,
}

impl Device for Simulated {
    type Prepared = u64;
    type Weights = OnDevice;
    type InFlight = InFlight;

    fn load(&mut self, version: u64) -> Result<OnDevice, DeviceError> {
        self.machine.note_thread();
        match version {
            0 => Err(DeviceError::Failed("version 0 does not exist".to_owned())),
            _ => Ok(OnDevice { version, machine: Arc::clone(&self.machine) }),
        }
    }

    fn submit(
        &mut self,
        weights: &OnDevice,
        kind: usize,
        size: usize,
        stage: &mut dyn FnMut(&mut [f32]),
    ) -> Result<InFlight, DeviceError> {
        self.machine.note_thread();
        let number = self.submitted;
        self.submitted += 1;
        match self.failure {
            Failure::TooLarge(limit) if size >= limit => {
                return Err(DeviceError::OutOfMemory("the memory is full".to_owned()));
            }
            Failure::Submit(broken) if number == broken => return Err(DeviceError::Failed("it burns".to_owned())),
            Failure::PanicInSubmit(broken) => assert!(number != broken, "the test makes it panic"),
            _ => {}
        }
        // Memory left by an earlier batch must not be visible.
        let mut observations = vec![f32::NAN; size * SHAPE.len()];
        stage(&mut observations);
        assert!(observations.iter().all(|x| x.is_finite()), "everything is written");
        let mut log = self.machine.log();
        let version = weights.version + OF_KIND * kind as u64;
        log.batches.push((version, size, self.in_flight.iter().copied().collect()));
        self.in_flight.push_back(version);
        log.in_flight_max = log.in_flight_max.max(self.in_flight.len());
        drop(log);
        if self.in_flight.len() > 1 {
            self.machine.is_held.store(false, Ordering::Relaxed);
        }
        self.machine.changed.notify_all();
        Ok(InFlight { number, size, version, observations })
    }

    fn wait(&mut self, batch: InFlight, read: &mut dyn FnMut(&[f32])) -> Result<(), DeviceError> {
        self.machine.note_thread();
        let InFlight { number, size, version, observations } = batch;
        self.in_flight.pop_front();
        match self.failure {
            Failure::TooLargeLate(limit) if size >= limit => {
                return Err(DeviceError::OutOfMemory("the memory is full".to_owned()));
            }
            Failure::Wait(broken) if number == broken => return Err(DeviceError::Failed("it burns".to_owned())),
            Failure::PanicInWait(broken) => assert!(number != broken, "the test makes it panic"),
            Failure::TooLarge(_) | Failure::TooLargeLate(_) => {}
            _ => assert_eq!(number, self.waited, "batches are waited for in their order"),
        }
        self.waited += 1;
        self.machine.clock_us.fetch_add(BATCH_US, Ordering::Relaxed);
        let mut logits = vec![0.0; size * (ACTIONS + 3)];
        for (row, logits) in observations.chunks_exact(SHAPE.len()).zip(logits.chunks_exact_mut(ACTIONS + 3)) {
            write_logits(row, version, logits);
        }
        read(&logits);
        Ok(())
    }
}

/// An engine on a simulated device, and the device's state.
struct Bench {
    machine: Arc<Machine>,
    engine: BatchingEngine<Simulated>,
}

#[expect(clippy::disallowed_methods, reason = "an Instant has no other beginning; only differences count")]
fn bench(depth: usize, failure: Failure) -> Bench {
    let machine = Arc::<Machine>::default();
    let (zero, of_clock, of_report) = (Instant::now(), Arc::clone(&machine), Arc::clone(&machine));
    // Each reading advances the clock, so that no wait with a limit lasts forever.
    let clock = move || {
        let step = if of_clock.is_held.load(Ordering::Relaxed) { 0 } else { 50 };
        zero + Duration::from_micros(of_clock.clock_us.fetch_add(step, Ordering::Relaxed))
    };
    let settings = EngineSettings {
        device: "cuda:7".into(),
        batch_sizes: BATCH_SIZES.to_vec(),
        in_flight: depth,
        in_flight_max: 3,
        clock: Box::new(clock),
        report: Box::new(move |text| of_report.log().reports.push(text)),
    };
    let (in_flight, submitted, waited) = (VecDeque::new(), 0, 0);
    let device = Simulated { machine: Arc::clone(&machine), failure, in_flight, submitted, waited };
    Bench { machine, engine: BatchingEngine::start(device, settings).unwrap() }
}

impl Bench {
    fn load(&self, version: u64) -> Result<Weights<Simulated>, Error> {
        let write_rows = |_: ObservationShape, from: &[f32], to: &mut [f32]| to.copy_from_slice(from);
        let network = LoadedNetwork { attributes: attributes(version), shape: SHAPE, actions: ACTIONS, write_rows };
        self.engine.load(version, network)
    }

    fn evaluator(&self, version: u64) -> BatchedEvaluator<Simulated> {
        self.load(version).unwrap().evaluator()
    }
}

/// Returns a batch of positions that occur in no batch with another mark.
fn batch(positions: usize, mark: usize) -> Batch {
    let mut batch = Batch::new(SHAPE);
    for i in 0..positions {
        let legal: Vec<Action> =
            (0..9).filter(|action| !(*action as usize + i).is_multiple_of(4)).map(Action).collect();
        batch.push(&legal, |planes| planes[i % 18] = 1.0 + (mark * 5000 + i) as f32);
    }
    batch
}

fn answers(evaluator: &mut dyn Evaluator, batch: &Batch) -> Result<Vec<(Vec<f32>, f32)>, Error> {
    let mut predictions = Predictions::new();
    evaluator.evaluate(batch, &mut predictions)?;
    assert_eq!(predictions.len(), batch.len());
    Ok((0..predictions.len()).map(|i| (predictions.priors(i).to_vec(), predictions.value(i))).collect())
}

fn assert_answered(evaluator: &mut dyn Evaluator, version: u64, batch: &Batch) {
    assert_eq!(answers(evaluator, batch).unwrap(), answers(&mut Alone(version), batch).unwrap());
}

/// Evaluates `rounds` batches of pseudo-random sizes up to `positions_max` on each of `threads` threads, with
/// alternating versions, and compares the results with a single thread.
fn evaluate_from_threads(bench: &Bench, versions: &[u64], threads: usize, rounds: usize, positions_max: u64) {
    thread::scope(|scope| {
        for index in 0..threads {
            let version = versions[index % versions.len()];
            let mut evaluator = bench.evaluator(version);
            scope.spawn(move || {
                for round in 0..rounds {
                    let mark = index * rounds + round;
                    let positions = 1 + (mix(mark as u64) % positions_max) as usize;
                    assert_answered(&mut evaluator, version, &batch(positions, mark));
                }
            });
        }
    });
}

#[test]
fn the_batched_evaluator_conforms() {
    for depth in 1..=3 {
        conformance::run(&mut bench(depth, Failure::None).evaluator(5), SHAPE, ACTIONS, 0.0);
    }
}

#[test]
fn answers_of_many_threads_equal_those_of_one() {
    for depth in 1..=3 {
        let bench = bench(depth, Failure::None);
        evaluate_from_threads(&bench, &[5], 8, 40, 300);
        let log = bench.machine.log();
        assert!(log.in_flight_max <= depth, "{} in flight of {depth}", log.in_flight_max);
        assert!(log.batches.iter().all(|(_, size, _)| BATCH_SIZES.contains(size)));
        let counts = bench.engine.counts();
        assert_eq!(counts.batches, log.batches.len() as u64);
        assert_eq!(counts.padded_positions, log.batches.iter().map(|(_, size, _)| *size as u64).sum::<u64>());
        assert!(counts.positions <= counts.padded_positions && counts.busy > Duration::ZERO);
    }
}

#[test]
fn requests_larger_than_the_largest_batch_are_split() {
    let bench = bench(2, Failure::None);
    let mut evaluator = bench.evaluator(5);
    assert_answered(&mut evaluator, 5, &batch(4096, 0));
    evaluate_from_threads(&bench, &[5], 3, 4, 4096);
}

#[test]
fn versions_are_answered_side_by_side_and_never_mixed() {
    evaluate_from_threads(&bench(2, Failure::None), &[5, 6, 7], 9, 40, 50);
}

/// Lets the device compute one batch of version `first` until `body`, which receives evaluators for `others` more
/// threads, has sent enough for another batch.
fn while_a_batch_is_in_flight(
    bench: &Bench,
    first: u64,
    others: usize,
    body: impl FnOnce(Vec<BatchedEvaluator<Simulated>>),
) {
    let weights = bench.load(first).unwrap();
    let mut evaluators: Vec<_> = (0..=others).map(|_| weights.evaluator()).collect();
    // The engine learns the size of requests and the duration of a batch.
    evaluators.iter_mut().for_each(|evaluator| assert_answered(evaluator, first, &batch(8, 1)));
    let mut held = evaluators.remove(0);
    let before = bench.machine.log().batches.len();
    bench.machine.is_held.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(move || assert_answered(&mut held, first, &batch(16, 2)));
        bench.machine.wait_for(|log| log.batches.len() == before + 1);
        body(evaluators);
    });
}

#[test]
fn new_weights_are_loaded_and_used_while_a_batch_of_the_old_ones_is_in_flight() {
    let bench = bench(2, Failure::None);
    while_a_batch_is_in_flight(&bench, 5, 3, |_others| {
        // A full batch is submitted after the old batch without waiting for it.
        assert_answered(&mut bench.evaluator(6), 6, &batch(16, 3));
    });
    let log = bench.machine.log();
    assert!(log.batches.contains(&(6, 16, vec![5])), "{:?}", log.batches);
}

#[test]
fn requests_of_several_threads_share_a_batch() {
    let bench = bench(2, Failure::None);
    while_a_batch_is_in_flight(&bench, 5, 4, |others| {
        thread::scope(|scope| {
            for (mark, mut evaluator) in others.into_iter().take(2).enumerate() {
                scope.spawn(move || assert_answered(&mut evaluator, 5, &batch(8, 10 + mark)));
            }
        });
    });
    // Two requests of eight positions were merged into one batch of sixteen.
    assert_eq!(bench.machine.log().batches.last().unwrap(), &(5, 16, vec![5]));
    let counts = bench.engine.counts();
    assert_eq!(counts.padded_positions - counts.positions, 5 * 8, "only the five first requests were padded");
}

#[test]
fn all_calls_are_made_and_all_weights_freed_by_one_thread() {
    let bench = bench(2, Failure::None);
    for version in 1..=3 {
        evaluate_from_threads(&bench, &[version], 2, 3, 20);
    }
    // Each thread loaded a separate copy.
    bench.machine.wait_for(|log| log.freed.len() == 6);
    let log = bench.machine.log();
    assert_eq!(log.threads.len(), 1);
    assert_ne!(log.threads[0], thread::current().id());
}

#[test]
fn weights_live_as_long_as_an_evaluator() {
    let bench = bench(2, Failure::None);
    let mut evaluator = bench.evaluator(1);
    drop(bench.evaluator(2));
    bench.machine.wait_for(|log| log.freed == [2]);
    assert_answered(&mut evaluator, 1, &batch(3, 0));
    drop(evaluator);
    bench.machine.wait_for(|log| log.freed == [2, 1]);
}

#[test]
fn rejected_weights_are_an_error_and_the_device_stays_usable() {
    let bench = bench(2, Failure::None);
    let error = bench.load(0).unwrap_err();
    let expected = "the evaluator failed: cuda:7 does not support the weights: version 0 does not exist";
    assert_eq!(error.to_string(), expected);
    assert_answered(&mut bench.evaluator(1), 1, &batch(3, 0));
}

#[test]
fn a_batch_that_does_not_fit_is_repeated_in_smaller_ones_and_reported_once() {
    for failure in [Failure::TooLarge(64), Failure::TooLargeLate(64)] {
        let bench = bench(2, failure);
        let mut evaluator = bench.evaluator(5);
        assert_answered(&mut evaluator, 5, &batch(60, 0));
        assert_answered(&mut evaluator, 5, &batch(200, 1));
        evaluate_from_threads(&bench, &[5], 4, 10, 300);
        let log = bench.machine.log();
        let expected = "not enough memory on cuda:7 for batches of 64; using up to 32: the memory is full";
        assert_eq!(log.reports, [expected], "{failure:?}");
        let too_large = log.batches.iter().filter(|(_, size, _)| *size >= 64).count();
        assert_eq!(too_large, usize::from(failure == Failure::TooLargeLate(64)));
        assert_eq!(bench.engine.counts().out_of_memory, 1);
    }
}

#[test]
fn a_device_without_memory_for_the_smallest_batch_is_lost() {
    let bench = bench(2, Failure::TooLarge(1));
    let error = answers(&mut bench.evaluator(5), &batch(60, 0)).unwrap_err();
    assert!(error.to_string().contains("cuda:7 failed: not enough memory for the smallest batch"), "{error}");
}

#[test]
fn a_lost_device_is_named_and_fails_every_request() {
    for (failure, reason) in [
        (Failure::Submit(3), "it burns"),
        (Failure::Wait(3), "it burns"),
        (Failure::PanicInSubmit(3), "the thread panicked"),
        (Failure::PanicInWait(3), "the thread panicked"),
    ] {
        for depth in [1, 2] {
            let bench = bench(depth, failure);
            let weights = bench.load(5).unwrap();
            thread::scope(|scope| {
                for mark in 0..6 {
                    let mut evaluator = weights.evaluator();
                    scope.spawn(move || {
                        let error = loop {
                            if let Err(error) = answers(&mut evaluator, &batch(20, mark)) {
                                break error;
                            }
                        };
                        assert_eq!(error.to_string(), format!("the device cuda:7 failed: {reason}"));
                        // Later requests fail, too.
                        assert!(matches!(answers(&mut evaluator, &batch(1, mark)), Err(Error::Lost { .. })));
                    });
                }
            });
            assert!(matches!(bench.load(6), Err(Error::Lost { .. })));
            drop(weights);
            bench.machine.wait_for(|log| log.freed == [5]);
        }
    }
}

#[test]
fn after_the_loss_of_a_device_another_evaluator_takes_over_at_once() {
    let bench = bench(2, Failure::Submit(1));
    let candidate = |evaluator: Box<dyn Evaluator>| Candidate { evaluator, speeds: Vec::new() };
    let candidates = vec![candidate(Box::new(bench.evaluator(5))), candidate(Box::new(Hashing::new(SHAPE, 5)))];
    let reports = Arc::clone(&bench.machine);
    let mut routed = Routed::new(candidates, 64, Box::new(move |text| reports.log().reports.push(text)));
    assert_answered(&mut routed, 5, &batch(64, 1));
    assert_eq!(
        answers(&mut routed, &batch(64, 1)).unwrap(),
        answers(&mut Hashing::new(SHAPE, 5), &batch(64, 1)).unwrap()
    );
    let expected = "machine failed at a batch of 64: the device cuda:7 failed: it burns; switching to hashing";
    assert_eq!(bench.machine.log().reports, [expected.to_owned()]);
}

#[test]
fn without_another_evaluator_the_error_names_the_lost_device() {
    let bench = bench(2, Failure::Submit(0));
    let candidate = Candidate { evaluator: Box::new(bench.evaluator(5)), speeds: Vec::new() };
    let mut routed = Routed::new(vec![candidate], 64, Box::new(|_| ()));
    let error = answers(&mut routed, &batch(64, 1)).unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
}

#[test]
fn a_dropped_engine_joins_its_thread_and_fails_the_evaluators_that_are_left() {
    let bench = bench(2, Failure::None);
    let mut evaluator = bench.evaluator(5);
    assert_answered(&mut evaluator, 5, &batch(3, 0));
    let Bench { machine, engine } = bench;
    drop(engine);
    // The thread has ended: the weights are freed without waiting.
    assert_eq!(machine.log().freed, [5]);
    let error = answers(&mut evaluator, &batch(3, 0)).unwrap_err();
    assert_eq!(error.to_string(), "the device cuda:7 failed: the engine was stopped");
}

#[test]
fn requests_that_wait_when_the_engine_is_dropped_are_answered() {
    for _ in 0..20 {
        let bench = bench(2, Failure::None);
        let weights = bench.load(5).unwrap();
        thread::scope(|scope| {
            for mark in 0..6 {
                let mut evaluator = weights.evaluator();
                scope.spawn(move || while answers(&mut evaluator, &batch(20, mark)).is_ok() {});
            }
            bench.machine.wait_for(|log| log.batches.len() > 5);
            drop(bench.engine);
        });
    }
}

#[test]
fn the_depth_can_change_while_batches_are_in_flight() {
    let bench = bench(1, Failure::None);
    thread::scope(|scope| {
        scope.spawn(|| evaluate_from_threads(&bench, &[5], 4, 50, 40));
        for depth in [2, 3, 1, 9, 0, 2] {
            bench.engine.set_in_flight(depth);
            assert_eq!(bench.engine.in_flight(), depth.clamp(1, 3));
        }
    });
    assert!(bench.machine.log().in_flight_max <= 3);
}

/// Sends rows of numbers that occur in no request with another mark.
fn send(caller: &mut Caller<Simulated>, rows: usize, mark: usize) {
    caller.send(rows, [SHAPE.len(), ACTIONS + 3], |numbers| numbers.copy_from_slice(batch(rows, mark).observations()));
}

/// Waits for the answers to these rows, and compares them with the answers by a version to one row after another.
fn assert_received(caller: &mut Caller<Simulated>, version: u64, rows: usize, mark: usize) {
    let mut expected = vec![0.0; rows * (ACTIONS + 3)];
    for (row, logits) in
        batch(rows, mark).observations().chunks_exact(SHAPE.len()).zip(expected.chunks_exact_mut(ACTIONS + 3))
    {
        write_logits(row, version, logits);
    }
    assert_eq!(caller.receive().unwrap(), expected);
}

#[test]
fn kinds_of_requests_and_versions_are_answered_side_by_side_and_never_mixed() {
    for failure in [Failure::None, Failure::TooLarge(64), Failure::TooLargeLate(64)] {
        let bench = bench(2, failure);
        let weights = [5, 6].map(|version| bench.load(version).unwrap());
        thread::scope(|scope| {
            for index in 0..8 {
                let (kind, version) = (index % 3, 5 + index as u64 % 2);
                let mut caller = weights[index % 2].caller(kind);
                scope.spawn(move || {
                    for mark in (40 * index..).take(40) {
                        let rows = 1 + (mix(mark as u64) % 100) as usize;
                        send(&mut caller, rows, mark);
                        assert_received(&mut caller, version + OF_KIND * kind as u64, rows, mark);
                    }
                });
            }
        });
        assert!(bench.machine.log().batches.iter().all(|(version, ..)| [0, 1, 2].contains(&(version / OF_KIND))));
    }
}

#[test]
fn one_thread_has_a_request_of_each_kind_under_way_before_it_waits_for_any() {
    let bench = bench(3, Failure::None);
    let weights = bench.load(5).unwrap();
    let mut callers: Vec<_> = (0..3).map(|kind| weights.caller(kind)).collect();
    for mark in 0..4 {
        callers.iter_mut().for_each(|caller| send(caller, 20, mark));
        assert!(callers.iter().all(Caller::is_waiting));
        bench.machine.wait_for(|log| log.batches.len() == 3 * (mark + 1));
        for (caller, kind) in callers.iter_mut().zip(0..) {
            assert_received(caller, 5 + OF_KIND * kind, 20, mark);
        }
    }
}

#[test]
fn a_caller_is_dropped_after_the_request_was_computed() {
    let bench = bench(1, Failure::None);
    let weights = bench.load(5).unwrap();
    for count in 1..10 {
        let mut caller = weights.caller(1);
        send(&mut caller, 20, count);
        drop(caller);
        assert_eq!(bench.engine.counts().batches, count as u64);
    }
}

#[test]
fn callers_with_requests_under_way_are_answered_when_the_device_fails_and_when_the_engine_is_dropped() {
    for failure in [Failure::Submit(2), Failure::Wait(2), Failure::None] {
        for _ in 0..20 {
            let bench = bench(2, failure);
            let weights = bench.load(5).unwrap();
            let mut callers: Vec<_> = (0..12).map(|index| weights.caller(index % 3)).collect();
            callers.iter_mut().for_each(|caller| send(caller, 20, 1));
            drop(bench.engine);
            for caller in &mut callers {
                assert!(matches!(caller.receive().map(drop), Ok(()) | Err(Error::Lost { .. })));
                send(caller, 20, 2);
                assert!(matches!(caller.receive().map(drop), Err(Error::Lost { .. })));
            }
        }
    }
}

#[test]
fn something_else_is_loaded_for_weights_and_freed_by_itself() {
    let bench = bench(2, Failure::None);
    let weights = bench.load(5).unwrap();
    let further = weights.load(6).unwrap();
    assert!(matches!(weights.load(0), Err(Error::Backend(_))));
    drop(further);
    bench.machine.wait_for(|log| log.freed == [6]);
    assert_answered(&mut weights.evaluator(), 5, &batch(3, 0));
}
