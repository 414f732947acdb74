//! Reports of made-up numbers.

use network_torch::{Device, Precision};

use super::report::{Kind, Report, SettingReport, Speed, WorkloadReport};
use super::setting::{Setting, Split};
use crate::Turn;

/// `(size, speed)` in a setting; a call takes as long as its size and the speed say.
pub(super) fn setting(setting: Setting, speeds: &[(usize, f64)]) -> SettingReport {
    let speed = |&(size, per_second): &(usize, f64)| Speed {
        size,
        latency_us: 1e6 * size as f64 / per_second,
        per_second,
        speed_up: None,
        ratio: None,
    };
    SettingReport { setting, speeds: speeds.iter().map(speed).collect(), not_measured: None }
}

/// libtorch with one thread.
pub(super) fn libtorch(device: Device, precision: Precision) -> Setting {
    Setting::libtorch(device, precision, Split::SINGLE)
}

/// The CPU kernel, libtorch on the CPU without its largest batch, and a GPU that needs large batches.
pub(super) fn settings() -> Vec<SettingReport> {
    let mut refused = setting(libtorch(Device::Cuda(0), Precision::F32), &[(1, 500.0), (64, 10_000.0)]);
    refused.not_measured = Some("size 1024: out of memory".to_owned());
    vec![
        setting(libtorch(Device::Cpu, Precision::F32), &[(1, 1000.0), (64, 8000.0)]),
        setting(
            Setting::kernel("avx512-bf16", Precision::Bf16, Split { evaluators: 2, threads: 1 }),
            &[(1, 20_000.0), (64, 25_000.0)],
        ),
        refused,
        setting(libtorch(Device::Cuda(0), Precision::Bf16), &[(1, 1000.0), (64, 50_000.0), (1024, 200_000.0)]),
    ]
}

/// One network in these settings.
pub(super) fn workload(settings: Vec<SettingReport>) -> WorkloadReport {
    WorkloadReport::new(Kind::Network, "tower 6x64@6x7".to_owned(), settings)
}

/// One network in [`settings`].
pub(super) fn report() -> Report {
    Report {
        cpu: "Some CPU".to_owned(),
        target: "x86_64 linux".to_owned(),
        cores: 2,
        threads: 2,
        devices: vec!["cpu".to_owned(), "cuda".to_owned()],
        missing: vec!["mps: this libtorch has no MPS".to_owned()],
        seconds: 1.0,
        repeats: 3,
        turn: Turn::Median,
        call_seconds_max: 3.0,
        seed: 7,
        compared: None,
        workloads: vec![workload(settings())],
    }
}
