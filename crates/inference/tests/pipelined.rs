//! Tests of batches in flight on a device that answers them in order.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use evaluator_doubles::conformance;
use game::{Action, ObservationShape};
use inference::{
    Attributes, Batch, BufferPool, Candidate, Device, Error, Evaluator, Hashing, InFlightBatch, PipelinedEvaluator,
    Predictions, Routed,
};

const SHAPE: ObservationShape = ObservationShape { planes: 2, height: 3, width: 3 };
const ACTIONS: usize = 9;
/// The timeout after which a wait fails the test.
const DEADLINE: Duration = Duration::from_secs(60);

/// A fake device that answers queued batches one after another and counts them.
#[derive(Default)]
struct Machine {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Default)]
struct Counts {
    queue: VecDeque<(u64, Batch)>,
    answers: HashMap<u64, Predictions>,
    submitted: u64,
    computed: usize,
    /// The number of batches at whose end the next one was already queued.
    overlapped: usize,
    under_way: usize,
    under_way_max: usize,
    is_over: bool,
}

impl Machine {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap()
    }

    fn wait<'a>(&self, counts: MutexGuard<'a, Counts>, goes_on: impl Fn(&Counts) -> bool) -> MutexGuard<'a, Counts> {
        let (counts, waited) = self.changed.wait_timeout_while(counts, DEADLINE, |counts| goes_on(counts)).unwrap();
        assert!(!waited.timed_out(), "nothing came for {DEADLINE:?}");
        counts
    }

    /// Processes batches until `is_over`. The first `overlaps` batches end only once the next one is queued.
    fn work(&self, overlaps: usize) {
        let mut evaluator = Hashing::new(SHAPE, 5);
        loop {
            let mut counts = self.wait(self.counts(), |counts| counts.queue.is_empty() && !counts.is_over);
            let Some((number, batch)) = counts.queue.pop_front() else { return };
            if counts.computed < overlaps {
                counts = self.wait(counts, |counts| counts.queue.is_empty());
            }
            counts.overlapped += usize::from(!counts.queue.is_empty());
            counts.computed += 1;
            let mut predictions = Predictions::new();
            evaluator.evaluate(&batch, &mut predictions).unwrap();
            counts.answers.insert(number, predictions);
            self.changed.notify_all();
        }
    }
}

/// The queue of a machine that rejects batches of more than `room` positions.
struct FakeQueue {
    machine: Arc<Machine>,
    room: usize,
    chunk: usize,
}

#[derive(Default)]
struct PendingBatch {
    staged: Option<Batch>,
    queued: Option<(Arc<Machine>, u64)>,
}

impl Device for FakeQueue {
    type InFlightBatch = PendingBatch;

    fn attributes(&self) -> Attributes {
        Attributes { name: "made up".into(), weights_version: 5, preferred_batch: self.chunk, max_batch: 4096 }
    }

    fn chunk(&self) -> usize {
        self.chunk
    }

    fn takes(&self) -> (ObservationShape, usize) {
        (SHAPE, ACTIONS)
    }

    fn flight(&self) -> PendingBatch {
        PendingBatch::default()
    }

    fn submit(&mut self, flight: &mut PendingBatch) -> Result<(), Error> {
        let batch = flight.staged.take().unwrap();
        if batch.len() > self.room {
            return Err(Error::Backend("out of memory".to_owned()));
        }
        let mut counts = self.machine.counts();
        let number = counts.submitted;
        counts.submitted += 1;
        counts.under_way += 1;
        counts.under_way_max = counts.under_way_max.max(counts.under_way);
        counts.queue.push_back((number, batch));
        drop(counts);
        self.machine.changed.notify_all();
        flight.queued = Some((Arc::clone(&self.machine), number));
        Ok(())
    }
}

impl InFlightBatch for PendingBatch {
    fn stage(&mut self, batch: &Batch, positions: Range<usize>) -> Result<(), Error> {
        let mut staged = Batch::new(batch.shape());
        for i in positions {
            staged.push(batch.legal(i), |planes| planes.copy_from_slice(batch.observation(i)));
        }
        self.staged = Some(staged);
        Ok(())
    }

    fn collect(&mut self, _: &Batch, positions: Range<usize>, predictions: &mut Predictions) -> Result<(), Error> {
        let (machine, number) = self.queued.take().unwrap();
        let mut counts = machine.wait(machine.counts(), |counts| !counts.answers.contains_key(&number));
        let answers = counts.answers.remove(&number).unwrap();
        counts.under_way -= 1;
        assert_eq!(answers.len(), positions.len());
        (0..answers.len()).for_each(|i| predictions.push(answers.priors(i), answers.value(i)));
        Ok(())
    }
}

/// Runs `body` with an evaluator on a machine with the given number of slots and capacity; returns the counters.
fn on_a_machine(
    slots: usize,
    room: usize,
    overlaps: usize,
    body: impl FnOnce(PipelinedEvaluator<FakeQueue>),
) -> Counts {
    /// Stops the machine when the body ends, even by a panic.
    struct StopOnDrop<'a>(&'a Machine);
    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.counts().is_over = true;
            self.0.changed.notify_all();
        }
    }
    let machine = Arc::<Machine>::default();
    thread::scope(|scope| {
        scope.spawn(|| machine.work(overlaps));
        let _over = StopOnDrop(&machine);
        let device = FakeQueue { machine: Arc::clone(&machine), room, chunk: 64 };
        body(PipelinedEvaluator::new(device, Arc::new(BufferPool::new(slots))));
    });
    std::mem::take(&mut *machine.counts())
}

