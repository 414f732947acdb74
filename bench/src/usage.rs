//! CPU time by thread and memory of a process, on Linux; unknown on other systems.

use std::fs;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use service::machine::listed_bytes;

/// Resource usage of one process at one time.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Usage {
    /// CPU time of all threads, including threads that have exited.
    pub(super) cpu_seconds: f64,
    /// Threads that are running, with CPU times.
    pub(super) threads: Vec<ThreadUsage>,
    /// Resident memory of the process.
    pub(super) memory_bytes: Option<u64>,
}

/// CPU time of one thread.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ThreadUsage {
    pub(super) id: u64,
    /// Name, at most fifteen characters; library threads inherit the name of the starting thread.
    pub(super) name: String,
    pub(super) cpu_seconds: f64,
}

/// Returns the usage of process `id` so far; `None` if the system does not report it.
pub(super) fn of(id: u32) -> Option<Usage> {
    in_folder(&Path::new("/proc").join(id.to_string()), ticks_per_second()?)
}

/// Returns the resident memory of a process, in bytes.
pub(super) fn memory(id: Option<u32>) -> Option<u64> {
    of(id?)?.memory_bytes
}

/// Returns the CPU time of a process so far, in seconds.
pub(super) fn cpu_seconds(id: Option<u32>) -> Option<f64> {
    Some(of(id?)?.cpu_seconds)
}

/// Returns the CPU time of a process beyond `before`, in seconds.
pub(super) fn cpu_since(id: Option<u32>, before: Option<f64>) -> Option<f64> {
    Some((cpu_seconds(id)? - before?).max(0.0))
}

/// Interval between two readings of the memory of a process.
const MEMORY_INTERVAL: Duration = Duration::from_millis(20);

/// Waits for `work`; returns the result, and the maximum memory of a process that was observed meanwhile.
pub(super) async fn with_peak<T>(id: Option<u32>, work: impl Future<Output = T>) -> (T, Option<u64>) {
    let (mut work, mut peak, mut look) = (pin!(work), None, tokio::time::interval(MEMORY_INTERVAL));
    loop {
        tokio::select! {
            done = &mut work => return (done, peak),
            _ = look.tick() => peak = peak.max(memory(id)),
        }
    }
}

/// Reads the usage from the directory of a process in `/proc`.
fn in_folder(folder: &Path, ticks_per_second: f64) -> Option<Usage> {
    let (_, ticks) = name_and_ticks(&fs::read_to_string(folder.join("stat")).ok()?)?;
    // A thread that exits during the reading is skipped.
    let threads = fs::read_dir(folder.join("task")).ok()?.flatten().filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let (name, ticks) = name_and_ticks(&fs::read_to_string(entry.path().join("stat")).ok()?)?;
        Some(ThreadUsage { id, name, cpu_seconds: ticks as f64 / ticks_per_second })
    });
    let status = fs::read_to_string(folder.join("status")).ok();
    Some(Usage {
        cpu_seconds: ticks as f64 / ticks_per_second,
        threads: threads.collect(),
        memory_bytes: status.and_then(|status| listed_bytes(&status, "VmRSS:")),
    })
}

/// Parses `1234 (a name) S …`: the name, and the ticks spent in user and system mode, the 14th and 15th field.
fn name_and_ticks(stat: &str) -> Option<(String, u64)> {
    let (_, rest) = stat.split_once('(')?;
    // A name may contain any character, including brackets.
    let (name, fields) = rest.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((name.to_owned(), ticks()?.checked_add(ticks()?)?))
}

fn ticks_per_second() -> Option<f64> {
    // SAFETY: sysconf takes a plain number and reads no memory of this program.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    (ticks > 0).then_some(ticks as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "77 (tokio ) worker) S 1 77 77 0 -1 4194560 900 0 0 0 250 50 7 7 20 0 5 0 1000 0 0";

    #[test]
    fn a_name_may_hold_brackets() {
        assert_eq!(name_and_ticks(STAT), Some(("tokio ) worker".to_owned(), 300)));
    }

    #[test]
    fn malformed_process_statistics_are_unknown() {
        for text in ["", "77", "77 (a", "77 (a) S 1 2", "77 (a) S 1 77 77 0 -1 4194560 900 0 0 0 x 50 7"] {
            assert_eq!(name_and_ticks(text), None, "{text}");
        }
        assert_eq!(in_folder(Path::new("/nowhere"), 100.0), None);
    }

    #[test]
    fn a_process_is_read_with_its_threads() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("stat", STAT);
        write("status", "VmRSS: 4 kB");
        write("task/78/stat", "78 (train) R 1 77 77 0 -1 0 0 0 0 0 100 20 0 0");
        write("task/79/stat", "gone");
        let train = ThreadUsage { id: 78, name: "train".to_owned(), cpu_seconds: 1.2 };
        let usage = Usage { cpu_seconds: 3.0, threads: vec![train], memory_bytes: Some(4096) };
        assert_eq!(in_folder(folder.path(), 100.0), Some(usage));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_found() {
        let usage = of(std::process::id()).unwrap();
        assert!(!usage.threads.is_empty() && usage.memory_bytes.unwrap() > 0, "{usage:?}");
    }
}
