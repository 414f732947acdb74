use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use game::Game;
use games::TicTacToe;
use inference::{Attributes, Batch, Error, Hashing, LatentPredictions, Predictions, Slot, Unroll};
use weights::{Architecture, Manifest, WeightsVersion};

use super::*;

thread_local! {
    /// Time that the evaluators of this thread have taken, in nanoseconds.
    static TAKEN_NS: Cell<u64> = const { Cell::new(0) };
}

/// An evaluator that predicts like [`Hashing`], takes a fixed virtual time in nanoseconds per call and per position,
/// and counts the calls.
struct BusyWork {
    inner: Hashing,
    name: &'static str,
    call: u32,
    position: u32,
    calls: Arc<AtomicUsize>,
}

impl Evaluator for BusyWork {
    fn attributes(&self) -> Attributes {
        Attributes { name: self.name.into(), ..self.inner.attributes() }
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let work = self.call + self.position * u32::try_from(batch.len()).unwrap();
        TAKEN_NS.set(TAKEN_NS.get() + u64::from(work));
        self.inner.evaluate(batch, predictions)
    }
}

struct FakeBackend {
    name: &'static str,
    call: u32,
    position: u32,
    takes_weights: bool,
    calls: Arc<AtomicUsize>,
}

impl Backend for FakeBackend {
    fn describe(&self) -> String {
        self.name.to_owned()
    }

    fn build(&self, _: &Manifest, _: &Bytes) -> Result<Box<dyn Evaluator>, crate::Error> {
        if !self.takes_weights {
            return Err(crate::Error::Other(format!("{} does not take them", self.name)));
        }
        let &Self { name, call, position, .. } = self;
        let inner = Hashing::new(TicTacToe::new().spec().observation, 7);
        Ok(Box::new(BusyWork { inner, name, call, position, calls: Arc::clone(&self.calls) }))
    }
}

fn manifest() -> Manifest {
    let spec = TicTacToe::new().spec().clone();
    let architecture = Architecture::plain(
        spec.name,
        [spec.observation.planes, spec.observation.height, spec.observation.width],
        spec.actions,
        [16, 1],
    );
    Manifest::of(&[], WeightsVersion(7), 1, architecture)
}

/// Returns a CPU with a constant cost per position, and a device with a high cost per call and no cost per position.
fn fake_choices(cpu: bool, device: bool) -> (Vec<Choice>, Arc<AtomicUsize>) {
    let calls = Arc::<AtomicUsize>::default();
    let choice = |name, call, position, takes_weights| {
        let calls = Arc::clone(&calls);
        let backend = Box::new(FakeBackend { name, call, position, takes_weights, calls });
        Choice { backend, is_shared: false }
    };
    (vec![choice("cpu", 0, 20_000, cpu), choice("device", 300_000, 0, device)], calls)
}

/// Stored speeds in memory, instead of a file.
type Memory = Arc<Mutex<Option<Vec<u8>>>>;

#[expect(clippy::disallowed_methods, reason = "engines are measured with a real clock")]
fn host(memory: &Memory) -> Host {
    let (read, written) = (Arc::clone(memory), Arc::clone(memory));
    let write = move |text: &[u8]| *written.lock().unwrap() = Some(text.to_vec());
    let speeds = Store::new(move || read.lock().unwrap().clone(), write);
    Host { clock: Instant::now, machine: "test".to_owned(), speeds }
}

fn measured(memory: &Memory, cpu: bool, device: bool, batch_max: usize) -> (Measured, Arc<AtomicUsize>) {
    let (choices, calls) = fake_choices(cpu, device);
    let mut measured = Measured::new(choices, Demand { threads: 1, batch_max }, host(memory));
    let zero = (measured.clock)();
    measured.clock = Arc::new(move || zero + Duration::from_nanos(TAKEN_NS.get()));
    (measured, calls)
}

#[test]
fn each_batch_size_gets_the_evaluator_that_was_fastest_at_it() {
    let memory = Memory::default();
    let (measured, _) = measured(&memory, true, true, 256);
    let name = measured.build(&manifest(), &Bytes::new()).unwrap().attributes().name;
    // 15 positions on the CPU cost as much as a call to the device, and sizes are measured by powers of two.
    assert_eq!(&*name, "cpu, device from batches of 16");
    assert_eq!(measured.describe(), &*name);
}

