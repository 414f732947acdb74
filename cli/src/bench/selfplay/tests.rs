use super::*;
use crate::bench::Turn;
use crate::bench::tests::{args, parsed};

const TINY: &str = "--game tic_tac_toe --channels 16 --blocks 1 --threads 2 --games 4 --simulations 8 --batches 2,4 \
                    --seconds 0.02 --repeats 1 --device cpu --precision f32 --kernel auto";

/// A report with numbers that tell each other apart.
pub(super) fn report() -> Report {
    let alone = |batch, evaluations_per_second| EvaluatorSpeed { batch, evaluations_per_second };
    let whole = SelfplaySpeed {
        evaluations_per_second: 7000.0,
        simulations_per_second: 12_000.0,
        positions_per_second: 300.0,
        games_per_second: 10.0,
        mean_batch: 50.0,
        batch_fill: 0.78,
        cache_hit_share: 0.25,
        experience_bytes_per_position: 60.0,
    };
    Report {
        cpu: "a CPU".to_owned(),
        target: "x86_64 linux".to_owned(),
        cores: 2,
        game: "connect_four".to_owned(),
        network: "6x64".to_owned(),
        engine: "tower cpu avx2-f32".to_owned(),
        libtorch_engine: "libtorch on cpu".to_owned(),
        in_flight: None,
        threads: 2,
        pinned: false,
        games: 64,
        leaves: 1,
        simulations: 64,
        seconds: 1.0,
        repeats: 3,
        turn: Turn::Median,
        seed: 1,
        evaluator: vec![alone(1, 8000.0), alone(64, 10_000.0)],
        libtorch: vec![alone(1, 2000.0), alone(64, 6000.0)],
        plain: Some(SelfplaySpeed { evaluations_per_second: 9000.0, positions_per_second: 140.0, ..whole }),
        whole,
        share: Some(0.9),
        share_of_libtorch: Some(1.5),
        peak_memory_bytes: Some(100 << 20),
        compared: None,
    }
}

#[test]
fn a_tiny_run_measures_everything() {
    let report = measure(&args(TINY)).unwrap();
    assert_eq!(report.evaluator.iter().map(|speed| speed.batch).collect::<Vec<_>>(), [2, 4]);
    assert!(report.evaluator.iter().all(|speed| speed.evaluations_per_second > 0.0));
    assert!(report.libtorch.iter().all(|speed| speed.evaluations_per_second > 0.0));
    let plain = report.plain.unwrap();
    assert!(plain.simulations_per_second > 0.0 && plain.cache_hit_share == 0.0);
    assert!(report.whole.cache_hit_share > 0.0);
    assert!(report.share.is_some() && report.share_of_libtorch.is_some());
}

#[test]
fn whole_self_play_can_be_measured_by_itself() {
    let report = measure(&args(&format!("{TINY} --whole-only --experience dense"))).unwrap();
    assert!(report.evaluator.is_empty() && report.plain.is_none() && report.share.is_none());
    assert_eq!(report.whole.experience_bytes_per_position, f64::from(4 * (2 * 9 + 9 + 3)));
}

#[cfg(target_os = "linux")]
#[test]
fn pinned_threads_play_and_the_report_says_so() {
    let report = measure(&args(&format!("{TINY} --whole-only --pin"))).unwrap();
    assert!(report.pinned && report.whole.positions_per_second > 0.0);
    assert!(markdown(&report).contains("2 threads, each on a cpu of its own, with 4 games each"));
    assert_eq!(report.in_flight, None, "on a CPU nothing is in flight");
    assert!(measure(&args(&format!("{TINY} --in-flight 5"))).unwrap_err().to_string().contains("--in-flight"));
}

#[test]
fn the_report_is_a_table_or_json() {
    let (mut table, mut json) = (Vec::new(), Vec::new());
    run(&args(TINY), &mut table).unwrap();
    run(&args(&format!("{TINY} --json --cache-positions 1000")), &mut json).unwrap();
    assert!(String::from_utf8(table).unwrap().contains("| **share of its evaluator's best batch** |"));
    let read: Report = serde_json::from_slice(&json).unwrap();
    assert!(read.whole.positions_per_second > 0.0);
}

#[test]
fn the_table_says_what_the_share_is() {
    let table = markdown(&report());
    assert!(table.contains("| **share of its evaluator's best batch** | **90.0 %** |"), "{table}");
    assert!(table.contains("| whole | 300 | 10.0 | 12000 | 7000 | 78.0 % | 25.0 % | 60 |"), "{table}");
    let alone = Report { plain: None, share: None, evaluator: Vec::new(), ..report() };
    assert!(!markdown(&alone).contains("share"));
}

#[test]
fn reports_are_written_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    run(&args(&format!("{TINY} --out {path}")), &mut Vec::new()).unwrap();
    let mut table = Vec::new();
    run(&args(&format!("{TINY} --compare {path}/selfplay.json")), &mut table).unwrap();
    assert!(String::from_utf8(table).unwrap().contains("- ratio to "));
    assert!(std::fs::read_to_string(folder.path().join("selfplay.svg")).unwrap().contains("<svg"));
    let error = run(&args(&format!("{TINY} --compare {path}/selfplay.md")), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("selfplay.md"), "{error}");
}

#[test]
fn options_that_make_no_sense_are_named() {
    let error = measure(&Args { batches: vec![0], ..args(TINY) }).unwrap_err();
    assert!(error.to_string().contains("--batches"));
    assert!(parsed::<Args>(["--game", "chess"]).is_err());
}
