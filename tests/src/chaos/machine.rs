//! Determines which faults this machine can inject.

use std::path::PathBuf;

use super::clock;
use super::disk::Disk;
use super::fault::Kind;

/// Features available on this machine.
#[derive(Debug)]
pub struct Machine {
    /// Path of libfaketime.
    pub(super) faketime: Option<PathBuf>,
    has_time_namespaces: bool,
    has_disks: bool,
    has_slow_disks: bool,
}

impl Machine {
    /// Inspects the machine. Disks mounted afterwards are visible only to the calling thread, and to the threads and
    /// processes that it starts afterwards.
    #[must_use]
    pub fn inspect() -> Self {
        let try_disk = || -> anyhow::Result<bool> {
            let folder = tempfile::tempdir()?;
            Disk::keep_private()?;
            Ok(Disk::mount(folder.path().join("disk"), 8)?.may_be_slow())
        };
        let disk = try_disk();
        Self {
            faketime: clock::library(),
            has_time_namespaces: clock::has_namespaces(),
            has_disks: disk.is_ok(),
            has_slow_disks: disk.unwrap_or(false),
        }
    }

    /// Returns the reason why a fault cannot be injected on this machine; `None` if it can.
    #[must_use]
    pub fn lacks(&self, kind: Kind) -> Option<&'static str> {
        let (is_there, reason) = match kind {
            Kind::WallClock => (self.faketime.is_some(), "libfaketime is not installed (Debian: faketime)"),
            Kind::MonotonicClock => (self.has_time_namespaces, "no time namespaces, or no `unshare` of util-linux"),
            Kind::DiskSlow => (self.has_slow_disks, "no loop devices, or no cgroup controller blkio of version 1"),
            Kind::DiskHung | Kind::DiskFull => (self.has_disks, "no loop devices, or no `mkfs.ext4`"),
            _ => (true, ""),
        };
        (!is_there).then_some(reason)
    }

    /// Returns true if each replay server gets a separate disk.
    pub(super) fn has_disks(&self) -> bool {
        self.has_disks
    }
}