/// Creates a batch of positions that occur in no other batch.
fn batch(positions: usize, marked: usize) -> Batch {
    let legal: Vec<Action> = (0..9).map(Action).collect();
    let mut batch = Batch::new(SHAPE);
    for i in 0..positions {
        batch.push(&legal, |planes| planes[i % 18] = 1.0 + (marked * 1000 + i) as f32);
    }
    batch
}

fn answers(evaluator: &mut dyn Evaluator, batch: &Batch) -> Vec<(Vec<f32>, f32)> {
    let mut predictions = Predictions::new();
    evaluator.evaluate(batch, &mut predictions).unwrap();
    (0..predictions.len()).map(|i| (predictions.priors(i).to_vec(), predictions.value(i).value())).collect()
}

/// Evaluates `batches` batches on each of `threads` threads and compares the answers.
fn evaluate_from_threads(evaluator: &PipelinedEvaluator<FakeQueue>, threads: usize, batches: usize) {
    thread::scope(|scope| {
        for thread in 0..threads {
            let mut evaluator = evaluator.beside();
            scope.spawn(move || {
                for i in 0..batches {
                    let batch = batch(1 + (i + thread) % 7, thread * batches + i);
                    assert_eq!(answers(&mut evaluator, &batch), answers(&mut Hashing::new(SHAPE, 5), &batch));
                }
            });
        }
    });
}

#[test]
fn the_pipelined_evaluator_conforms() {
    for slots in [1, 2] {
        on_a_machine(slots, 64, 0, |mut evaluator| conformance::run(&mut evaluator, SHAPE, ACTIONS, 0.0));
    }
}

#[test]
fn with_two_slots_the_next_batch_is_queued_before_one_ends() {
    let counts = on_a_machine(2, 64, 2 * 50 - 1, |evaluator| evaluate_from_threads(&evaluator, 2, 50));
    // The last batch has no successor.
    assert_eq!((counts.computed, counts.overlapped, counts.under_way_max), (100, 99, 2));
}

#[test]
fn with_one_slot_one_batch_is_under_way() {
    let counts = on_a_machine(1, 64, 0, |evaluator| evaluate_from_threads(&evaluator, 3, 20));
    assert_eq!((counts.computed, counts.overlapped, counts.under_way_max), (60, 0, 1));
}

#[test]
fn no_more_batches_are_in_flight_than_slots_and_each_answer_reaches_its_requester() {
    let counts = on_a_machine(3, 64, 0, |evaluator| evaluate_from_threads(&evaluator, 8, 50));
    assert!(counts.computed == 400 && counts.under_way_max <= 3, "{} at once", counts.under_way_max);
}

#[test]
fn evaluators_that_share_slots_share_the_limit_of_batches_in_flight() {
    let slots = Arc::new(BufferPool::new(1));
    let machine = Arc::<Machine>::default();
    let device = || FakeQueue { machine: Arc::clone(&machine), room: 64, chunk: 64 };
    let [old, new] = [(); 2].map(|()| PipelinedEvaluator::new(device(), Arc::clone(&slots)));
    thread::scope(|scope| {
        scope.spawn(|| machine.work(0));
        thread::scope(|scope| {
            for evaluator in [&old, &new] {
                scope.spawn(move || evaluate_from_threads(evaluator, 2, 10));
            }
        });
        machine.counts().is_over = true;
        machine.changed.notify_all();
    });
    let counts = machine.counts();
    assert_eq!((counts.computed, counts.under_way_max), (40, 1));
}

#[test]
fn a_failed_batch_releases_its_slot() {
    on_a_machine(1, 16, 0, |mut evaluator| {
        for _ in 0..3 {
            let error = evaluator.evaluate(&batch(17, 0), &mut Predictions::new()).unwrap_err();
            assert!(matches!(error, Error::Backend(_)), "{error}");
            assert_eq!(answers(&mut evaluator, &batch(16, 1)), answers(&mut Hashing::new(SHAPE, 5), &batch(16, 1)));
        }
    });
}

#[test]
fn a_batch_too_large_for_the_device_is_halved_and_then_routed_to_another_evaluator() {
    let reports = |room: usize| {
        let reported = Arc::<Mutex<Vec<String>>>::default();
        on_a_machine(2, room, 0, |evaluator| {
            let candidate = |evaluator: Box<dyn Evaluator>| Candidate { evaluator, speeds: Vec::new() };
            let candidates = vec![candidate(Box::new(evaluator)), candidate(Box::new(Hashing::new(SHAPE, 5)))];
            let reports = Arc::clone(&reported);
            let mut routed = Routed::new(candidates, 64, Box::new(move |text| reports.lock().unwrap().push(text)));
            assert_eq!(answers(&mut routed, &batch(64, 1)), answers(&mut Hashing::new(SHAPE, 5), &batch(64, 1)));
        });
        let reported = reported.lock().unwrap();
        (reported.len(), reported.last().cloned().unwrap_or_default())
    };
    assert_eq!(reports(20), (2, "made up failed at a batch of 32: out of memory; trying batches of 16".to_owned()));
    assert_eq!(reports(0), (7, "made up failed at a batch of 1: out of memory; hashing takes over".to_owned()));
}

#[test]
fn a_batch_larger_than_a_chunk_is_cut() {
    let counts = on_a_machine(1, 64, 0, |mut evaluator| {
        assert_eq!(answers(&mut evaluator, &batch(150, 3)), answers(&mut Hashing::new(SHAPE, 5), &batch(150, 3)));
    });
    assert_eq!(counts.computed, 3);
}
