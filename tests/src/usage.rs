//! Resources that a process holds, read from `/proc`, and sizes of directories.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// Resources of a process at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Resident memory in bytes.
    pub(crate) memory_bytes: u64,
    /// Number of open descriptors.
    pub(crate) descriptors: u64,
    /// Number of threads.
    pub(crate) threads: u64,
}

/// Returns the resources of process `id`.
///
/// # Errors
/// There is no such process, or the system has no `/proc`.
pub(crate) fn of(id: u32) -> anyhow::Result<Usage> {
    let folder = Path::new("/proc").join(id.to_string());
    let status =
        fs::read_to_string(folder.join("status")).with_context(|| format!("read the status of process {id}"))?;
    let number = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).with_context(|| format!("read {key}"))
    };
    let descriptors = fs::read_dir(folder.join("fd")).context("list the descriptors of a process")?.count();
    Ok(Usage { memory_bytes: number("VmRSS:")? * 1024, descriptors: descriptors as u64, threads: number("Threads:")? })
}

/// Returns the total size of the files at and below `path`, in bytes. A file that is removed meanwhile is skipped.
pub(crate) fn disk_bytes(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return fs::symlink_metadata(path).map_or(0, |file| file.len()) };
    entries.flatten().map(|entry| disk_bytes(&entry.path())).sum()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed step fails the test")]
    use super::*;

    #[test]
    fn memory_descriptors_and_threads_of_a_process_are_seen() {
        let id = std::process::id();
        let before = of(id).unwrap();
        let files: Vec<fs::File> = (0..64).map(|_| fs::File::open("/proc/self/status").unwrap()).collect();
        let memory = vec![1_u8; 64 << 20];
        let after = of(id).unwrap();
        // Other tests of this binary run in parallel.
        assert!(after.descriptors >= before.descriptors + 32, "{before:?} {after:?}");
        assert!(after.memory_bytes >= before.memory_bytes + (32 << 20), "{before:?} {after:?}");
        assert!(after.threads >= 1);
        drop((files, memory));
    }

    #[test]
    fn a_folder_is_as_large_as_its_files_and_a_missing_one_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("below")).unwrap();
        fs::write(folder.path().join("a"), [0; 5]).unwrap();
        fs::write(folder.path().join("below/b"), [0; 7]).unwrap();
        assert_eq!(disk_bytes(folder.path()), 12);
        assert_eq!(disk_bytes(&folder.path().join("missing")), 0);
    }
}
