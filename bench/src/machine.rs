//! The machine that a benchmark runs on.

pub(super) use service::machine::{cores, cpu_model, peak_memory_bytes};

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
