//! What a benchmark ran on.

use std::process::Command;

use super::usage;

/// The model of the CPU as the system calls it, or `unknown`.
#[must_use]
pub(super) fn cpu_model() -> String {
    let listed = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| model_in(&text));
    listed.or_else(asked).unwrap_or_else(|| "unknown".to_owned())
}

/// Instruction set and operating system.
#[must_use]
pub(super) fn target() -> String {
    format!("{} {}", std::env::consts::ARCH, std::env::consts::OS)
}

/// Cores that this process may use.
#[must_use]
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// As many threads as were asked for; 0 asks for one per core.
#[must_use]
pub(super) fn threads(asked: usize) -> usize {
    if asked == 0 { cores() } else { asked }
}

/// The most memory that this process ever held, where the system tells.
#[must_use]
pub(super) fn peak_memory_bytes() -> Option<u64> {
    usage::memory_bytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// The first model that Linux lists.
fn model_in(cpuinfo: &str) -> Option<String> {
    let values = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let mut models = values.filter(|(key, _)| key.trim() == "model name").map(|(_, value)| value.trim());
    models.find(|model| !model.is_empty()).map(str::to_owned)
}

/// What macOS answers.
fn asked() -> Option<String> {
    let output = Command::new("sysctl").args(["-n", "machdep.cpu.brand_string"]).output().ok()?;
    let model = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !model.is_empty()).then_some(model)
}

#[cfg(test)]
mod tests;
