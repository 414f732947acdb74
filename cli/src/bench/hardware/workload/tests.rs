use std::time::Duration;

use super::super::series::Limits;
use super::*;
use crate::bench::Turn;
use crate::bench::kernel::NetworkSize;

fn settings(workload: &Workload, devices: Vec<Device>) -> Vec<String> {
    let means = Means { devices, threads: 2, seed: 1 };
    let reports = workload.series(&means).into_iter().map(|series| series.report(Turn::Median));
    reports.map(|report| report.setting.to_string()).collect()
}

#[test]
fn what_is_no_network_is_computed_by_one_at_a_time() {
    for workload in [Workload::Product, Workload::Vector(VectorOperation::Sum)] {
        let expected = ["f32", "bf16"]
            .map(|precision| ["1 thread", "2 threads"].map(|cores| format!("cpu libtorch {precision}, {cores}")));
        assert_eq!(settings(&workload, vec![Device::Cpu]), expected.concat());
    }
}

#[test]
fn networks_are_asked_side_by_side_too() {
    let dense = Workload::Dense("4x8x2".parse().unwrap());
    let settings = settings(&dense, vec![Device::Cpu]);
    assert_eq!(settings.len(), 6);
    assert!(settings.contains(&"cpu libtorch bf16, 2 evaluators".to_owned()), "{settings:?}");
}

#[test]
fn towers_are_computed_by_the_kernel_too_in_float32_everywhere() {
    let size: NetworkSize = "1x16@3x3".parse().unwrap();
    let tower = Workload::Tower(TowerNetwork::new(size, 1).unwrap());
    let settings = settings(&tower, vec![Device::Cpu]);
    let kernel: Vec<&String> = settings.iter().filter(|setting| !setting.contains("libtorch")).collect();
    assert!(kernel.iter().any(|setting| setting.ends_with("f32, 1 thread")), "{settings:?}");
    assert!(kernel.iter().any(|setting| setting.ends_with("f32, 2 evaluators")), "{settings:?}");
}

#[test]
fn a_device_that_refuses_is_a_reason_and_no_crash() {
    // No libtorch that this is built with computes there.
    let means = Means { devices: vec![Device::Vulkan], threads: 2, seed: 1 };
    let limits = Limits { time: Duration::ZERO, call_time_max: Duration::from_secs(1) };
    let tower = TowerNetwork::new("1x16@3x3".parse().unwrap(), 1).unwrap();
    let dense = Workload::Dense("4x8x2".parse().unwrap());
    for workload in [Workload::Product, Workload::Vector(VectorOperation::Add), Workload::Tower(tower), dense] {
        let mut all = workload.series(&means);
        assert_eq!(all.len(), 2);
        for series in &mut all {
            series.measure(1, limits);
            assert!(series.report(Turn::Median).not_measured.is_some(), "{workload}");
        }
    }
}
