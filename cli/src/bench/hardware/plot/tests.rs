use super::super::testing::report;
use super::*;

fn drawn(report: &Report) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hardware.svg");
    draw(&path, report).unwrap();
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn every_setting_is_named_with_its_last_value() {
    let text = drawn(&report());
    let names = [
        "tower 6x64@6x7: evaluations/s",
        "25k avx512-bf16 2×1",
        "8.0k libtorch f32 1×1",
        "200k cuda bf16",
        "10k cuda f32",
    ];
    for name in names {
        assert!(text.contains(name), "{name} is not in {text}");
    }
}

#[test]
fn reports_without_speeds_are_drawn_too() {
    let mut report = report();
    report.workloads[0].settings.iter_mut().for_each(|setting| setting.speeds.clear());
    drawn(&report);
    report.workloads.clear();
    drawn(&report);
}
