use super::*;
use crate::bench::tests::{args, parsed};

const TINY: &str = "--game tic_tac_toe --channels 4 --blocks 1 --threads 2 --games 4 --simulations 8 --batches 2,4 \
                    --seconds 0.02 --repeats 1 --device cpu --precision f32 --kernel auto";

#[test]
fn a_tiny_run_measures_everything() {
    let report = measure(&args(TINY)).unwrap();
    assert_eq!(report.evaluator.iter().map(|speed| speed.batch).collect::<Vec<_>>(), [2, 4]);
    assert!(report.evaluator.iter().all(|speed| speed.evaluations_per_second > 0.0));
    assert!(report.libtorch.iter().all(|speed| speed.evaluations_per_second > 0.0));
    assert!(report.selfplay.simulations_per_second > 0.0);
    assert!(report.share.is_finite() && report.share_of_libtorch.is_finite());
}

#[test]
fn the_report_is_a_table_or_json() {
    let (mut table, mut json) = (Vec::new(), Vec::new());
    run(&args(TINY), &mut table).unwrap();
    run(&args(&format!("{TINY} --json --cache-positions 1000")), &mut json).unwrap();
    assert!(String::from_utf8(table).unwrap().contains("| **share of its evaluator's best batch** |"));
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert!(json["selfplay"]["evaluations_per_second"].is_number());
}

#[test]
fn options_that_make_no_sense_are_named() {
    let error = measure(&Args { batches: vec![0], ..args(TINY) }).unwrap_err();
    assert!(error.to_string().contains("--batches"));
    assert!(parsed::<Args>(["--game", "chess"]).is_err());
}

#[test]
fn the_middle_of_three_counts() {
    assert_eq!(middle(vec![3.0, 1.0, 2.0], |&x| x), 2.0);
}
