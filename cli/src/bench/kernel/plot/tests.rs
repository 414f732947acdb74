use super::super::testing;
use super::*;

fn drawn(report: &Report) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.svg");
    draw(&path, report).unwrap();
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn every_engine_is_named_with_its_last_value() {
    let text = drawn(&testing::report());
    for name in ["6x64@6x7", "24k avx512-bf16", "12k libtorch bf16", "3.0k libtorch f32", "8.0k openvino bf16"] {
        assert!(text.contains(name), "{name} is not in {text}");
    }
    assert!(!text.contains("onnxruntime"));
}

#[test]
fn each_network_has_a_panel() {
    let mut report = testing::report();
    let mut other = report.networks[0].clone();
    other.network = "10x128@19x19".to_owned();
    report.networks.extend([other.clone(), other]);
    assert_eq!(drawn(&report).matches("10x128@19x19").count(), 2);
}

#[test]
fn reports_without_speeds_are_drawn_too() {
    let mut report = testing::report();
    report.networks[0].engines.iter_mut().for_each(|engine| engine.speeds.truncate(1));
    drawn(&report);
    report.networks[0].engines.clear();
    drawn(&report);
    report.networks.clear();
    drawn(&report);
}
