use std::fmt;

use network_torch::{Device, Precision};

/// A device, an engine, a precision, and a split over cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    name: String,
    /// Accelerator as written in the configuration: `cuda`, `cuda:1`, `mps`; `None` on the CPU.
    pub(super) accelerator: Option<String>,
}

/// Use of CPU cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Split {
    /// Number of evaluators that compute in parallel, each with a separate batch.
    pub(super) evaluators: usize,
    /// Threads over which each evaluator distributes an operation.
    pub(super) threads: usize,
}

impl Split {
    /// One evaluator on one thread.
    pub(super) const SINGLE: Self = Self { evaluators: 1, threads: 1 };

    /// Returns the splits to measure: one evaluator on one thread, one evaluator on all threads, and one evaluator per
    /// thread.
    pub(super) fn all(threads: usize) -> Vec<Self> {
        let mut splits = vec![Self::SINGLE, Self { threads, ..Self::SINGLE }, Self { evaluators: threads, threads: 1 }];
        splits.dedup();
        splits
    }
}

impl Setting {
    /// Creates a setting; `engine` is `libtorch` or a path of the CPU kernel, with a name that may include the
    /// precision.
    pub(super) fn new(device: Device, engine: &str, precision: Precision, split: Split) -> Self {
        let (device_name, precision) = (network_torch::device_name(device), precision.to_string());
        let mut name = format!("{device_name} {engine}");
        if !engine.ends_with(&precision) {
            name += &format!(" {precision}");
        }
        // An accelerator always has one thread, which waits for the device.
        name += &match split {
            _ if device != Device::Cpu => String::new(),
            Split { evaluators: 1, threads: 1 } => ", 1 thread".to_owned(),
            Split { evaluators: 1, threads } => format!(", {threads} threads"),
            Split { evaluators, .. } => format!(", {evaluators} evaluators"),
        };
        Self { name, accelerator: (device != Device::Cpu).then_some(device_name) }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_names_device_engine_precision_and_cores() {
        let split = |evaluators, threads| Split { evaluators, threads };
        let libtorch = |device, split| Setting::new(device, "libtorch", Precision::Bf16, split).to_string();
        assert_eq!(libtorch(Device::Cpu, Split::SINGLE), "cpu libtorch bf16, 1 thread");
        assert_eq!(libtorch(Device::Cpu, split(1, 4)), "cpu libtorch bf16, 4 threads");
        assert_eq!(libtorch(Device::Cpu, split(4, 1)), "cpu libtorch bf16, 4 evaluators");
        assert_eq!(libtorch(Device::Cuda(1), Split::SINGLE), "cuda:1 libtorch bf16");
        let kernel = |path, split| Setting::new(Device::Cpu, path, Precision::F32, split).to_string();
        assert_eq!(kernel("avx2-f32", split(2, 1)), "cpu avx2-f32, 2 evaluators");
        assert_eq!(kernel("kernel", Split::SINGLE), "cpu kernel f32, 1 thread");
    }

    #[test]
    fn a_single_core_is_used_in_one_way() {
        assert_eq!(Split::all(1), [Split::SINGLE]);
        assert_eq!(Split::all(4).len(), 3);
    }
}
