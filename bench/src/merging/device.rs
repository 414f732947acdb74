use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use game::{ObservationShape, Outcome, Spec};
use inference::{
    Attributes, BATCH_SIZES, Batch, BatchingEngine, DEPTH_MAX, Device, DeviceError, EngineCounts, EngineSettings,
    Error, Evaluator, LoadedNetwork, Predictions, Weights,
};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::Args;

/// The largest batch of the simulated device.
const BATCH_MAX: usize = 4096;

/// The time that the device takes for a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) batch: Duration,
    pub(super) position: Duration,
}

impl Cost {
    pub(super) fn of(self, positions: usize) -> Duration {
        self.batch + self.position * u32::try_from(positions).unwrap_or(u32::MAX)
    }
}

/// The sequence of batches on the device, one at a time and in order.
#[derive(Debug)]
struct Timeline {
    cost: Cost,
    free_at: Instant,
}

impl Timeline {
    fn new(cost: Cost) -> Self {
        Self { cost, free_at: Instant::now() }
    }

    /// Submits a batch and returns the time of its end.
    fn submit(&mut self, positions: usize) -> Instant {
        self.free_at = self.free_at.max(Instant::now()) + self.cost.of(positions);
        self.free_at
    }
}

fn sleep_until(end: Instant) {
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
}

/// Random logits for the largest batch, `[BATCH_MAX, A + 3]`.
fn random_logits(actions: usize) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    (0..BATCH_MAX * (actions + Outcome::RESULTS)).map(|_| rng.random_range(-1.0..1.0)).collect()
}

/// The device behind an engine.
struct Simulated {
    timeline: Timeline,
    upload: Duration,
    /// Numbers that a real device would take.
    observations: VecDeque<Vec<f32>>,
    logits: Vec<f32>,
    shape: ObservationShape,
}

struct InFlight {
    size: usize,
    end: Instant,
    observations: Vec<f32>,
}

impl Device for Simulated {
    type Prepared = ();
    type Weights = ();
    type InFlight = InFlight;

    fn load(&mut self, (): ()) -> Result<(), DeviceError> {
        std::thread::sleep(self.upload);
        Ok(())
    }

    fn submit(&mut self, (): &(), size: usize, stage: &mut dyn FnMut(&mut [f32])) -> Result<InFlight, DeviceError> {
        let mut observations = self.observations.pop_front().unwrap_or_default();
        observations.resize(size * self.shape.len(), 0.0);
        stage(&mut observations);
        Ok(InFlight { size, end: self.timeline.submit(size), observations })
    }

    fn has_ended(&mut self, batch: &InFlight) -> bool {
        Instant::now() >= batch.end
    }

    fn wait(&mut self, batch: InFlight, read: &mut dyn FnMut(&[f32])) -> Result<(), DeviceError> {
        sleep_until(batch.end);
        self.observations.push_back(batch.observations);
        read(&self.logits[..batch.size * (self.logits.len() / BATCH_MAX)]);
        Ok(())
    }
}

/// An engine on the device, and the newest weights.
pub(super) struct Merged {
    newest: Mutex<(u64, Weights<Simulated>)>,
    engine: BatchingEngine<Simulated>,
    network: LoadedNetwork,
    prepare: Duration,
}

impl Merged {
    pub(super) fn start(spec: &Spec, args: &Args) -> anyhow::Result<Self> {
        let device = Simulated {
            timeline: Timeline::new(args.cost()),
            upload: Duration::from_millis(args.upload_ms),
            observations: VecDeque::new(),
            logits: random_logits(spec.actions),
            shape: spec.observation,
        };
        let settings = EngineSettings {
            device: "simulated".into(),
            batch_sizes: BATCH_SIZES.to_vec(),
            in_flight: args.in_flight,
            in_flight_max: DEPTH_MAX,
            clock: Box::new(Instant::now),
            report: Box::new(|_| ()),
        };
        let engine = BatchingEngine::start(device, settings)?;
        let network = LoadedNetwork {
            attributes: attributes(),
            shape: spec.observation,
            actions: spec.actions,
            write_rows: |_, observations, to| to.copy_from_slice(observations),
        };
        let weights = engine.load((), network.clone())?;
        let prepare = Duration::from_millis(args.prepare_ms);
        Ok(Self { newest: Mutex::new((1, weights)), engine, network, prepare })
    }