#[test]
fn measured_speeds_are_reused_by_the_next_start() {
    let memory = Memory::default();
    let (first, calls) = measured(&memory, true, true, 64);
    let name = first.build(&manifest(), &Bytes::new()).unwrap().attributes().name;
    assert!(calls.load(Ordering::Relaxed) > 0);
    let (second, calls) = measured(&memory, true, true, 64);
    assert_eq!(second.build(&manifest(), &Bytes::new()).unwrap().attributes().name, name);
    assert_eq!(calls.load(Ordering::Relaxed), 0, "nothing is measured again");
    // With another batch limit, the speeds are measured again.
    let (third, calls) = measured(&memory, true, true, 32);
    third.build(&manifest(), &Bytes::new()).unwrap();
    assert!(calls.load(Ordering::Relaxed) > 0);
}

#[test]
fn unreadable_stored_speeds_are_measured_again() {
    let memory = Memory::default();
    *memory.lock().unwrap() = Some(b"{\"half".to_vec());
    let (measured, calls) = measured(&memory, true, true, 8);
    measured.build(&manifest(), &Bytes::new()).unwrap();
    assert!(calls.load(Ordering::Relaxed) > 0);
    serde_json::from_slice::<Speeds>(memory.lock().unwrap().as_deref().unwrap()).unwrap();
}

#[test]
fn stored_speeds_in_an_earlier_format_are_measured_again() {
    let memory = Memory::default();
    let (first, _) = measured(&memory, true, true, 8);
    let key = first.key(&manifest().architecture);
    let earlier = serde_json::json!({ key: { "cpu": [[1, 1.0], [8, 1.0]], "device": [[1, 2.0], [8, 2.0]] } });
    *memory.lock().unwrap() = Some(earlier.to_string().into_bytes());
    let (measured, calls) = measured(&memory, true, true, 8);
    measured.build(&manifest(), &Bytes::new()).unwrap();
    assert!(calls.load(Ordering::Relaxed) > 0);
}

/// A device shared by threads, with a simulated clock. A batch takes two milliseconds at depth 1, half of this for the
/// transfer, and one millisecond with several batches in flight.
#[derive(Clone, Default)]
struct Queue {
    model: Option<&'static str>,
    is_lost: bool,
    depth: Arc<AtomicUsize>,
    clock_us: Arc<AtomicU64>,
    calls: Arc<AtomicUsize>,
}

struct OnQueue {
    inner: Hashing,
    queue: Queue,
}

impl Backend for Queue {
    fn describe(&self) -> String {
        "queue".to_owned()
    }

    fn build(&self, _: &Manifest, _: &Bytes) -> Result<Box<dyn Evaluator>, crate::Error> {
        let inner = Hashing::new(TicTacToe::new().spec().observation, 7);
        Ok(Box::new(OnQueue { inner, queue: self.clone() }))
    }

    fn set_in_flight(&self, depth: usize) {
        self.depth.store(depth, Ordering::Relaxed);
    }

    fn model(&self) -> Option<String> {
        self.model.map(str::to_owned)
    }
}

impl Evaluator for OnQueue {
    fn attributes(&self) -> Attributes {
        Attributes { name: "queue".into(), ..self.inner.attributes() }
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        let Queue { is_lost, depth, clock_us, calls, .. } = &self.queue;
        calls.fetch_add(1, Ordering::Relaxed);
        let us = if depth.load(Ordering::Relaxed) == 1 { 2000 } else { 1000 };
        clock_us.fetch_add(us, Ordering::Relaxed);
        if *is_lost {
            return Err(Error::Lost { device: "queue".to_owned(), reason: "it burns".to_owned() });
        }
        self.inner.evaluate(batch, predictions)
    }
}

