//! Spans: where the time of one game or of one training step went, over all processes that had a part in it.
//!
//! A span is made by hand, with moments that its owner read: hundreds of games share a thread, so that no thread is ever
//! "in" one of them. Most games have none: [`root`] answers `None` for all but the share that is traced, and for everything
//! while tracing is off. What has ended waits in a bounded queue for the task that sends it to a collector
//! (`export`); a full queue drops it. One tracer serves the whole process, as one recorder does for metrics.
//!
//! Knows nothing of what is traced: names and attributes are listed in `docs/traces.md`.

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

/// Spans that may wait to be sent; more are dropped and counted. About a megabyte.
pub const QUEUE_SPANS_MAX: usize = 2048;

/// How often both clocks are read at the start.
const READINGS: usize = 8;

static TRACER: OnceLock<Tracer> = OnceLock::new();

thread_local! {
    static CURRENT: Cell<Option<TraceContext>> = const { Cell::new(None) };
}

/// The first span of a new trace, for the share of them that is traced; `None` for all others.
#[must_use]
pub fn root(name: &'static str) -> Option<Span> {
    TRACER.get()?.root(name)
}

/// The first span of a new trace, whatever the share is: for what is rare. `None` while tracing is off.
#[must_use]
pub fn rare(name: &'static str) -> Option<Span> {
    Some(TRACER.get()?.begin(name, None))
}

/// A span of a trace that began in another process; `None` without one, or while tracing is off here.
#[must_use]
pub fn joined(name: &'static str, parent: Option<TraceContext>) -> Option<Span> {
    let parent = parent?;
    Some(TRACER.get()?.begin(name, Some(parent)))
}

/// Whether anything is traced in this process.
#[must_use]
pub fn is_on() -> bool {
    TRACER.get().is_some()
}

/// Runs `work` with what it does on this thread being part of a trace, for whoever asks [`current`].
pub fn within<T>(context: Option<TraceContext>, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(context);
    // A panic ends the thread, so that nobody sees what stays.
    let done = work();
    CURRENT.set(before);
    done
}

/// What the work of this thread is part of now: see [`within`].
#[must_use]
pub fn current() -> Option<TraceContext> {
    CURRENT.get()
}

/// Makes spans. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Tracer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Of 2^64: a trace is recorded if what is drawn for it lies below.
    threshold: u128,
    seed: u64,
    drawn: AtomicU64,
    queue: mpsc::Sender<Record>,
    epoch: Epoch,
}

impl Tracer {
    /// Records `share` of all traces that begin here, and what it records comes out of the receiver.
    pub(crate) fn new(share: f64) -> (Self, mpsc::Receiver<Record>) {
        let (queue, records) = mpsc::channel(QUEUE_SPANS_MAX);
        // Exact for 1; other shares are a matter of chance anyway.
        let threshold = (share.clamp(0.0, 1.0) * 2.0_f64.powi(64)) as u128;
        // The seed of a hasher is the standard library's only entropy.
        let seed = RandomState::new().hash_one(std::process::id());
        let shared = Shared { threshold, seed, drawn: AtomicU64::new(0), queue, epoch: Epoch::now() };
        (Self { shared: Arc::new(shared) }, records)
    }

    /// Makes it the tracer of this process, if none is.
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

    /// SplitMix64 (Steele et al. 2014) over a counter, begun anywhere. It is `game::mix` of the counter, which this crate may
    /// not use.
    fn draw(&self) -> u64 {
        let drawn = self.shared.drawn.fetch_add(1, Ordering::Relaxed);
        let mut x = self.shared.seed.wrapping_add(drawn.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }
}

/// One moment by both clocks, so that the spans of a process never overlap wrongly when somebody sets the date.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epoch {
    instant: Instant,
    since_1970: Duration,
}

impl Epoch {
    /// Of a few readings the one that was held up least: on a busy machine a thread may be stopped between two clocks.
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
