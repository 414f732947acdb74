//! Distributed tracing: spans of single games and training steps across all participating processes.
//!
//! Spans are created explicitly, with start times that the caller read: hundreds of games share a thread, so that a
//! thread-local current span would not work. [`root`] returns `None` for all games outside the sampled share, and for
//! all games while tracing is off. Finished spans wait in a bounded queue for the task that sends them to a collector
//! (`export`); a full queue drops spans. One tracer serves the whole process, like the metrics recorder.
//!
//! This module is independent of the traced work: names and attributes are listed in `docs/traces.md`.

mod export;
mod span;

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::trace::v1::Span as Message;
use tokio::sync::mpsc;

use crate::identity::Identity;
use export::pair;
pub(crate) use export::{Collector, Exporter};
pub use span::{Kind, Span, TraceContext, Value};

#[cfg(test)]
mod tests;

/// Capacity of the queue of finished spans, about a megabyte; further spans are dropped and counted.
pub const QUEUE_SPANS_MAX: usize = 2048;

/// Readings of both clocks at the start.
const READINGS: usize = 8;

static TRACER: OnceLock<Arc<Tracer>> = OnceLock::new();

thread_local! {
    static CURRENT: Cell<Option<TraceContext>> = const { Cell::new(None) };
}

/// Starts the root span of a new trace, for the sampled share of traces; `None` for all other traces.
#[must_use]
pub fn root(name: &'static str) -> Option<Span> {
    TRACER.get()?.root(name)
}

/// Starts the root span of a new trace regardless of the share, for rare work. `None` while tracing is off.
#[must_use]
pub fn rare(name: &'static str) -> Option<Span> {
    Some(TRACER.get()?.begin(name, None))
}

/// Starts a span in a trace from another process; `None` without a trace, or while tracing is off in this process.
#[must_use]
pub fn joined(name: &'static str, parent: Option<TraceContext>) -> Option<Span> {
    let parent = parent?;
    Some(TRACER.get()?.begin(name, Some(parent)))
}

/// Runs `work` with `context` as this thread's [`current`] trace.
pub fn within<T>(context: Option<TraceContext>, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(context);
    // A panic stops the thread, so that the stale value is never read.
    let done = work();
    CURRENT.set(before);
    done
}

/// Returns the trace context of this thread, as set by [`within`].
#[must_use]
pub fn current() -> Option<TraceContext> {
    CURRENT.get()
}

/// Turns tracing on for this process: sends the spans of `share` of all traces that start here to the collector. Must
/// be called on a runtime, and only once.
pub(crate) fn start(collector: Collector, share: f64, identity: Identity) -> Exporter {
    let (tracer, spans) = Tracer::new(share);
    let _ = TRACER.set(tracer);
    Exporter::start(collector, identity, spans)
}

/// Creates spans.
#[derive(Debug)]
struct Tracer {
    /// Sampled share of 2^64: a trace is recorded if the random draw lies below.
    threshold: u128,
    /// Seed of the draws, which are hashes of a counter: a hasher's seed is the standard library's only entropy.
    seed: RandomState,
    drawn: AtomicU64,
    queue: mpsc::Sender<Message>,
    epoch: Epoch,
}

impl Tracer {
    /// Records `share` of all traces that start in this process, and sends finished spans to the receiver.
    fn new(share: f64) -> (Arc<Self>, mpsc::Receiver<Message>) {
        let (queue, records) = mpsc::channel(QUEUE_SPANS_MAX);
        // A share of 1 records every trace; smaller shares are sampled at random.
        let threshold = (share.clamp(0.0, 1.0) * 2.0_f64.powi(64)) as u128;
        let (seed, drawn) = (RandomState::new(), AtomicU64::new(0));
        (Arc::new(Self { threshold, seed, drawn, queue, epoch: Epoch::now() }), records)
    }

    fn root(self: &Arc<Self>, name: &'static str) -> Option<Span> {
        (u128::from(self.draw()) < self.threshold).then(|| self.begin(name, None))
    }

    fn begin(self: &Arc<Self>, name: &'static str, parent: Option<TraceContext>) -> Span {
        let new_trace = || (u128::from(self.id()) << 64 | u128::from(self.id())).to_be_bytes();
        let trace = parent.map_or_else(new_trace, |parent| parent.trace);
        let context = TraceContext { trace, span: self.id().to_be_bytes() };
        Span::new(Arc::clone(self), name, context, parent)
    }

    fn record(&self, span: Message) {
        if self.queue.try_send(span).is_err() {
            export::count("queue_full", 1);
        }
    }

    /// Returns a random id, which must not be zero.
    fn id(&self) -> u64 {
        self.draw().max(1)
    }

    fn draw(&self) -> u64 {
        self.seed.hash_one(self.drawn.fetch_add(1, Ordering::Relaxed))
    }
}

/// One moment on both clocks, so that setting the wall clock does not reorder the spans of a process.
#[derive(Debug, Clone, Copy)]
struct Epoch {
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

    /// Returns nanoseconds since 1970.
    fn unix_ns(&self, moment: Instant) -> u64 {
        let since = match moment.checked_duration_since(self.instant) {
            Some(later) => self.since_1970.saturating_add(later),
            None => self.since_1970.saturating_sub(self.instant.saturating_duration_since(moment)),
        };
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}