#[expect(clippy::disallowed_methods, reason = "an Instant has no other beginning")]
fn queue(memory: &Memory, threads: usize, queue: Queue) -> (Measured, Queue) {
    let choices = vec![Choice { backend: Box::new(queue.clone()), is_shared: true }];
    let mut measured = Measured::new(choices, Demand { threads, batch_max: 4 }, host(memory));
    let (zero, us) = (Instant::now(), Arc::clone(&queue.clock_us));
    measured.clock = Arc::new(move || zero + Duration::from_micros(us.load(Ordering::Relaxed)));
    (measured, queue)
}

#[test]
fn the_fastest_depth_is_set_described_and_stored() {
    let memory = Memory::default();
    let (first, device) = queue(&memory, 4, Queue::default());
    first.build(&manifest(), &Bytes::new()).unwrap();
    // A third batch in flight gains nothing.
    assert_eq!((device.depth.load(Ordering::Relaxed), &*first.describe()), (2, "queue, 2 in flight"));
    let (second, device) = queue(&memory, 4, Queue::default());
    second.build(&manifest(), &Bytes::new()).unwrap();
    assert_eq!((device.depth.load(Ordering::Relaxed), device.calls.load(Ordering::Relaxed)), (2, 0));
}

#[test]
fn a_shared_device_is_measured_with_all_threads_at_a_few_sizes() {
    let memory = Memory::default();
    let (measured, _) = queue(&memory, 4, Queue::default());
    measured.build(&manifest(), &Bytes::new()).unwrap();
    let stored: Speeds = serde_json::from_slice(memory.lock().unwrap().as_deref().unwrap()).unwrap();
    let [queue] = stored.values().map(|speeds| &speeds["queue"]).collect::<Vec<_>>()[..] else { panic!("{stored:?}") };
    // Each batch takes a millisecond, on any thread.
    let rounded: Vec<_> =
        queue.speeds().iter().map(|speed| (speed.batch, speed.evaluations_per_second.round())).collect();
    assert_eq!(rounded, [(1, 1000.0), (4, 4000.0)]);
}

#[test]
fn speeds_of_another_model_of_accelerator_are_measured_again() {
    let memory = Memory::default();
    let of_model = |model| queue(&memory, 2, Queue { model: Some(model), ..Queue::default() });
    for (model, is_measured) in [("H100", true), ("H100", false), ("A100", true), ("A100", false), ("H100", false)] {
        let (measured, queue) = of_model(model);
        measured.build(&manifest(), &Bytes::new()).unwrap();
        assert_eq!(queue.calls.load(Ordering::Relaxed) > 0, is_measured, "{model}");
    }
}

#[test]
fn a_device_that_was_lost_while_it_was_measured_is_measured_again_at_the_next_start() {
    let memory = Memory::default();
    let (lost, _) = queue(&memory, 2, Queue { is_lost: true, ..Queue::default() });
    let mut evaluator = lost.build(&manifest(), &Bytes::new()).unwrap();
    let mut batch = Batch::new(TicTacToe::new().spec().observation);
    batch.push(&[game::Action(0)], |_| ());
    assert!(matches!(evaluator.evaluate(&batch, &mut Predictions::new()), Err(Error::Lost { .. })));
    let (next, device) = queue(&memory, 2, Queue::default());
    next.build(&manifest(), &Bytes::new()).unwrap();
    assert!(device.calls.load(Ordering::Relaxed) > 0);
}

#[test]
fn no_more_batches_are_in_flight_than_there_are_threads() {
    let memory = Memory::default();
    let (measured, device) = queue(&memory, 1, Queue::default());
    measured.build(&manifest(), &Bytes::new()).unwrap();
    assert_eq!((device.depth.load(Ordering::Relaxed), &*measured.describe()), (1, "queue, 1 in flight"));
}

#[test]
fn the_only_engine_that_accepts_the_weights_is_used_and_without_one_the_build_fails() {
    let memory = Memory::default();
    let (one, _) = measured(&memory, false, true, 8);
    assert_eq!(&*one.build(&manifest(), &Bytes::new()).unwrap().attributes().name, "device");
    let (none, _) = measured(&memory, false, false, 8);
    let error = none.build(&manifest(), &Bytes::new()).map(drop).unwrap_err();
    assert!(error.to_string().contains("does not take them"), "{error}");
}

