//! The identity of the machine.

use std::fs;
use std::process::Command;

/// The model of the CPU as reported by the system, or `unknown`.
#[must_use]
pub fn cpu_model() -> String {
    let listed = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| model_in(&text));
    listed.or_else(reported).unwrap_or_else(|| "unknown".to_owned())
}

/// The number of cores that this process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Describes the machine by its host name, if it has one, its CPU model and its cores: the key of stored measurements.
#[must_use]
pub fn describe() -> String {
    let name = host_name().map(|name| name + ", ");
    format!("{}{}, {} cores", name.unwrap_or_default(), cpu_model(), cores())
}

/// The host name that Linux reports.
pub(crate) fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?.trim().to_owned();
    (!name.is_empty()).then_some(name)
}

/// The first model that Linux lists.
fn model_in(cpuinfo: &str) -> Option<String> {
    let values = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let mut models = values.filter(|(key, _)| key.trim() == "model name").map(|(_, value)| value.trim());
    models.find(|model| !model.is_empty()).map(str::to_owned)
}

/// The CPU model that macOS reports.
fn reported() -> Option<String> {
    let output = Command::new("sysctl").args(["-n", "machdep.cpu.brand_string"]).output().ok()?;
    let model = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !model.is_empty()).then_some(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_model_that_linux_lists_counts() {
        let text = "processor\t: 0\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel name\t: other\n";
        assert_eq!(model_in(text).as_deref(), Some("AMD EPYC"));
        assert_eq!(model_in("processor\t: 0\nBogoMIPS\t: 50.00\n"), None);
    }
}
