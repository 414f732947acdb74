//! What a benchmark ran on.

pub(super) use service::machine::{cores, cpu_model};

use super::usage;

/// Instruction set and operating system.
#[must_use]
pub(super) fn target() -> String {
    format!("{} {}", std::env::consts::ARCH, std::env::consts::OS)
}

/// As many threads as were asked for; 0 asks for one per core.
#[must_use]
pub(crate) fn threads(asked: usize) -> usize {
    if asked == 0 { cores() } else { asked }
}

/// The most memory that this process ever held, where the system tells.
#[must_use]
pub(super) fn peak_memory_bytes() -> Option<u64> {
    usage::memory_bytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}
