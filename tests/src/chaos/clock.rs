//! Clocks of a process that differ from the machine: the wall clock with libfaketime, the monotonic clock with a time
//! namespace.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::process::{Process, run};

/// Minimum value of a monotonic clock that is set back, in seconds: the system refuses a value below zero.
const MONOTONIC_SECONDS_MIN: i64 = 60;

/// Returns the path of libfaketime as installed on Debian.
pub(super) fn library() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let paths = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    paths.into_iter().find(|path| path.is_file())
}

/// Returns true if processes can be started in time namespaces.
pub(super) fn has_namespaces() -> bool {
    let shifted = [shift(1_000_000), vec!["cat".into(), "/proc/uptime".into()]].concat();
    let uptime = run(Command::new(&shifted[0]).args(&shifted[1..])).unwrap_or_default();
    uptime.split('.').next().and_then(|seconds| seconds.parse().ok()).is_some_and(|seconds: u64| seconds >= 1_000_000)
}

/// Starts the process with a monotonic clock that is off by `seconds`, from the next start on.
pub(super) fn set_monotonic(process: &mut Process, seconds: i64) -> anyhow::Result<()> {
    let uptime = fs::read_to_string("/proc/uptime").context("read the uptime")?;
    let uptime = uptime.split('.').next().and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
    process.launch_with(shift(seconds.max((MONOTONIC_SECONDS_MIN - uptime).min(0))));
    Ok(())
}

/// Returns the command line that starts a program with shifted monotonic clocks.
fn shift(seconds: i64) -> Vec<OsString> {
    let seconds = seconds.to_string();
    ["unshare", "--time", "--monotonic", &seconds, "--boottime", &seconds].map(OsString::from).to_vec()
}

/// Wall clock of a process.
#[derive(Debug)]
pub(super) struct WallClock(PathBuf);

impl WallClock {
    /// Makes the process read the wall clock through the library, which uses the file `path`.
    pub(super) fn of(process: &mut Process, library: &Path, path: PathBuf) -> anyhow::Result<Self> {
        process.set("LD_PRELOAD", library);
        process.set("FAKETIME_TIMESTAMP_FILE", &path);
        // Only the wall clock jumps, and only for the process itself, not in file times.
        process.set("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        process.set("NO_FAKE_STAT", "1");
        process.set("FAKETIME_CACHE_DURATION", "1");
        let clock = Self(path);
        clock.set(0)?;
        Ok(clock)
    }

    /// Sets the clock to `seconds` ahead of the machine, within a second.
    pub(super) fn set(&self, seconds: i64) -> anyhow::Result<()> {
        // The library reads the file at any time, so it is replaced.
        let new = self.0.with_extension("new");
        fs::write(&new, format!("{seconds:+}\n")).context("write the offset of a clock")?;
        fs::rename(&new, &self.0).context("replace the offset of a clock")
    }
}
