//! Settings with made-up speeds.

use network_torch::{Device, Precision};

use super::setting::{Setting, Split};
use super::speeds::{SettingSpeeds, Speed};

/// `(size, speed)` in a setting; a call takes as long as its size and the speed say.
pub(super) fn setting(setting: Setting, speeds: &[(usize, f64)]) -> SettingSpeeds {
    let speed = |&(size, per_second): &(usize, f64)| Speed {
        size,
        latency_us: 1e6 * size as f64 / per_second,
        per_second,
        speed_up: None,
    };
    SettingSpeeds { setting, speeds: speeds.iter().map(speed).collect(), not_measured: None }
}

/// libtorch with one thread.
pub(super) fn libtorch(device: Device, precision: Precision) -> Setting {
    Setting::libtorch(device, precision, Split::SINGLE)
}

/// The CPU kernel, libtorch on the CPU without its largest batch, and a GPU that needs large batches.
pub(super) fn settings() -> Vec<SettingSpeeds> {
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
