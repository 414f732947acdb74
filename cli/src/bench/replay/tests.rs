use super::*;
use crate::bench::Turn;
use crate::bench::latency::Latency;
use crate::bench::tests::args;

/// A report of made-up numbers.
pub(super) fn report() -> Report {
    let latency = |p50_ms, p99_ms| Latency { p50_ms, p99_ms };
    Report {
        cpu: "Some CPU".to_owned(),
        target: "x86_64 linux".to_owned(),
        cores: 2,
        steps: 30,
        batch: 256,
        unroll: 0,
        in_flight: 64,
        sets: Vec::new(),
        seconds: 1.0,
        repeats: 3,
        turn: Turn::Median,
        seed: 7,
        compared: None,
        writers: vec![WritersReport {
            writers: 4,
            inserts_per_second: 20_000.0,
            insert_latency: latency(3.2, 9.8),
            samples_per_second: 400_000.0,
            sample_latency: latency(0.6, 1.1),
            samples_per_second_beside_writers: 90_000.0,
            sample_latency_beside_writers: latency(2.0, 5.0),
            inserts_ratio: None,
            samples_ratio: None,
        }],
        sizes: vec![SizeReport {
            positions: 1_000_020,
            log_bytes: 25_000_000,
            samples_per_second: 390_000.0,
            sample_latency: latency(0.6, 1.2),
            drain_seconds: 0.01,
            restart_seconds: 0.9,
            samples_ratio: None,
        }],
        stall: Some(StallReport {
            seconds: 60.0,
            inserts_per_second: 8_000.0,
            inserts_per_second_beside: 7_900.0,
            samples_per_second: 300_000.0,
            samples_per_second_beside: 299_000.0,
            memory_bytes: Some(120_000_000),
            memory_bytes_beside: None,
        }),
    }
}

#[test]
fn a_tiny_run_measures_everything_and_is_written_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let tiny = format!(
        "--writers 1,2 --steps 5 --batch 8 --in-flight 4 --positions 60,200 --stall-seconds 0.02 --seconds 0.02 --repeats 1 --folder {}",
        folder.path().display()
    );
    let mut table = Vec::new();
    run(&args(&format!("{tiny} --out {}", out.display())), &mut table).unwrap();
    assert_eq!(std::fs::read(out.join("replay.md")).unwrap(), table);
    assert!(std::fs::read_to_string(out.join("replay.svg")).unwrap().contains("positions held"));

    let (earlier, mut json) = (out.join("replay.json"), Vec::new());
    run(&args(&format!("{tiny} --json --compare {}", earlier.display())), &mut json).unwrap();
    let report: Report = serde_json::from_slice(&json).unwrap();
    let writers: Vec<usize> = report.writers.iter().map(|report| report.writers).collect();
    assert_eq!(writers, [1, 2]);
    for report in &report.writers {
        assert!(report.inserts_per_second > 0.0 && report.samples_per_second > 0.0, "{report:?}");
        assert!(report.insert_latency.p50_ms > 0.0 && report.sample_latency_beside_writers.p99_ms > 0.0, "{report:?}");
        assert!(report.inserts_ratio.is_some() && report.samples_ratio.is_some(), "{report:?}");
    }
    let positions: Vec<u64> = report.sizes.iter().map(|size| size.positions).collect();
    assert_eq!(positions, [60, 200]);
    assert!(report.sizes.iter().all(|size| size.restart_seconds > 0.0 && size.log_bytes > 0), "{report:?}");
    let stall = report.stall.unwrap();
    assert!(stall.inserts_per_second_beside > 0.0 && stall.samples_per_second_beside > 0.0, "{stall:?}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["out"], "the folders of the servers are removed");
}

#[test]
fn options_that_make_no_sense_are_named() {
    let error = |line: &str| format!("{:#}", run(&args(line), &mut Vec::new()).unwrap_err());
    assert!(error("--writers 0").contains("--writers"));
    assert!(error("--batch 0").contains("--batch"));
    assert!(error("--steps 50").contains("--steps"));
    assert!(error("--in-flight 0").contains("--in-flight"));
    assert!(error("--stall-seconds=-1").contains("--stall-seconds"));
    assert!(error("--repeats 0").contains("--repeats"));
    assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
    let folder = tempfile::tempdir().unwrap();
    let error = error(&format!("--folder {} --set replay.fsync=1 --seconds 0", folder.path().display()));
    assert!(error.contains("replay.fsync"), "{error}");
}
