//! Setup of the log lines, metrics and traces of a process.

use std::fmt;

use anyhow::{Context as _, anyhow};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::Section as _;
use crate::identity::Identity;
use crate::trace::Collector;
use crate::{ConfigError, LogFormat, descriptions};

/// Buckets of all other histograms, in seconds: three per decade, from a tenth of a millisecond to a hundred seconds.
const BUCKETS_SECONDS: &[f64] = &[
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0,
    100.0,
];

/// Buckets of age histograms, in seconds: from a second to a month.
const BUCKETS_AGE_SECONDS: &[f64] =
    &[1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0, 172_800.0, 604_800.0, 2_592_000.0];

/// Buckets of policy lag histograms, in weights versions.
const BUCKETS_VERSIONS: &[f64] =
    &[0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0];

crate::section! {
    /// The section `[telemetry]`: the trace collector and the name of the run. Every process reads it.
    #[serde(deny_unknown_fields)]
    pub struct TelemetrySection {
        /// Endpoint of the collector, OTLP over HTTP: `http://host:4318`. If empty, tracing is off.
        otlp: String = String::new();
        /// Traced share of games and of training steps.
        trace_share: f64 = 0.01, in 0.0..=1.0;
        /// Name of the run in log lines, metrics and traces; if empty, the name of the run directory.
        run: String = String::new();
    }
}

impl TelemetrySection {
    /// Checks the settings of tracing.
    ///
    /// # Errors
    /// A key is invalid; [`ConfigError`] names it.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.collector().map(drop)
    }

    /// Returns the trace collector; `None` if tracing is off.
    ///
    /// # Errors
    /// A key is invalid; [`ConfigError`] names it.
    pub(crate) fn collector(&self) -> Result<Option<Collector>, ConfigError> {
        self.check_ranges("telemetry")?;
        let collector = (!self.otlp.is_empty()).then(|| Collector::parse(&self.otlp)).transpose();
        collector.map_err(|reason| ConfigError::invalid("telemetry.otlp", reason))
    }
}

/// Sends log lines to standard error, as text or as JSON with the process's identity. Must be called once per process.
pub fn init_tracing(format: LogFormat, directives: &str, identity: &Identity) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(directives).with_context(|| {
        format!("--log-level {directives} is not a level (error, warn, info, debug, trace) or a list of target=level")
    })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A line that cannot be written is dropped: reporting that on standard error would panic.
    let lines = lines.log_internal_errors(false);
    let installed = match format {
        LogFormat::Text => lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).finish().try_init(),
        LogFormat::Json => lines.json().map_event_format(|inner| Labelled::new(inner, identity)).finish().try_init(),
    };
    installed.map_err(|_| anyhow!("a log collector is already installed"))
}

/// Installs the metrics recorder, with a description of each metric, and returns the handle that renders `/metrics`.
/// Must be called once per process.
pub fn install_metrics() -> anyhow::Result<PrometheusHandle> {
    let handle = builder().and_then(PrometheusBuilder::install_recorder).context("install the metrics recorder")?;
    descriptions::describe();
    Ok(handle)
}

/// Exports the start time of this process in seconds since 1970, which reveals restarts and the age of the process.
pub fn export_start_time() {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    metrics::gauge!("zerofleet_process_start_seconds").set(since.as_secs_f64());
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new()
        .set_buckets(BUCKETS_SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_age_seconds".to_owned()), BUCKETS_AGE_SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_lag_versions".to_owned()), BUCKETS_VERSIONS)
}

/// Formats log lines as JSON objects with the identity of the process, so that the lines of a fleet can be
/// distinguished.
struct Labelled<F> {
    inner: F,
    /// Start of each object, with the fields of the identity.
    head: String,
}

impl<F> Labelled<F> {
    fn new(inner: F, identity: &Identity) -> Self {
        let Identity { role, run, version, instance, .. } = identity;
        let pairs = [("run", run.as_str()), ("role", role), ("version", version), ("instance", instance)];
        let mut head = String::from("{");
        for (key, value) in pairs {
            head.push_str(&format!("\"{key}\":{},", serde_json::Value::from(value)));
        }
        Self { inner, head }
    }
}

