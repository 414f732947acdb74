//! Log lines, metrics and traces: where `tracing`, `metrics` and [`trace`](crate::trace) of a process go.

mod labelled;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::identity::Identity;
use crate::trace::{Collector, Exporter, Tracer};
use crate::{ConfigError, LogFormat};
use labelled::Labelled;

#[cfg(test)]
mod tests;

/// Buckets of every other histogram, in seconds: a decade in three steps, from a tenth of a millisecond to a hundred seconds.
const BUCKETS_SECONDS: &[f64] = &[
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0,
    100.0,
];

/// Buckets of histograms of ages, in seconds: from a second to a month.
const BUCKETS_AGE_SECONDS: &[f64] =
    &[1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0, 172_800.0, 604_800.0, 2_592_000.0];

/// Buckets of histograms of how far something is behind, in weights versions.
const BUCKETS_VERSIONS: &[f64] =
    &[0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0];

/// Why telemetry could not start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The log directives make no sense.
    #[error("--log-level {directives} is not a level (error, warn, info, debug, trace) or a list of target=level")]
    Directives {
        /// As given.
        directives: String,
        /// What is wrong with them.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Somebody else collects the log lines of this process already.
    #[error("log lines are collected already")]
    TracingInstalled,
    /// Somebody else collects the metrics of this process already.
    #[error("metrics cannot be collected")]
    Metrics(#[source] BuildError),
}

/// The section `[telemetry]`: where traces go, and what the run is called. Every process reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetrySection {
    /// A collector that takes OTLP over HTTP: `http://host:4318`. Empty: nothing is traced.
    pub otlp: String,
    /// The share of games that are traced, from 0 to 1; of training steps just as many.
    pub trace_share: f64,
    /// The name of the run in log lines, metrics and traces; empty: that of its folder.
    pub run: String,
}

impl Default for TelemetrySection {
    fn default() -> Self {
        // A game is some fifty spans: of a hundred games a second, one.
        Self { otlp: String::new(), trace_share: 0.01, run: String::new() }
    }
}

impl TelemetrySection {
    /// How to trace; `None` where nothing is.
    ///
    /// # Errors
    /// Names the key that makes no sense.
    pub fn settings(&self) -> Result<Option<TraceSettings>, ConfigError> {
        if !(0.0..=1.0).contains(&self.trace_share) {
            return Err(ConfigError::invalid("telemetry.trace_share", "must be from 0 to 1"));
        }
        if self.otlp.is_empty() {
            return Ok(None);
        }
        let collector =
            Collector::parse(&self.otlp).map_err(|reason| ConfigError::invalid("telemetry.otlp", reason))?;
        Ok(Some(TraceSettings { collector, share: self.trace_share }))
    }
}

/// Where traces go, and how many.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceSettings {
    collector: Collector,
    share: f64,
}

impl TraceSettings {
    /// Traces from now on. Must be called on a runtime.
    pub(crate) fn start(self, identity: Identity) -> Exporter {
        let (tracer, records) = Tracer::new(self.share);
        let exporter = Exporter::start(self.collector, identity, tracer.epoch(), records);
        tracer.install();
        exporter
    }
}

/// Sends `tracing` to standard error: to people as text, to machines as JSON that says who speaks. Once per process.
pub fn init_tracing(format: LogFormat, directives: &str, identity: &Identity) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(directives)
        .map_err(|source| TelemetryError::Directives { directives: directives.to_owned(), source })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A line that finds no room is lost: to say so on the same standard error would be a panic.
    let lines = lines.log_internal_errors(false);
    let installed = match format {
        LogFormat::Text => lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).finish().try_init(),
        LogFormat::Json => lines.json().map_event_format(|inner| Labelled::new(inner, identity)).finish().try_init(),
    };
    installed.map_err(|_| TelemetryError::TracingInstalled)
}

/// Collects `metrics` for `/metrics`. Once per process; the handle renders them.
pub fn install_metrics() -> Result<PrometheusHandle, TelemetryError> {
    builder()?.install_recorder().map_err(TelemetryError::Metrics)
}

/// Tells when this process started, in seconds since 1970: restarts show, and how long it has cost money.
pub fn tell_start() {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    metrics::gauge!("zerofleet_process_start_seconds").set(since.as_secs_f64());
}

fn builder() -> Result<PrometheusBuilder, TelemetryError> {
    let builder = PrometheusBuilder::new().set_buckets(BUCKETS_SECONDS);
    let ages = Matcher::Suffix("_age_seconds".to_owned());
    let builder = builder.and_then(|builder| builder.set_buckets_for_metric(ages, BUCKETS_AGE_SECONDS));
    let versions = Matcher::Suffix("_lag_versions".to_owned());
    let builder = builder.and_then(|builder| builder.set_buckets_for_metric(versions, BUCKETS_VERSIONS));
    builder.map_err(TelemetryError::Metrics)
}
