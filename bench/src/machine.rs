//! The machine of a benchmark.

pub(super) use service::machine::{cores, cpu_model, peak_memory_bytes};

/// Returns instruction set and operating system.
#[must_use]
pub(super) fn target() -> String {
    format!("{} {}", std::env::consts::ARCH, std::env::consts::OS)
}

/// Returns the number of threads for an option; 0 is one per core.
#[must_use]
pub(crate) fn threads(requested: usize) -> usize {
    if requested == 0 { cores() } else { requested }
}
