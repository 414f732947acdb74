//! The machine that a benchmark runs on.

pub(super) use service::machine::{cores, cpu_model};

use super::usage;

/// Instruction set and operating system.
#[must_use]
pub(super) fn target() -> String {
    format!("{} {}", std::env::consts::ARCH, std::env::consts::OS)
}

/// The number of threads of an option; 0 is one per core.
#[must_use]
pub(crate) fn threads(requested: usize) -> usize {
    if requested == 0 { cores() } else { requested }
}

/// Returns the peak resident memory of this process, if the system reports it.
#[must_use]
pub(super) fn peak_memory_bytes() -> Option<u64> {
    usage::memory_bytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}
