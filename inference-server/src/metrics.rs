//! Metrics of the inference server. `docs/metrics.md` lists the names.
//!
//! The names with the prefix `nv_inference` are Triton's, so that dashboards for Triton also work for this server.

use std::time::Duration;

use ::metrics::{counter, gauge, histogram};
use inference::EngineCounts;

use crate::queue::Reason;
use crate::rejection::{Names, Rejection};

/// Initialises the counters of rare events to zero: if a counter appeared with the first event, no rate would include
/// that event.
pub(crate) fn begin() {
    let (none, reason) = (Duration::ZERO, String::new);
    for rejection in [
        Rejection::NoModel,
        Rejection::UnknownVersion { version: 0, resident: Vec::new() },
        Rejection::Shape(reason()),
        Rejection::Full { retry_after: none },
        Rejection::Late { expected: none, retry_after: none },
        Rejection::Expired,
        Rejection::Failed(reason()),
        Rejection::Draining,
    ] {
        add_rejections(&rejection, 0);
    }
    for reason in [Reason::Full, Reason::Delay, Reason::Idle] {
        counter!("zerofleet_inference_batches_total", "reason" => left(reason)).increment(0);
    }
}

pub(crate) fn waiting(positions: usize) {
    gauge!("zerofleet_inference_waiting_positions").set(positions as f64);
    gauge!("nv_inference_pending_request_count").set(positions as f64);
}

/// Adds `change` to the number of open streams.
pub(crate) fn streams(change: f64) {
    gauge!("zerofleet_inference_streams").increment(change);
}

pub(crate) fn weights_version(version: u64, resident: usize) {
    gauge!("zerofleet_inference_weights_version").set(version as f64);
    gauge!("zerofleet_inference_versions").set(resident as f64);
}

/// Publishes the evaluator of a version; the evaluator of the latest version is in use.
pub(crate) fn evaluator(name: &str, version: u64) {
    gauge!("zerofleet_inference_evaluator", "evaluator" => name.to_owned()).set(version as f64);
    if let Some(device) = evaluators::device_of(name) {
        service::devices::placed("weights", device);
    }
}

/// Sets the metrics of an accelerator's engine to these counters.
pub(crate) fn engine(counts: &EngineCounts) {
    let &EngineCounts { batches, positions, padded_positions, out_of_memory, busy, in_flight, thread } = counts;
    counter!("zerofleet_inference_device_batches_total").absolute(batches);
    counter!("zerofleet_inference_device_positions_total").absolute(positions);
    counter!("zerofleet_inference_device_padded_positions_total").absolute(padded_positions);
    counter!("zerofleet_inference_device_too_large_total").absolute(out_of_memory);
    for (part, time) in [("busy", busy), ("in_flight", in_flight), ("thread", thread)] {
        gauge!("zerofleet_inference_device_seconds_total", "part" => part).set(time.as_secs_f64());
    }
}

/// Records an evaluated or failed batch.
pub(crate) fn batch(positions: usize, reason: Reason, computed: Duration) {
    counter!("zerofleet_inference_batches_total", "reason" => left(reason)).increment(1);
    counter!("zerofleet_inference_batch_positions_total").increment(positions as u64);
    histogram!("zerofleet_inference_compute_seconds").record(computed.as_secs_f64());
    counter!("nv_inference_exec_count").increment(1);
    counter!("nv_inference_count").increment(positions as u64);
    counter!("nv_inference_compute_infer_duration_us").increment(microseconds(computed));
}

/// Records an answered request.
pub(crate) fn answered(positions: usize, queued: Duration, computed: Duration) {
    counter!("zerofleet_inference_requests_total").increment(1);
    counter!("zerofleet_inference_positions_total").increment(positions as u64);
    histogram!("zerofleet_inference_queue_seconds").record(queued.as_secs_f64());
    counter!("nv_inference_request_success").increment(1);
    counter!("nv_inference_queue_duration_us").increment(microseconds(queued));
    counter!("nv_inference_request_duration_us").increment(microseconds(queued + computed));
}

pub(crate) fn cached(hits: usize, misses: usize) {
    counter!("zerofleet_inference_cache_hits_total").increment(hits as u64);
    counter!("zerofleet_inference_cache_misses_total").increment(misses as u64);
}

/// Records a rejected request.
pub(crate) fn rejected(rejection: &Rejection) {
    add_rejections(rejection, 1);
}

fn add_rejections(rejection: &Rejection, number: u64) {
    let Names { label, triton, .. } = rejection.names();
    counter!("zerofleet_inference_refused_total", "why" => label).increment(number);
    counter!("nv_inference_request_failure", "reason" => triton).increment(number);
}

/// Returns the label for the dispatch reason of a batch.
fn left(reason: Reason) -> &'static str {
    match reason {
        Reason::Full => "full",
        Reason::Delay => "delay",
        Reason::Idle => "idle",
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