    pub(super) fn counts(&self) -> EngineCounts {
        self.engine.counts()
    }

    /// Builds the evaluator of a version, and waits for another thread that does.
    pub(super) fn evaluator(&self, version: u64) -> anyhow::Result<Box<dyn Evaluator>> {
        let mut newest = self.newest.lock().map_err(|_| anyhow!("a thread panicked"))?;
        self.evaluator_of(version, &mut newest)
    }

    /// Builds the evaluator of a version; `None` while another thread prepares it.
    pub(super) fn try_evaluator(&self, version: u64) -> anyhow::Result<Option<Box<dyn Evaluator>>> {
        match self.newest.try_lock() {
            Ok(mut newest) => self.evaluator_of(version, &mut newest).map(Some),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Poisoned(_)) => Err(anyhow!("a thread panicked")),
        }
    }

    fn evaluator_of(&self, version: u64, newest: &mut (u64, Weights<Simulated>)) -> anyhow::Result<Box<dyn Evaluator>> {
        if newest.0 != version {
            std::thread::sleep(self.prepare);
            *newest = (version, self.engine.load((), self.network.clone())?);
        }
        Ok(Box::new(newest.1.evaluator()))
    }
}

fn attributes() -> Attributes {
    Attributes { name: "simulated".into(), weights_version: 1, preferred_batch: BATCH_MAX, max_batch: BATCH_MAX }
}

/// The device without an engine: each thread submits a batch of its own, and as many threads as batches may be in
/// flight do so at a time; the others wait.
pub(super) struct Separate {
    timeline: Mutex<Timeline>,
    free: Mutex<usize>,
    freed: Condvar,
    logits: Vec<f32>,
    spec: Spec,
}

impl Separate {
    pub(super) fn new(spec: &Spec, cost: Cost, in_flight: usize) -> Self {
        Self {
            timeline: Mutex::new(Timeline::new(cost)),
            free: Mutex::new(in_flight),
            freed: Condvar::new(),
            logits: random_logits(spec.actions),
            spec: spec.clone(),
        }
    }

    pub(super) fn evaluator(separate: &Arc<Self>) -> Box<dyn Evaluator> {
        Box::new(OfThread { shared: Arc::clone(separate), observations: Vec::new() })
    }

    /// Stages, submits and waits, with one of the places for batches in flight.
    fn compute(&self, batch: &Batch, observations: &mut Vec<f32>) {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        drop(free);
        observations.clear();
        observations.extend_from_slice(batch.observations());
        // Padded to one of eight sizes for each power of two.
        let padded = batch.len().next_multiple_of((batch.len().next_power_of_two() / 16).max(1));
        let end = self.timeline.lock().unwrap_or_else(PoisonError::into_inner).submit(padded);
        sleep_until(end);
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.freed.notify_one();
    }
}

/// The evaluator of one thread.
struct OfThread {
    shared: Arc<Separate>,
    observations: Vec<f32>,
}

impl Evaluator for OfThread {
    fn attributes(&self) -> Attributes {
        attributes()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        predictions.clear();
        let Separate { spec, logits, .. } = &*self.shared;
        batch.check(spec.observation, spec.actions, BATCH_MAX)?;
        self.shared.compute(batch, &mut self.observations);
        for (i, row) in logits.chunks_exact(spec.actions + Outcome::RESULTS).take(batch.len()).enumerate() {
            let (policy, wdl) = row.split_at(spec.actions);
            if !predictions.push_logits(policy, batch.legal(i), [wdl[0], wdl[1], wdl[2]]) {
                return Err(Error::NotFinite { weights_version: 1 });
            }
        }
        Ok(())
    }
}
