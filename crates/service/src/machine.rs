//! The identity of the machine: host name, CPU, cores and memory.

use std::fs;
use std::process::Command;

/// Returns the model of the CPU as reported by the system, or `unknown`.
#[must_use]
pub fn cpu_model() -> String {
    let listed = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| model_in(&text));
    listed.or_else(|| system_control("machdep.cpu.brand_string")).unwrap_or_else(|| "unknown".to_owned())
}

/// Returns the number of cores that this process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the memory of this machine in bytes, or a smaller container limit; `None` if the system does not report it.
#[must_use]
pub fn memory_bytes() -> Option<u64> {
    let read = |path| fs::read_to_string(path).ok();
    let listed = read("/proc/meminfo").and_then(|text| listed_bytes(&text, "MemTotal:"));
    let total = listed.or_else(|| system_control("hw.memsize")?.parse().ok())?;
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limits = limits.into_iter().filter_map(|path| read(path)?.trim().parse().ok());
    Some(limits.fold(total, u64::min))
}

/// Returns the peak resident memory of this process in bytes; `None` if the system does not report it.
#[must_use]
pub fn peak_memory_bytes() -> Option<u64> {
    listed_bytes(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Returns the bytes in a line of a Linux listing such as `VmRSS: 1234 kB`.
#[must_use]
pub fn listed_bytes(text: &str, key: &str) -> Option<u64> {
    let kibibytes = text.lines().find_map(|line| line.strip_prefix(key))?.trim().strip_suffix("kB")?;
    kibibytes.trim().parse::<u64>().ok()?.checked_mul(1 << 10)
}

/// Describes the machine by host name, if any, CPU model and cores: the key of stored measurements.
#[must_use]
pub fn describe() -> String {
    let name = host_name().map(|name| name + ", ");
    format!("{}{}, {} cores", name.unwrap_or_default(), cpu_model(), cores())
}

/// Returns the host name that Linux reports.
pub(crate) fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?.trim().to_owned();
    (!name.is_empty()).then_some(name)
}

/// Returns the first model in a Linux listing.
fn model_in(cpuinfo: &str) -> Option<String> {
    let values = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let mut models = values.filter(|(key, _)| key.trim() == "model name").map(|(_, value)| value.trim());
    models.find(|model| !model.is_empty()).map(str::to_owned)
}

/// Returns the value of `name` that macOS reports.
fn system_control(name: &str) -> Option<String> {
    let output = Command::new("sysctl").args(["-n", name]).output().ok()?;
    let value = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_listed_in_kibibytes_and_this_machine_has_some() {
        assert_eq!(listed_bytes("MemTotal:       16384 kB\nMemFree: 1 kB\n", "MemTotal:"), Some(16 << 20));
        assert_eq!(listed_bytes("VmPeak: 5 kB\nVmHWM:\t 14 kB", "VmHWM:"), Some(14 << 10));
        assert_eq!(listed_bytes("VmRSS: a lot", "VmRSS:"), None);
        assert_eq!(listed_bytes("MemFree: 1 kB\n", "MemTotal:"), None);
        assert!(peak_memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert!(memory_bytes().is_some_and(|bytes| bytes > 1 << 26));
    }

    #[test]
    fn the_first_model_that_linux_lists_counts() {
        let text = "processor\t: 0\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel name\t: other\n";
        assert_eq!(model_in(text).as_deref(), Some("AMD EPYC"));
        assert_eq!(model_in("processor\t: 0\nBogoMIPS\t: 50.00\n"), None);
    }
}
