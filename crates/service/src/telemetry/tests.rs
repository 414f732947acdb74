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

/// Lines that somebody reads back.
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
fn a_json_line_says_which_run_role_version_and_instance_speaks() {
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
    let said = ["run", "role", "version", "instance", "level"].map(|key| line[key].as_str().unwrap().to_owned());
    assert_eq!(said, ["quoted \"run\"", "arena", "1.2.3", "host:7", "INFO"], "{text}");
    assert_eq!(line["fields"]["message"], "a \"quoted\" word");
    assert_eq!(line["fields"]["step"], 7);
    assert!(text.ends_with("}\n"), "{text:?}");
}

fn settings(otlp: &str, trace_share: f64) -> Result<Option<TraceSettings>, String> {
    let section = TelemetrySection { otlp: otlp.to_owned(), trace_share, run: String::new() };
    section.settings().map_err(|error| error.to_string())
}

#[test]
fn nothing_is_traced_unless_a_collector_is_named() {
    assert_eq!(TelemetrySection::default().settings().unwrap(), None);
    assert_eq!(settings("", 1.0), Ok(None));
}

#[test]
fn an_endpoint_is_read_as_exporters_read_it() {
    let reads =
        |otlp: &str| settings(otlp, 1.0).map(|read| read.map(|read| (read.collector.address, read.collector.path)));
    let to = |address: &str, path: &str| Ok(Some((address.to_owned(), path.to_owned())));
    assert_eq!(reads("http://otel-collector"), to("otel-collector:4318", "/v1/traces"));
    assert_eq!(reads("http://127.0.0.1:9/"), to("127.0.0.1:9", "/v1/traces"));
    assert_eq!(reads("http://[::1]:9/tenant/traces"), to("[::1]:9", "/tenant/traces"));
}

#[test]
fn an_endpoint_that_cannot_be_reached_or_would_show_a_secret_is_refused_by_its_key() {
    for (otlp, reason) in [
        ("https://collector", "telemetry.otlp: is https: "),
        ("grpc://collector", "telemetry.otlp: must begin with http://"),
        ("http://user:hunter2@collector", "telemetry.otlp: must hold no user and no password"),
        ("not an address", "telemetry.otlp: is no address"),
    ] {
        let error = settings(otlp, 1.0).unwrap_err();
        assert!(error.starts_with(reason) && !error.contains("hunter2"), "{error}");
    }
    for share in [-0.1, 1.1, f64::NAN] {
        assert_eq!(settings("", share).unwrap_err(), "telemetry.trace_share: must be from 0 to 1");
    }
}
