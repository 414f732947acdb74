//! A small disk for one replay server, which can be slow, hang or be full: an ext4 file system in a file.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::system;
use crate::process::run;

/// The version 1 hierarchy of the controller of block devices. Under version 2 there is no slow disk.
const CONTROLLER: &str = "/sys/fs/cgroup/blkio";
/// Reads and writes per second of a slow disk; a sync needs about two.
const SLOW_OPERATIONS: u32 = 4;
const FILLER: &str = "filler";

/// A mounted disk, until this is dropped.
#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
    /// The control group of a process on a slow disk.
    group: PathBuf,
}

impl Disk {
    /// Makes a disk of `mebibytes` in the file `folder.img` and mounts it.
    ///
    /// # Errors
    /// This user may not mount, or there is no loop device or no `mkfs.ext4`.
    pub(super) fn mount(folder: PathBuf, mebibytes: u64) -> anyhow::Result<Self> {
        let image = folder.with_extension("img");
        File::create(&image).and_then(|file| file.set_len(mebibytes << 20)).context("make the file of a disk")?;
        fs::create_dir(&folder).context("make the folder of a disk")?;
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&folder))?;
        let name = format!("zerofleet-chaos-{}-{}", std::process::id(), fs::metadata(&folder)?.dev());
        Ok(Self { folder, group: Path::new(CONTROLLER).join(name) })
    }

    /// Returns true if this user may limit the speed of disks.
    pub(super) fn may_be_slow() -> bool {
        let test = Path::new(CONTROLLER).join(format!("zerofleet-chaos-{}", std::process::id()));
        fs::create_dir(&test).and_then(|()| fs::remove_dir(&test)).is_ok()
    }

    /// Limits the operations of a process on this disk.
    pub(super) fn slow_down(&self, process: u32) -> anyhow::Result<()> {
        if !self.group.exists() {
            fs::create_dir(&self.group).context("make a control group")?;
        }
        self.limit(SLOW_OPERATIONS)?;
        fs::write(self.group.join("cgroup.procs"), process.to_string()).context("limit the process")
    }

    /// Ends the limit. Without one, the process may stay in its group.
    pub(super) fn speed_up(&self) -> anyhow::Result<()> {
        self.limit(0)
    }

    /// Limits the reads and the writes per second; zero is no limit.
    fn limit(&self, operations: u32) -> anyhow::Result<()> {
        let device = fs::metadata(&self.folder).context("look at a disk")?.dev();
        let (major, minor) = system::device_numbers(device);
        let rule = format!("{major}:{minor} {operations}");
        for file in ["blkio.throttle.write_iops_device", "blkio.throttle.read_iops_device"] {
            fs::write(self.group.join(file), &rule).context("limit a disk")?;
        }
        Ok(())
    }

    /// Makes every write and sync wait until [`thaw`](Self::thaw). A process that waits cannot be killed.
    pub(super) fn freeze(&self) -> anyhow::Result<()> {
        system::freeze(&File::open(&self.folder)?).context("freeze a disk")
    }

    /// Ends the wait.
    pub(super) fn thaw(&self) -> anyhow::Result<()> {
        system::thaw(&File::open(&self.folder)?).context("thaw a disk")
    }

    /// Fills the free space.
    pub(super) fn fill(&self) -> anyhow::Result<()> {
        let mut filler = File::create(self.folder.join(FILLER)).context("fill a disk")?;
        for size in [1 << 20, 1 << 12, 1] {
            while filler.write_all(&vec![0; size]).is_ok() {}
        }
        Ok(())
    }

    /// Frees what [`fill`](Self::fill) has filled.
    pub(super) fn make_room(&self) -> anyhow::Result<()> {
        fs::remove_file(self.folder.join(FILLER)).context("make room on a disk")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Each repair fails if there is nothing to repair. A frozen disk would keep its process from ending.
        let _ = self.thaw();
        if self.group.exists() {
            let _ = self.speed_up();
        }
        // Both fail while a process is left; then the group and the lazily unmounted disk go with the machine.
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).status();
        let _ = fs::remove_dir(&self.group);
    }
}
