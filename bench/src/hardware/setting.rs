use std::fmt;

use network_torch::{Device, Precision};

/// A device, an engine, a precision, and the use of cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// As configuration writes it: `cpu`, `cuda`, `cuda:1`, `mps`.
    pub(super) device: String,
    /// `libtorch`, or a path of the CPU kernel.
    pub(super) engine: String,
    /// `f32` or `bf16`.
    pub(super) precision: String,
    /// Number of evaluators that compute side by side, each with a batch of its own.
    pub(super) evaluators: usize,
    /// Threads that each of them shares an operation out to.
    pub(super) threads: usize,
}

/// The use of a CPU's cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Split {
    /// Number of evaluators that compute side by side.
    pub(super) evaluators: usize,
    /// Threads of each.
    pub(super) threads: usize,
}

impl Split {
    /// One core.
    pub(super) const SINGLE: Self = Self { evaluators: 1, threads: 1 };

    /// One evaluator on one thread; on all of them; and one on each of them.
    pub(super) fn all(threads: usize) -> Vec<Self> {
        let mut splits = vec![Self::SINGLE, Self { threads, ..Self::SINGLE }, Self { evaluators: threads, threads: 1 }];
        splits.dedup();
        splits
    }
}

impl Setting {
    /// libtorch on a device.
    pub(super) fn libtorch(device: Device, precision: Precision, split: Split) -> Self {
        Self::new(device, "libtorch", precision, split)
    }

    /// The CPU kernel on the path of this name.
    pub(super) fn kernel(path: &str, precision: Precision, split: Split) -> Self {
        Self::new(Device::Cpu, path, precision, split)
    }

    fn new(device: Device, engine: &str, precision: Precision, Split { evaluators, threads }: Split) -> Self {
        Self {
            device: network_torch::device_name(device),
            engine: engine.to_owned(),
            precision: precision.to_string(),
            evaluators,
            threads,
        }
    }

    /// True if it is no accelerator.
    pub(super) fn is_cpu(&self) -> bool {
        self.device == network_torch::device_name(Device::Cpu)
    }

    /// Engine and precision; a path of the kernel has its precision in its name.
    pub(super) fn engine_and_precision(&self) -> String {
        let Self { engine, precision, .. } = self;
        if engine.ends_with(precision.as_str()) { engine.clone() } else { format!("{engine} {precision}") }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.device, self.engine_and_precision())?;
        // What waits for an accelerator has one thread, always.
        match (self.evaluators, self.threads) {
            _ if !self.is_cpu() => Ok(()),
            (1, 1) => f.write_str(", 1 thread"),
            (1, threads) => write!(f, ", {threads} threads"),
            (evaluators, _) => write!(f, ", {evaluators} evaluators"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_names_device_engine_precision_and_cores() {
        let split = |evaluators, threads| Split { evaluators, threads };
        let libtorch = |device, split| Setting::libtorch(device, Precision::Bf16, split).to_string();
        assert_eq!(libtorch(Device::Cpu, Split::SINGLE), "cpu libtorch bf16, 1 thread");
        assert_eq!(libtorch(Device::Cpu, split(1, 4)), "cpu libtorch bf16, 4 threads");
        assert_eq!(libtorch(Device::Cpu, split(4, 1)), "cpu libtorch bf16, 4 evaluators");
        assert_eq!(libtorch(Device::Cuda(1), Split::SINGLE), "cuda:1 libtorch bf16");
        assert_eq!(Setting::kernel("avx2-f32", Precision::F32, split(2, 1)).to_string(), "cpu avx2-f32, 2 evaluators");
        assert_eq!(Setting::kernel("kernel", Precision::F32, Split::SINGLE).to_string(), "cpu kernel f32, 1 thread");
    }

    #[test]
    fn a_single_core_is_used_in_one_way() {
        assert_eq!(Split::all(1), [Split::SINGLE]);
        assert_eq!(Split::all(4).len(), 3);
    }
}
