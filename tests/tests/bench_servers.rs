//! `zerofleet bench replay` and `zerofleet bench inference` on real servers.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use tests::Installation;

const DEADLINE: Duration = Duration::from_secs(180);
/// Arguments for measurements small enough for two busy cores.
const REPLAY: &str =
    "replay --writers 1,2 --positions 60,210 --stall-seconds 0.02 --seconds 0.02 --repeats 1 --folder runs";
const RATES: &str = "replay --writers 12 --rates 5 --seconds 1 --repeats 1 --folder runs";
const INFERENCE: &str = "inference --game tic_tac_toe --blocks 1 --channels 16 --batch 8 --callers 1,3 --threads 1 \
                         --seconds 0.05 --repeats 1";

/// Runs a benchmark with these arguments; returns true if it succeeds, and the output.
fn run(installation: &Installation, arguments: &str) -> (bool, String) {
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let output = installation.run("zerofleet-bench", &arguments, DEADLINE).unwrap();
    (output.status.success(), output.text)
}

/// Returns the report of a benchmark, and checks that it is printed.
fn report(installation: &Installation, name: &str, arguments: &str) -> Value {
    let (succeeded, text) = run(installation, &format!("{arguments} --out out"));
    assert!(succeeded, "{text}");
    let out = installation.directory().join("out");
    let markdown = fs::read_to_string(out.join(format!("{name}.md"))).unwrap();
    assert!(text.contains(&markdown), "{text}");
    serde_json::from_str(&fs::read_to_string(out.join(format!("{name}.json"))).unwrap()).unwrap()
}

/// Returns the positive values of a metric in a section.
fn measured(report: &Value, section: &str, metric: &str) -> Vec<f64> {
    let rows = report["rows"].as_array().unwrap().iter();
    let rows = rows.filter(|row| row["section"] == section && row["metric"] == metric);
    rows.filter_map(|row| row["value"].as_f64().filter(|value| *value > 0.0)).collect()
}

#[test]
fn a_replay_server_is_measured_by_writers_sizes_and_next_to_a_stalled_sampler_and_removed() {
    let installation = Installation::new(&["zerofleet-bench", "replay-server"]).unwrap();
    let report = report(&installation, "replay", REPLAY);
    for (section, metric) in [
        ("by number of writers", "inserts/s"),
        ("by number of writers", "samples/s alone"),
        ("by number of writers", "insert p50"),
        ("by number of writers", "batch beside writers p99"),
        ("by size of the table", "restart"),
        ("by size of the table", "log"),
        ("beside a stalled sampler", "inserts/s"),
        ("beside a stalled sampler", "samples/s"),
        ("beside a stalled sampler", "memory"),
    ] {
        assert_eq!(measured(&report, section, metric).len(), 2, "{section}, {metric}: {report}");
    }
    let plot = fs::read_to_string(installation.directory().join("out").join("replay.svg")).unwrap();
    assert!(plot.contains("positions held"), "{plot}");
    let left = fs::read_dir(installation.directory().join("runs")).unwrap().count();
    assert_eq!(left, 0, "the folders of the servers are removed");
}

#[test]
fn connections_and_inserts_of_many_writers_are_measured_at_a_rate() {
    let installation = Installation::new(&["zerofleet-bench", "replay-server"]).unwrap();
    let report = report(&installation, "replay", RATES);
    assert_eq!(measured(&report, "connections", "all open after").len(), 1, "{report}");
    assert_eq!(measured(&report, "by rate of each writer", "wanted/s"), [60.0]);
    for metric in ["inserts/s", "insert p99", "trajectories"] {
        assert_eq!(measured(&report, "by rate of each writer", metric).len(), 1, "{metric}: {report}");
    }
    assert_eq!(fs::read_dir(installation.directory().join("runs")).unwrap().count(), 0);
}

#[test]
fn a_setting_that_the_server_refuses_is_named() {
    let installation = Installation::new(&["zerofleet-bench", "replay-server"]).unwrap();
    let (succeeded, text) = run(&installation, &format!("{REPLAY} --set replay.fsync=1"));
    assert!(!succeeded && text.contains("replay.fsync"), "{text}");
}

#[test]
fn an_inference_server_is_measured_beside_its_evaluator_in_a_process() {
    let installation = Installation::new(&["zerofleet-bench", "inference-server"]).unwrap();
    let report = report(&installation, "inference", INFERENCE);
    let [alone, fast, model_infer] = measured(&report, "full batches", "evaluations/s")[..] else {
        panic!("three paths: {report}");
    };
    let shares = measured(&report, "full batches", "share of in process");
    assert_eq!(shares.len(), 2, "{report}");
    for (share, path) in shares.into_iter().zip([fast, model_infer]) {
        // JSON is read with an error in the last bit.
        assert!((share - path / alone).abs() <= 1e-12, "{share}: {report}");
    }
    assert_eq!(measured(&report, "one position per request", "request p99").len(), 2, "{report}");
    assert_eq!(measured(&report, "overload", "deadline").len(), 1, "{report}");
}