impl<S, N, F> FormatEvent<S, N> for Labelled<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = String::new();
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        match line.strip_prefix('{') {
            Some(rest) => write!(writer, "{}{rest}", self.head),
            None => writer.write_str(&line),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    fn identity() -> Identity {
        let run = "quoted \"run\"".to_owned();
        let (game, version, instance) = ("hex-5".to_owned(), "1.2.3".to_owned(), "host:7".to_owned());
        Identity { role: "arena", run, game, version, instance }
    }

    #[test]
    fn unknown_levels_are_refused() {
        let error = init_tracing(LogFormat::Text, "learner=loud", &identity()).unwrap_err();
        let expected =
            "--log-level learner=loud is not a level (error, warn, info, debug, trace) or a list of target=level";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn histograms_have_buckets_in_seconds() {
        let recorder = builder().unwrap().build_recorder();
        metrics::with_local_recorder(&recorder, || metrics::histogram!("step_seconds").record(0.3));
        let text = recorder.handle().render();
        assert!(text.contains("step_seconds_bucket{le=\"0.2\"} 0"), "{text}");
        assert!(text.contains("step_seconds_bucket{le=\"0.5\"} 1"), "{text}");
    }

    #[test]
    fn histograms_of_how_far_something_is_behind_have_buckets_in_versions() {
        let recorder = builder().unwrap().build_recorder();
        metrics::with_local_recorder(&recorder, || metrics::histogram!("sample_lag_versions").record(300.0));
        let text = recorder.handle().render();
        assert!(text.contains("sample_lag_versions_bucket{le=\"200\"} 0"), "{text}");
        assert!(text.contains("sample_lag_versions_bucket{le=\"500\"} 1"), "{text}");
    }

    /// A buffer of log lines for assertions.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_json_line_carries_run_role_version_and_instance() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .json()
            .map_event_format(|inner| Labelled::new(inner, &identity()))
            .finish();
        tracing::subscriber::with_default(subscriber, || tracing::info!(step = 7, "a \"quoted\" word"));
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        let identity =
            ["run", "role", "version", "instance", "level"].map(|key| line[key].as_str().unwrap().to_owned());
        assert_eq!(identity, ["quoted \"run\"", "arena", "1.2.3", "host:7", "INFO"], "{text}");
        assert_eq!(line["fields"]["message"], "a \"quoted\" word");
        assert_eq!(line["fields"]["step"], 7);
        assert!(text.ends_with("}\n"), "{text:?}");
    }

    fn collector(otlp: &str, trace_share: f64) -> Result<Option<Collector>, String> {
        let section = TelemetrySection { otlp: otlp.to_owned(), trace_share, run: String::new() };
        section.collector().map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_is_traced_unless_a_collector_is_named() {
        assert_eq!(TelemetrySection::default().collector().unwrap(), None);
        assert_eq!(collector("", 1.0), Ok(None));
    }

    #[test]
    fn an_endpoint_is_read_as_exporters_read_it() {
        let reads = |otlp: &str| collector(otlp, 1.0).map(|read| read.map(|read| (read.address, read.path)));
        let to = |address: &str, path: &str| Ok(Some((address.to_owned(), path.to_owned())));
        assert_eq!(reads("http://otel-collector"), to("otel-collector:4318", "/v1/traces"));
        assert_eq!(reads("http://127.0.0.1:9/"), to("127.0.0.1:9", "/v1/traces"));
        assert_eq!(reads("http://[::1]:9/tenant/traces"), to("[::1]:9", "/tenant/traces"));
    }

    #[test]
    fn an_endpoint_that_cannot_be_reached_or_would_show_a_secret_is_refused_by_its_key() {
        for (otlp, reason) in [
            ("https://collector", "telemetry.otlp: is https; "),
            ("grpc://collector", "telemetry.otlp: must start with http://"),
            ("http://user:hunter2@collector", "telemetry.otlp: must not contain a user or password"),
            ("not an address", "telemetry.otlp: is not a URL"),
        ] {
            let error = collector(otlp, 1.0).unwrap_err();
            assert!(error.starts_with(reason) && !error.contains("hunter2"), "{error}");
        }
        for share in [-0.1, 1.1, f64::NAN] {
            let error = format!("telemetry.trace_share: is {share}, must be from 0 to 1");
            assert_eq!(collector("", share).unwrap_err(), error);
        }
    }
}
