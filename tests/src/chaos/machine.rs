//! The faults that this machine can inject.

use std::path::PathBuf;

use super::clock;
use super::disk::Disk;
use super::fault::Kind;

/// What is available on this machine.
#[derive(Debug)]
pub struct Machine {
    /// The path of libfaketime.
    pub(super) faketime: Option<PathBuf>,
    has_time_namespaces: bool,
    has_disks: bool,
    has_slow_disks: bool,
}

impl Machine {
    /// Looks at the machine.
    #[must_use]
    pub fn inspect() -> Self {
        let has_disks = tempfile::tempdir().is_ok_and(|folder| Disk::mount(folder.path().join("disk"), 8).is_ok());
        Self {
            faketime: clock::library(),
            has_time_namespaces: clock::has_namespaces(),
            has_disks,
            has_slow_disks: has_disks && Disk::may_be_slow(),
        }
    }

    /// Returns the reason for which a fault cannot be injected here; `None` if it can.
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

    /// Returns true if replay servers get disks of their own.
    pub(super) fn has_disks(&self) -> bool {
        self.has_disks
    }
}
