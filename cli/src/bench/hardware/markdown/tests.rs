use super::super::testing::report;
use super::*;
use crate::bench::search::Compared;

#[track_caller]
fn assert_line(report: &Report, line: &str) {
    let text = markdown(report);
    assert!(text.lines().any(|written| written == line), "{line}\nis not in\n{text}");
}

#[test]
fn speeds_stand_beside_each_other_by_size() {
    let report = report();
    assert_line(&report, "## tower 6x64@6x7");
    assert_line(&report, "| evaluations/s | batch 1 | batch 64 | batch 1024 |");
    assert_line(&report, "|---|---:|---:|---:|");
    assert_line(&report, "| cpu libtorch f32, 1 thread | 1000 (1.00 ms, 0.05) | 8000 (8.00 ms, 0.32) | – |");
    assert_line(&report, "| cuda libtorch bf16 | 1000 (1.00 ms, 0.05) | 50000 (1.28 ms, 2.00) | 200000 (5.12 ms) |");
}

#[test]
fn the_recommendation_stands_before_the_table() {
    let report = report();
    assert_line(&report, &report.workloads[0].in_words);
}

#[test]
fn devices_are_named_and_those_that_are_missing_with_the_reason() {
    assert_line(&report(), "- devices: cpu, cuda");
    assert_line(&report(), "- no mps: this libtorch has no MPS");
}

#[test]
fn what_a_device_refused_is_said_below() {
    assert_line(&report(), "cuda libtorch f32: not measured: size 1024: out of memory");
}

#[test]
fn ratios_are_told_with_what_they_are_to() {
    let mut report = report();
    assert!(!markdown(&report).contains("- ratio") && !markdown(&report).contains(", ratio"));
    report.compared = Some(Compared { file: "before.json".to_owned(), cpu: "Another CPU".to_owned() });
    report.workloads[0].settings[0].speeds[0].ratio = Some(1.254);
    assert_line(&report, "- ratio: to before.json, measured on Another CPU");
    assert_line(
        &report,
        "| cpu libtorch f32, 1 thread | 1000 (1.00 ms, 0.05, ratio 1.25) | 8000 (8.00 ms, 0.32) | – |",
    );
}

#[test]
fn a_workload_without_speeds_has_no_table() {
    let mut report = report();
    report.workloads[0].settings.iter_mut().for_each(|report| report.speeds.clear());
    assert!(!markdown(&report).contains("|---|"));
}
