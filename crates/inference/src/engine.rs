//! The batching engine: merges requests from many threads into batches for one device.
//!
//! A request is positions to evaluate or, from a [`Caller`], other rows, such as steps of a learned model. A batch has
//! one version and one kind of rows.
//!
//! An evaluating thread writes observations into a private buffer, in the order that the device takes, sends the
//! buffer to the only thread that uses the device, and sleeps until the logits are in a second buffer. The device
//! thread copies rows of several requests into one batch, keeps a few batches in flight, and wakes the threads with
//! complete answers. It outlives weights versions: each request holds the evaluating version, and batches of
//! different versions can be in flight together. [`schedule`] decides when a batch is submitted and how large it is.

mod caller;
mod device;
mod device_thread;
mod queue;
mod request;
mod schedule;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use game::{ObservationShape, Outcome};

use crate::{Attributes, Batch, Error, Evaluator, Predictions};
pub use caller::Caller;
pub use device::{Device, DeviceError};
use device_thread::DeviceThread;
use request::Request;
pub use schedule::BATCH_SIZES;

/// Maximum useful number of batches in flight on one device: further batches only queue.
pub const DEPTH_MAX: usize = 3;

/// Settings of a [`BatchingEngine`].
pub struct EngineSettings {
    /// Name of the device, for errors and for the name of the device thread: `cuda:1`.
    pub device: Arc<str>,
    /// Batch sizes, ascending; at least one, and at most the number in [`BATCH_SIZES`].
    pub batch_sizes: Vec<usize>,
    /// Number of batches in flight until [`BatchingEngine::set_in_flight`] changes it.
    pub in_flight: usize,
    /// Upper limit of `in_flight`.
    pub in_flight_max: usize,
    /// Clock for durations and deadlines.
    pub clock: Box<dyn Fn() -> Instant + Send>,
    /// Receives a human-readable text when batches of a size do not fit into the device memory.
    pub report: Box<dyn Fn(String) + Send>,
}

/// A network as seen by callers: inputs and outputs.
#[derive(Debug, Clone)]
pub struct LoadedNetwork {
    /// Attributes of the evaluators.
    pub attributes: Attributes,
    /// Shape of an observation.
    pub shape: ObservationShape,
    /// A, the number of actions.
    pub actions: usize,
    /// Copies observations `[B, C, H, W]` into a slice of the same length, in the order that the device takes.
    pub write_rows: fn(ObservationShape, &[f32], &mut [f32]),
}

impl LoadedNetwork {
    /// Returns the number of logits per position: policy, then win, draw and loss.
    fn logits(&self) -> usize {
        self.actions + Outcome::RESULTS
    }
}

/// Counters of an engine since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineCounts {
    /// Number of computed batches.
    pub batches: u64,
    /// Number of positions in these batches.
    pub positions: u64,
    /// Total size of the batches, padding included.
    pub padded_positions: u64,
    /// Number of batches that exceeded the device memory.
    pub out_of_memory: u64,
    /// Time with at least one batch in flight.
    pub busy: Duration,
    /// Sum of the times in flight over all batches; divided by [`busy`](Self::busy), the mean number in flight.
    pub in_flight: Duration,
    /// Time that the device thread spent on copying, submitting and waking callers.
    pub thread: Duration,
}

/// Merges the requests of all evaluators into batches for one device. Dropping the engine stops and joins the device
/// thread; remaining evaluators then fail.
pub struct BatchingEngine<D: Device> {
    shared: Arc<Shared<D>>,
    in_flight_max: usize,
    thread: Option<JoinHandle<()>>,
}

impl<D: Device> fmt::Debug for BatchingEngine<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchingEngine").field("device", &self.shared.device).finish_non_exhaustive()
    }
}

impl<D: Device> BatchingEngine<D> {
    /// Starts the thread that owns `device`.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(device: D, settings: EngineSettings) -> std::io::Result<Self> {
        let EngineSettings { device: name, batch_sizes, in_flight, in_flight_max, clock, report } = settings;
        let in_flight_max = in_flight_max.clamp(1, DEPTH_MAX);
        let shared = Arc::new(Shared {
            device: Arc::clone(&name),
            inbox: Mutex::new(Inbox::default()),
            arrived: Condvar::new(),
            end: OnceLock::new(),
            in_flight: AtomicUsize::new(in_flight.clamp(1, in_flight_max)),
            numbers: AtomicU64::new(0),
            counts: Mutex::default(),
        });
        let of_thread = Arc::clone(&shared);
        let work = move || DeviceThread::new(of_thread, device, batch_sizes, clock, report).run();
        let thread = std::thread::Builder::new().name(format!("device-{name}")).spawn(work)?;
        Ok(Self { shared, in_flight_max, thread: Some(thread) })
    }

    /// Copies weights to the device, between two batches, and waits for the copy. The device thread frees them after
    /// the result and all evaluators are dropped.
    ///
    /// # Errors
    /// [`Error::Backend`] if the device rejects them, [`Error::Lost`] if it has failed.
    pub fn load(&self, prepared: D::Prepared, network: LoadedNetwork) -> Result<Weights<D>, Error> {
        Shared::load(&self.shared, prepared, network)
    }

    /// Limits the batches in flight from now on, to between one and the limit in the settings.
    pub fn set_in_flight(&self, depth: usize) {
        self.shared.in_flight.store(depth.clamp(1, self.in_flight_max), Ordering::Relaxed);
        self.shared.arrived.notify_one();
    }

    /// Returns the maximum number of batches in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.in_flight.load(Ordering::Relaxed)
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn counts(&self) -> EngineCounts {
        *self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Device> Drop for BatchingEngine<D> {
    fn drop(&mut self) {
        self.shared.inbox().is_closed = true;
        self.shared.arrived.notify_one();
        if let Some(thread) = self.thread.take() {
            // After a panic of the thread, the callers have received the error.
            let _ = thread.join();
        }
    }
}

/// Weights on the device of an engine. Cheap to clone.
pub struct Weights<D: Device>(Arc<Version<D>>);

impl<D: Device> Clone for Weights<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Device> fmt::Debug for Weights<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Weights").field("network", &self.0.network).finish_non_exhaustive()
    }
}

