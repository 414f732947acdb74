//! Distributed tracing: spans of single games and training steps over all processes that take part.
//!
//! Spans are created explicitly, with start times that the caller read: hundreds of games share a thread, so a
//! thread-local current span would not do. [`root`] returns `None` for all but the sampled share of games, and for all
//! while tracing is off. Ended spans wait in a bounded queue for the task that sends them to a collector (`export`); a
//! full queue drops them. One tracer serves the whole process, as one recorder does for metrics.
//!
//! This module does not know what is traced: names and attributes are listed in `docs/traces.md`.

mod context;
mod export;
mod http;
mod otlp;
mod span;

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;

pub use context::TraceContext;
pub(crate) use export::Exporter;
pub(crate) use http::Collector;
use span::Record;
pub use span::{Kind, Span, Value};

#[cfg(test)]
mod tests;

/// The capacity of the queue of ended spans, about a megabyte; spans beyond it are dropped and counted.
pub const QUEUE_SPANS_MAX: usize = 2048;

/// Readings of both clocks at the start.
const READINGS: usize = 8;

static TRACER: OnceLock<Tracer> = OnceLock::new();

thread_local! {
    static CURRENT: Cell<Option<TraceContext>> = const { Cell::new(None) };
}

/// Starts the root span of a new trace, for the sampled share of traces; `None` for all others.
#[must_use]
pub fn root(name: &'static str) -> Option<Span> {
    TRACER.get()?.root(name)
}

/// Starts the root span of a new trace regardless of the share, for rare work. `None` while tracing is off.
#[must_use]
pub fn rare(name: &'static str) -> Option<Span> {
    Some(TRACER.get()?.begin(name, None))
}

/// Starts a span of a trace from another process; `None` without one, or while tracing is off in this process.
#[must_use]
pub fn joined(name: &'static str, parent: Option<TraceContext>) -> Option<Span> {
    let parent = parent?;
    Some(TRACER.get()?.begin(name, Some(parent)))
}

/// Returns true if tracing is on in this process.
#[must_use]
pub fn is_on() -> bool {
    TRACER.get().is_some()
}

/// Runs `work` with `context` as this thread's [`current`] trace.
pub fn within<T>(context: Option<TraceContext>, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(context);
    // A panic ends the thread, so that the stale value is never read.
    let done = work();
    CURRENT.set(before);
    done
}

/// The trace context of this thread, set by [`within`].
#[must_use]
pub fn current() -> Option<TraceContext> {
    CURRENT.get()
}

/// Creates spans. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Tracer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The sampled share of 2^64: a trace is recorded if its random draw lies below.
    threshold: u128,
    seed: u64,
    drawn: AtomicU64,
    queue: mpsc::Sender<Record>,
    epoch: Epoch,
}

impl Tracer {
    /// Records `share` of all traces that begin in this process and sends ended spans to the receiver.
    pub(crate) fn new(share: f64) -> (Self, mpsc::Receiver<Record>) {
        let (queue, records) = mpsc::channel(QUEUE_SPANS_MAX);
        // Exact for 1; other shares are random.
        let threshold = (share.clamp(0.0, 1.0) * 2.0_f64.powi(64)) as u128;
        // The seed of a hasher is the standard library's only entropy.
        let seed = RandomState::new().hash_one(std::process::id());
        let shared = Shared { threshold, seed, drawn: AtomicU64::new(0), queue, epoch: Epoch::now() };
        (Self { shared: Arc::new(shared) }, records)
    }

    /// Installs this as the tracer of the process, unless one is installed.
    pub(crate) fn install(self) {
        let _ = TRACER.set(self);
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.shared.epoch
    }

    pub(crate) fn root(&self, name: &'static str) -> Option<Span> {
        (u128::from(self.draw()) < self.shared.threshold).then(|| self.begin(name, None))
    }

    pub(crate) fn begin(&self, name: &'static str, parent: Option<TraceContext>) -> Span {
        let trace = parent.map_or_else(|| self.trace(), |parent| parent.trace);
        let context = TraceContext { trace, span: self.identity().to_be_bytes() };
        Span::new(self.clone(), Record::new(name, context, parent.map(|parent| parent.span), Instant::now()))
    }

    fn record(&self, record: Record) {
        if self.shared.queue.try_send(record).is_err() {
            export::dropped("queue_full", 1);
        }
    }

    fn trace(&self) -> [u8; 16] {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.identity().to_be_bytes());
        id[8..].copy_from_slice(&self.identity().to_be_bytes());
        id
    }

    /// An id is not zero.
    fn identity(&self) -> u64 {
        self.draw().max(1)
    }

    /// SplitMix64 (Steele et al. 2014) over a counter, begun anywhere. It is `game::mix` of the counter, which this
    /// crate may not use.
    fn draw(&self) -> u64 {
        let drawn = self.shared.drawn.fetch_add(1, Ordering::Relaxed);
        let mut x = self.shared.seed.wrapping_add(drawn.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }
}

/// One moment by both clocks, so that spans of a process keep their order when the wall clock is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epoch {
    instant: Instant,
    since_1970: Duration,
}

impl Epoch {
    /// Takes the tightest of several readings: on a busy machine a thread may be preempted between the two clocks.
    fn now() -> Self {
        let read = |_| {
            let instant = Instant::now();
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            (instant.elapsed(), Self { instant, since_1970 })
        };
        let best = (0..READINGS).map(read).min_by_key(|(held_up, _)| *held_up);
        best.map(|(_, epoch)| epoch).expect("it was read at least once")
    }

    /// Nanoseconds since 1970.
    pub(crate) fn unix_ns(&self, moment: Instant) -> u64 {
        let since = match moment.checked_duration_since(self.instant) {
            Some(later) => self.since_1970.saturating_add(later),
            None => self.since_1970.saturating_sub(self.instant.saturating_duration_since(moment)),
        };
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}
