use clap::Parser;

use super::{Args, markdown, measure};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(options: &[&str]) -> Args {
    let small = ["bench", "--game", "tic_tac_toe", "--blocks", "1", "--channels", "16", "--seconds", "0.05"];
    Line::parse_from(small.iter().chain(options)).args
}

#[test]
fn a_server_is_measured_beside_its_evaluator_in_a_process() {
    let report = measure(&args(&["--threads", "1", "--callers", "1,3", "--repeats", "1", "--batch", "8"])).unwrap();
    assert!(report.in_process_evaluations_per_second > 0.0 && report.fast.evaluations_per_second > 0.0);
    let share = report.fast.evaluations_per_second / report.in_process_evaluations_per_second;
    assert_eq!(report.fast.share_of_in_process, share);
    assert_eq!(report.callers.iter().map(|row| row.callers).collect::<Vec<_>>(), [1, 3]);
    let text = markdown(&report);
    assert!(text.contains("| fast path |") && text.contains("Too much asked"), "{text}");
}

#[test]
fn options_that_make_no_sense_are_refused_by_name() {
    for options in [["--batch", "0"], ["--in-flight", "0"], ["--callers", "0"]] {
        let error = measure(&args(&options)).unwrap_err().to_string();
        assert!(error.contains(options[0]), "{error}");
    }
}
