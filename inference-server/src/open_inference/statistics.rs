//! Counts requests as the protocol defines.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use proto::open_inference::v2::{InferBatchStatistics, InferStatistics, ModelStatistics, StatisticDuration};

use crate::engine::Counts;

/// Counters that the engine does not keep: the time for decoding and encoding tensors, and the time of the last
/// response.
#[derive(Debug, Default)]
pub(super) struct Statistics(Mutex<Counters>);

#[derive(Debug, Default, Clone, Copy)]
struct Counters {
    inputs: StatisticDuration,
    outputs: StatisticDuration,
    last_unix_ms: u64,
}

impl Statistics {
    /// Adds the times for reading the tensors of an answered request and for writing the response.
    pub(super) fn converted(&self, read: Duration, written: Duration) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut counters = self.0.lock();
        add(&mut counters.inputs, read);
        add(&mut counters.outputs, written);
        counters.last_unix_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    }

    /// Returns the counters so far, summed over all versions of the model and all services of the engine. Times are
    /// sums over requests: clients divide by the number of successes.
    pub(super) fn of(&self, counts: &Counts, name: &str, version: u64) -> ModelStatistics {
        let Counters { inputs, outputs, last_unix_ms } = *self.0.lock();
        let done = |count, took| Some(StatisticDuration { count, ns: nanoseconds(took) });
        let converted = Duration::from_nanos(inputs.ns.saturating_add(outputs.ns));
        let none = || Some(StatisticDuration::default());
        let by_size = counts.by_batch_size.iter().map(|batches| InferBatchStatistics {
            batch_size: batches.size.into(),
            compute_infer: done(batches.full + batches.delay + batches.idle, Duration::from_micros(batches.compute_us)),
            compute_input: none(),
            compute_output: none(),
        });
        ModelStatistics {
            name: name.to_owned(),
            version: version.to_string(),
            last_inference: last_unix_ms,
            inference_count: counts.positions,
            execution_count: counts.batches,
            inference_stats: Some(InferStatistics {
                success: done(counts.requests, counts.queue_time + counts.compute_time + converted),
                fail: done(counts.rejected + counts.failed, Duration::ZERO),
                queue: done(counts.requests, counts.queue_time),
                compute_input: Some(inputs),
                compute_infer: done(counts.requests, counts.compute_time),
                compute_output: Some(outputs),
                cache_hit: none(),
                cache_miss: none(),
            }),
            batch_stats: by_size.collect(),
        }
    }
}

fn add(sum: &mut StatisticDuration, took: Duration) {
    sum.count += 1;
    sum.ns += nanoseconds(took);
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
