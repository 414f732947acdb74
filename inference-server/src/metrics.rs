//! Metrics of the inference server. `docs/metrics.md` lists the names.
//!
//! The names with the prefix `nv_inference` are Triton's, so that dashboards for Triton also work for this server.

use std::collections::BTreeSet;
use std::time::Duration;

use ::metrics::{Counter, Gauge, counter, gauge, histogram};
use inference::EngineCounts;
use parking_lot::Mutex;
use service::reasons::OTHER;

use crate::queue::Reason;
use crate::rejection::Rejection;

/// Maximum weights versions with series under Triton's names. A learner publishes any number of versions.
const VERSIONS_MAX: usize = 100;

/// The versions with own series.
static VERSIONS: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

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
    searches_out_of_time(0);
    for reason in [Reason::Full, Reason::Delay, Reason::Idle] {
        counter!("zerofleet_inference_batches_total", "reason" => left(reason)).increment(0);
    }
}

pub(crate) fn waiting(positions: usize) {
    gauge!("zerofleet_inference_waiting_positions").set(positions as f64);
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
}

/// Records an answered request.
pub(crate) fn answered(positions: usize, queued: Duration) {
    counter!("zerofleet_inference_requests_total").increment(1);
    counter!("zerofleet_inference_positions_total").increment(positions as u64);
    histogram!("zerofleet_inference_queue_seconds").record(queued.as_secs_f64());
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
    counter!("zerofleet_inference_refused_total", "why" => rejection.names().label).increment(number);
}

/// Adds searches that the time limit ended before the last simulation.
pub(crate) fn searches_out_of_time(number: u64) {
    counter!("zerofleet_inference_searches_out_of_time_total").increment(number);
}

/// Returns the label for the dispatch reason of a batch.
fn left(reason: Reason) -> &'static str {
    match reason {
        Reason::Full => "full",
        Reason::Delay => "delay",
        Reason::Idle => "idle",
    }
}

/// The metrics of a weights version under Triton's names. Times are sums over requests.
#[derive(Debug)]
pub(crate) struct Triton {
    /// One for each of Triton's reasons.
    failures: [(&'static str, Counter); 3],
    success: Counter,
    positions: Counter,
    batches: Counter,
    request_us: Counter,
    queue_us: Counter,
    input_us: Counter,
    infer_us: Counter,
    output_us: Counter,
    pending: Gauge,
}

impl Triton {
    /// Registers the metrics of a version with the value zero.
    pub(crate) fn new(game: &str, version: u64) -> Self {
        let version = version_label(&mut VERSIONS.lock(), version);
        let labels = [("model", game.to_owned()), ("version", version)];
        let failure = |reason: &'static str| {
            let [model, version] = labels.clone();
            let counter = counter!("nv_inference_request_failure", &[model, version, ("reason", reason.to_owned())]);
            counter.increment(0);
            (reason, counter)
        };
        Self {
            failures: ["REJECTED", "CANCELED", "BACKEND"].map(failure),
            success: counter!("nv_inference_request_success", &labels),
            positions: counter!("nv_inference_count", &labels),
            batches: counter!("nv_inference_exec_count", &labels),
            request_us: counter!("nv_inference_request_duration_us", &labels),
            queue_us: counter!("nv_inference_queue_duration_us", &labels),
            input_us: counter!("nv_inference_compute_input_duration_us", &labels),
            infer_us: counter!("nv_inference_compute_infer_duration_us", &labels),
            output_us: counter!("nv_inference_compute_output_duration_us", &labels),
            pending: gauge!("nv_inference_pending_request_count", &labels),
        }
    }

    /// Records an evaluated batch.
    pub(crate) fn batch(&self, positions: usize) {
        self.batches.increment(1);
        self.positions.increment(positions as u64);
    }

    /// Records an answered request.
    pub(crate) fn answered(&self, queued: Duration, computed: Duration) {
        self.success.increment(1);
        self.queue_us.increment(microseconds(queued));
        self.infer_us.increment(microseconds(computed));
        self.request_us.increment(microseconds(queued + computed));
    }

    /// Adds the times for reading and writing the tensors of an answered request.
    pub(crate) fn converted(&self, read: Duration, written: Duration) {
        self.input_us.increment(microseconds(read));
        self.output_us.increment(microseconds(written));
        self.request_us.increment(microseconds(read + written));
    }

    /// Records a rejected request.
    pub(crate) fn rejected(&self, rejection: &Rejection) {
        let reason = rejection.names().triton;
        self.failures.iter().filter(|(of, _)| *of == reason).for_each(|(_, counter)| counter.increment(1));
    }

    /// Counts a request as waiting until the value is dropped.
    pub(crate) fn pending(&self) -> Pending {
        self.pending.increment(1.0);
        Pending(self.pending.clone())
    }
}

/// A request that waits in the queue.
#[derive(Debug)]
pub(crate) struct Pending(Gauge);

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// Returns the label of a version: the number if it is one of the first [`VERSIONS_MAX`] `versions`.
fn version_label(versions: &mut BTreeSet<u64>, version: u64) -> String {
    if versions.len() < VERSIONS_MAX {
        versions.insert(version);
    }
    if versions.contains(&version) { version.to_string() } else { OTHER.to_owned() }
}

/// Rounds to the nearest microsecond, so that errors of many short times do not add up.
pub(crate) fn microseconds(time: Duration) -> u64 {
    u64::try_from((time.as_nanos() + 500) / 1000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn counts_and_times_have_model_and_version_and_are_summed_over_requests() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let waiting = ::metrics::with_local_recorder(&recorder, || {
            let triton = Triton::new("hex-5", 7);
            drop(triton.pending());
            triton.batch(3);
            for _ in 0..2 {
                triton.answered(Duration::from_millis(1), Duration::from_millis(4));
            }
            triton.converted(Duration::from_micros(10), Duration::from_micros(20));
            triton.rejected(&Rejection::Expired);
            triton.pending()
        });
        let text = recorder.handle().render();
        for (name, value) in [
            ("request_success", 2),
            ("count", 3),
            ("exec_count", 1),
            ("request_duration_us", 10_030),
            ("queue_duration_us", 2_000),
            ("compute_input_duration_us", 10),
            ("compute_infer_duration_us", 8_000),
            ("compute_output_duration_us", 20),
            ("pending_request_count", 1),
        ] {
            let line = format!("\nnv_inference_{name}{{model=\"hex-5\",version=\"7\"}} {value}\n");
            assert!(text.contains(&line), "{line} is not in {text}");
        }
        for (reason, count) in [("CANCELED", 1), ("BACKEND", 0), ("REJECTED", 0)] {
            let labels = format!("{{model=\"hex-5\",version=\"7\",reason=\"{reason}\"}}");
            let line = format!("\nnv_inference_request_failure{labels} {count}\n");
            assert!(text.contains(&line), "{line} is not in {text}");
        }
        drop(waiting);
        assert!(recorder.handle().render().contains("pending_request_count{model=\"hex-5\",version=\"7\"} 0\n"));
    }

    #[test]
    fn any_number_of_versions_makes_a_bounded_number_of_labels() {
        let mut versions = BTreeSet::new();
        let labels: BTreeSet<String> = (0..10_000).map(|version| version_label(&mut versions, version)).collect();
        assert_eq!((labels.len(), versions.len()), (VERSIONS_MAX + 1, VERSIONS_MAX));
        assert!(labels.contains(OTHER) && labels.contains("99"), "{labels:?}");
    }
}
