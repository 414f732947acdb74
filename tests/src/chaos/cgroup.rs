//! Control groups of version 1, below the groups of the test itself.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

/// The group of one process; removed on drop.
#[derive(Debug)]
pub(super) struct Group(PathBuf);

impl Group {
    /// Creates a group in the hierarchy of a controller.
    ///
    /// # Errors
    /// The machine has no such controller of version 1, or this user may not make groups.
    pub(super) fn new(controller: &str, name: &str) -> anyhow::Result<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").context("read the own control groups")?;
        // A line is a number, the controllers separated by commas, and the path.
        let path = own.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        let mut path = path.filter(|(controllers, _)| controllers.split(',').any(|one| one == controller));
        let (_, path) = path.next().ok_or_else(|| anyhow!("there is no controller {controller} of version 1"))?;
        let parent = Path::new("/sys/fs/cgroup").join(controller).join(path.trim_start_matches('/'));
        let folder = parent.join(format!("zerofleet-chaos-{}-{name}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("make {}", folder.display()))?;
        Ok(Self(folder))
    }

    /// Moves a process into the group, where it may stay: a group without limits has no effect.
    pub(super) fn take(&self, process: u32) -> anyhow::Result<()> {
        self.set("cgroup.procs", &process.to_string())
    }

    /// Returns the number in a file of the group.
    pub(super) fn get(&self, file: &str) -> anyhow::Result<u64> {
        let path = self.0.join(file);
        let number = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
        number.with_context(|| format!("read a number from {}", path.display()))
    }

    /// Writes a file of the group.
    pub(super) fn set(&self, file: &str, value: &str) -> anyhow::Result<()> {
        let path = self.0.join(file);
        fs::write(&path, value).with_context(|| format!("write {value} to {}", path.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Fails while a process is left in the group, which then stays.
        let _ = fs::remove_dir(&self.0);
    }
}
