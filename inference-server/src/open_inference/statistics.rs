//! The counters of requests, as the protocol defines them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proto::open_inference::v2::{InferBatchStatistics, InferStatistics, ModelStatistics, StatisticDuration};

use crate::engine::Counts;

/// The counters of this service alone: the time to decode and encode tensors, and the time of the last answer.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    inputs: Timed,
    outputs: Timed,
    last_unix_ms: AtomicU64,
}

/// A count, and the sum of the durations.
#[derive(Debug, Default)]
struct Timed {
    count: AtomicU64,
    ns: AtomicU64,
}

impl Timed {
    fn add(&self, took: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.ns.fetch_add(nanoseconds(took), Ordering::Relaxed);
    }

    fn so_far(&self) -> StatisticDuration {
        StatisticDuration { count: self.count.load(Ordering::Relaxed), ns: self.ns.load(Ordering::Relaxed) }
    }
}

impl Statistics {
    /// Tensors of a request were read.
    pub(super) fn read(&self, took: Duration) {
        self.inputs.add(took);
    }

    /// An answer was written.
    pub(super) fn written(&self, took: Duration) {
        self.outputs.add(took);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_unix_ms.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the counters so far: those of all versions of the model, and of every service that uses its engine.
    pub(super) fn of(&self, counts: &Counts, name: &str, version: u64) -> ModelStatistics {
        let done = |count, took| Some(StatisticDuration { count, ns: nanoseconds(took) });
        let none = || Some(StatisticDuration::default());
        let by_size = counts.by_batch_size.iter().map(|batches| InferBatchStatistics {
            batch_size: batches.size as u64,
            compute_infer: done(batches.batches(), batches.compute_time),
            compute_input: none(),
            compute_output: none(),
        });
        ModelStatistics {
            name: name.to_owned(),
            version: version.to_string(),
            last_inference: self.last_unix_ms.load(Ordering::Relaxed),
            inference_count: counts.positions,
            execution_count: counts.batches,
            inference_stats: Some(InferStatistics {
                success: done(counts.asks, counts.queue_time + counts.compute_time),
                fail: done(counts.refused + counts.failed, Duration::ZERO),
                queue: done(counts.asks, counts.queue_time),
                compute_input: Some(self.inputs.so_far()),
                compute_infer: done(counts.batches, counts.compute_time),
                compute_output: Some(self.outputs.so_far()),
                cache_hit: none(),
                cache_miss: none(),
            }),
            batch_stats: by_size.collect(),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