/// The learned model of an engine. Recurrent steps cost a fixed amount of work per call and per step, or also fail.
#[derive(Debug, Clone, Copy)]
struct Learned {
    name: &'static str,
    call: u32,
    step: u32,
    takes_planes: bool,
    fails: bool,
}

const CPU: Learned = Learned { name: "cpu", call: 0, step: 20_000, takes_planes: true, fails: false };
const DEVICE: Learned = Learned { name: "device", call: 300_000, step: 0, takes_planes: true, fails: false };

impl LatentModel for Learned {
    fn attributes(&self) -> Attributes {
        Attributes { name: self.name.into(), weights_version: 7, preferred_batch: 64, max_batch: 1024 }
    }

    fn reserve(&mut self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn initial(&mut self, _: &Batch, _: &[Slot], _: &mut LatentPredictions) -> Result<(), Error> {
        Ok(())
    }

    fn recurrent(&mut self, steps: &[Unroll], _: &mut LatentPredictions) -> Result<(), Error> {
        let work = self.call + self.step * u32::try_from(steps.len()).unwrap();
        std::hint::black_box((0..work).fold(1.0_f64, |x, i| (x + f64::from(i)).sqrt()));
        if self.fails { Err(Error::Backend("the device is lost".to_owned())) } else { Ok(()) }
    }
}

impl Backend for Learned {
    fn describe(&self) -> String {
        self.name.to_owned()
    }

    fn build(&self, _: &Manifest, _: &Bytes) -> Result<Box<dyn Evaluator>, crate::Error> {
        unreachable!("the network is a MuZero network")
    }

    fn build_latent(&self, manifest: &Manifest, _: &Bytes) -> Result<Box<dyn LatentModel>, crate::Error> {
        if manifest.architecture.height > 1 && !self.takes_planes {
            return Err(crate::Error::Other(format!("{} takes no planes", self.name)));
        }
        Ok(Box::new(*self))
    }
}

/// Returns the name of the engine chosen for a MuZero network for tic-tac-toe and batches up to `batch_max`. The second
/// engine is shared.
fn latent_engine(batch_max: usize, engines: [Learned; 2]) -> Result<String, crate::Error> {
    let [first, second] = engines.map(Box::new);
    let choices = vec![Choice { backend: first, is_shared: false }, Choice { backend: second, is_shared: true }];
    let measured = Measured::new(choices, Demand { threads: 2, batch_max }, host(&Memory::default()));
    let mut manifest = manifest();
    manifest.architecture.model = weights::Model::Muzero { support: 5 };
    let network = measured.build_network(&manifest, &Bytes::new())?;
    assert!(matches!(network, crate::Network::Latent(_)), "{network:?}");
    assert_eq!(measured.describe(), &*network.attributes().name);
    Ok(network.attributes().name.to_string())
}

#[test]
fn latent_states_are_on_the_engine_that_is_fastest_in_the_largest_batches() {
    assert_eq!(latent_engine(1, [CPU, DEVICE]).unwrap(), "cpu");
    assert_eq!(latent_engine(512, [CPU, DEVICE]).unwrap(), "device");
}

#[test]
fn a_muzero_network_that_one_engine_does_not_take_is_built_by_the_other() {
    let device = Learned { takes_planes: false, ..DEVICE };
    assert_eq!(latent_engine(512, [CPU, device]).unwrap(), "cpu");
    let error = latent_engine(512, [Learned { takes_planes: false, ..CPU }, device]).unwrap_err();
    assert_eq!(error.to_string(), "cpu takes no planes", "the preferred engine gives the reason");
}

#[test]
fn an_engine_whose_recurrent_steps_fail_gets_no_latent_states() {
    assert_eq!(latent_engine(512, [CPU, Learned { fails: true, ..DEVICE }]).unwrap(), "cpu");
}

#[test]
fn an_engine_without_latent_states_is_named_in_the_error() {
    let mut manifest = manifest();
    manifest.architecture.model = weights::Model::Muzero { support: 5 };
    let error = Queue::default().build_network(&manifest, &Bytes::new()).unwrap_err();
    assert_eq!(error.to_string(), "queue does not support MuZero networks");
}
