//! A small disk for one replay server, which can be slow, hang or be full: an ext4 file system in a file.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};

use super::cgroup::Group;
use super::system;
use crate::process::run;

/// Reads and writes per second of a slow disk; a sync needs about two.
const SLOW_OPERATIONS: u32 = 4;
const FILLER: &str = "filler";
/// Freezes the file system until standard input closes. A killed test thus leaves nothing frozen, which would keep
/// processes from exiting.
const FREEZE: &str = r#"trap "" INT TERM; fsfreeze --freeze "$0" && echo frozen; read line; fsfreeze --unfreeze "$0""#;

/// A mounted disk; unmounted on drop.
#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
    /// Group of a process on a slow disk; `None` if there are no groups for block devices.
    group: Option<Group>,
    /// Process that keeps the disk frozen.
    freezer: Option<Child>,
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
        let name = folder.file_name().and_then(OsStr::to_str).context("a disk has a name")?.to_owned();
        let group = Group::new("blkio", &name).ok();
        Ok(Self { folder, group, freezer: None })
    }

    /// Gives the calling thread a private mount namespace, along with the threads and processes that it starts
    /// afterwards. The system unmounts the disks when the last of them has exited, even if the test is killed.
    ///
    /// # Errors
    /// This user may not mount.
    pub(super) fn keep_private() -> anyhow::Result<()> {
        system::unshare_mounts().context("make a mount namespace")?;
        run(Command::new("mount").args(["--make-rprivate", "/"]))?;
        Ok(())
    }

    /// Returns true if the disk can be slow.
    pub(super) fn may_be_slow(&self) -> bool {
        self.group.is_some()
    }

    /// Limits the operations of a process on this disk.
    pub(super) fn slow_down(&self, process: u32) -> anyhow::Result<()> {
        self.limit(SLOW_OPERATIONS)?;
        self.group.as_ref().context("slow disks need a group")?.take(process)
    }

    /// Lifts the limit.
    pub(super) fn speed_up(&self) -> anyhow::Result<()> {
        self.limit(0)
    }

    /// Limits the reads and the writes per second; zero is no limit.
    fn limit(&self, operations: u32) -> anyhow::Result<()> {
        let device = fs::metadata(&self.folder).context("look at a disk")?.dev();
        let (major, minor) = system::device_numbers(device);
        let (rule, group) = (format!("{major}:{minor} {operations}"), self.group.as_ref());
        let group = group.context("slow disks need a group")?;
        group.set("blkio.throttle.write_iops_device", &rule)?;
        group.set("blkio.throttle.read_iops_device", &rule)
    }

    /// Makes every write and sync wait until [`thaw`](Self::thaw). A waiting process cannot be killed.
    pub(super) fn freeze(&mut self) -> anyhow::Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", FREEZE]).arg(&self.folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut freezer = command.spawn().context("start to freeze a disk")?;
        let mut answer = String::new();
        let output = freezer.stdout.take().context("the output is a pipe")?;
        BufReader::new(output).read_line(&mut answer).context("freeze a disk")?;
        self.freezer = Some(freezer);
        ensure!(answer == "frozen\n", "the disk cannot be frozen");
        Ok(())
    }

    /// Lets waiting writes and syncs continue.
    pub(super) fn thaw(&mut self) -> anyhow::Result<()> {
        let Some(mut freezer) = self.freezer.take() else { return Ok(()) };
        // Waiting closes the standard input first.
        ensure!(freezer.wait().context("thaw a disk")?.success(), "the disk cannot be thawed");
        Ok(())
    }

    /// Fills the free space.
    pub(super) fn fill(&self) -> anyhow::Result<()> {
        let mut filler = File::create(self.folder.join(FILLER)).context("fill a disk")?;
        for size in [1 << 20, 1 << 12, 1] {
            while filler.write_all(&vec![0; size]).is_ok() {}
        }
        Ok(())
    }

    /// Frees the space that [`fill`](Self::fill) has taken.
    pub(super) fn make_room(&self) -> anyhow::Result<()> {
        fs::remove_file(self.folder.join(FILLER)).context("make room on a disk")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A frozen or slow disk would keep the process on it from exiting. The unmount is lazy, since a process may be
        // left.
        let _ = self.thaw();
        let _ = self.speed_up();
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).status();
    }
}