impl<D: Device> Weights<D> {
    /// Creates an evaluator for one thread.
    #[must_use]
    pub fn evaluator(&self) -> BatchedEvaluator<D> {
        BatchedEvaluator { caller: self.caller(0) }
    }

    /// Creates a caller for one thread and one kind of request; evaluators send the kind 0.
    #[must_use]
    pub fn caller(&self, kind: usize) -> Caller<D> {
        Caller::new(&self.0, kind)
    }

    /// Loads something else for these weights, such as memory, like [`BatchingEngine::load`].
    ///
    /// # Errors
    /// Same as [`BatchingEngine::load`].
    pub fn load(&self, prepared: D::Prepared) -> Result<Self, Error> {
        Shared::load(&self.0.shared, prepared, self.0.network.clone())
    }
}

/// The weights of one version; the device thread holds the copy on the device under the same number.
struct Version<D: Device> {
    number: u64,
    network: LoadedNetwork,
    shared: Arc<Shared<D>>,
}

impl<D: Device> Drop for Version<D> {
    fn drop(&mut self) {
        self.shared.inbox().unloads.push(self.number);
        self.shared.arrived.notify_one();
    }
}

/// The state that the device thread and the evaluators share.
struct Shared<D: Device> {
    device: Arc<str>,
    inbox: Mutex<Inbox<D>>,
    /// Notified when the inbox or the depth changes.
    arrived: Condvar,
    /// The reason why the device thread accepts nothing further; set with the inbox locked.
    end: OnceLock<String>,
    in_flight: AtomicUsize,
    /// Next number for a version or a caller.
    numbers: AtomicU64,
    counts: Mutex<EngineCounts>,
}

/// Messages to the device thread. Each caller has at most one request, which bounds the inbox.
struct Inbox<D: Device> {
    requests: Vec<Request<D>>,
    loads: Vec<Load<D>>,
    /// Versions without a remaining holder.
    unloads: Vec<u64>,
    is_closed: bool,
}

impl<D: Device> Default for Inbox<D> {
    fn default() -> Self {
        Self { requests: Vec::new(), loads: Vec::new(), unloads: Vec::new(), is_closed: false }
    }
}

/// Weights to copy to the device.
struct Load<D: Device> {
    number: u64,
    prepared: D::Prepared,
    reply: mpsc::SyncSender<Result<(), DeviceError>>,
}

impl<D: Device> Shared<D> {
    fn inbox(&self) -> MutexGuard<'_, Inbox<D>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self) -> Error {
        let reason = self.end.get().map_or("its thread panicked", |reason| reason);
        Error::Lost { device: self.device.to_string(), reason: reason.to_owned() }
    }

    fn load(shared: &Arc<Self>, prepared: D::Prepared, network: LoadedNetwork) -> Result<Weights<D>, Error> {
        let number = shared.numbers.fetch_add(1, Ordering::Relaxed);
        let (reply, loaded) = mpsc::sync_channel(1);
        {
            let mut inbox = shared.inbox();
            if shared.end.get().is_some() {
                drop(inbox);
                return Err(shared.lost());
            }
            inbox.loads.push(Load { number, prepared, reply });
        }
        shared.arrived.notify_one();
        match loaded.recv() {
            Ok(Ok(())) => {}
            Ok(Err(DeviceError::OutOfMemory(reason) | DeviceError::Failed(reason))) => {
                return Err(Error::Backend(format!("{} does not support the weights: {reason}", shared.device)));
            }
            Err(mpsc::RecvError) => return Err(shared.lost()),
        }
        Ok(Weights(Arc::new(Version { number, network, shared: Arc::clone(shared) })))
    }

    /// Sends a request. After the device thread has stopped, the reply is the reason.
    fn send(&self, request: Request<D>) {
        let mut inbox = self.inbox();
        if self.end.get().is_some() {
            drop(inbox);
            // A dropped request sends the reply itself; the lock must not be held meanwhile.
            drop(request);
            return;
        }
        inbox.requests.push(request);
        drop(inbox);
        self.arrived.notify_one();
    }
}

/// The evaluator for one thread on the device of an engine.
#[derive(Debug)]
pub struct BatchedEvaluator<D: Device> {
    caller: Caller<D>,
}

impl<D: Device> Evaluator for BatchedEvaluator<D> {
    fn attributes(&self) -> Attributes {
        self.caller.version.network.attributes.clone()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        predictions.clear();
        let version = Arc::clone(&self.caller.version);
        let LoadedNetwork { attributes, shape, actions, write_rows } = &version.network;
        batch.check(*shape, *actions, attributes.max_batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        let row = version.network.logits();
        let write = |rows: &mut [f32]| write_rows(*shape, batch.observations(), rows);
        self.caller.send(batch.len(), [shape.len(), row], write);
        for (i, logits) in self.caller.receive()?.chunks_exact(row).enumerate() {
            let (policy, wdl) = logits.split_at(*actions);
            if !predictions.push_logits(policy, batch.legal(i), [wdl[0], wdl[1], wdl[2]]) {
                return Err(Error::NotFinite { weights_version: attributes.weights_version });
            }
        }
        Ok(())
    }
}
