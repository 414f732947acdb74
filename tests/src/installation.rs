//! Installs programs in a temporary directory, where a test may remove dependencies.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use tempfile::TempDir;

use crate::process::{Output, program, wait_until};

/// Library required by a program that links libtorch.
const LIBTORCH: &[u8] = b"libtorch_cpu.so\0";
/// Path that a loader searches first.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// Programs in a directory that is deleted at the end.
#[derive(Debug)]
pub struct Installation {
    directory: TempDir,
}

impl Installation {
    /// Library that a program requires instead of libtorch after [`lose_libtorch`](Self::lose_libtorch).
    pub const LOST: &'static str = "libtorch_xyz.so";

    /// Installs these programs; they find libtorch by the same relative paths as in the build directory.
    ///
    /// # Errors
    /// A binary is missing or cannot be copied.
    pub fn new(programs: &[&str]) -> anyhow::Result<Self> {
        let binaries = programs.iter().map(|name| program(name)).collect::<anyhow::Result<Vec<PathBuf>>>()?;
        let here = binaries.first().and_then(|binary| binary.parent()?.parent()).context("no program to install")?;
        // The paths to libtorch are relative to the directory of a program, so this directory is created next to the
        // build directory of the programs.
        let directory = TempDir::with_prefix_in("installation-", here).context("make the folder of the programs")?;
        for (program, binary) in programs.iter().zip(&binaries) {
            let copy = directory.path().join(program);
            // A hard link serves as well as a copy and takes no space.
            if fs::hard_link(binary, &copy).is_err() {
                fs::copy(binary, &copy).with_context(|| format!("copy {program}"))?;
            }
        }
        Ok(Self { directory })
    }

    /// Makes a program require a library that does not exist, as if libtorch were missing for this program alone.
    /// Without link-time optimisation, programs that never call libtorch also link it, and could not start without it.
    ///
    /// # Errors
    /// The program does not require libtorch, or cannot be replaced.
    pub fn lose_libtorch(&self, program: &str) -> anyhow::Result<()> {
        let path = self.directory.path().join(program);
        let mut bytes = fs::read(&path).with_context(|| format!("read {program}"))?;
        let places: Vec<usize> =
            bytes.windows(LIBTORCH.len()).enumerate().filter(|(_, name)| *name == LIBTORCH).map(|(at, _)| at).collect();
        ensure!(!places.is_empty(), "{program} does not require libtorch");
        for at in places {
            bytes[at..][..Self::LOST.len()].copy_from_slice(Self::LOST.as_bytes());
        }
        let permissions = fs::metadata(&path).context("read its permissions")?.permissions();
        // The file is replaced, not modified: it may be a hard link to the original.
        fs::remove_file(&path).with_context(|| format!("remove {program}"))?;
        fs::write(&path, bytes).with_context(|| format!("write {program}"))?;
        fs::set_permissions(&path, permissions).context("restore its permissions")
    }

    /// Replaces a program by a script that starts it with additional arguments at the end.
    ///
    /// # Errors
    /// The program is missing, or the script cannot be written.
    pub fn add_arguments(&self, program: &str, arguments: &str) -> anyhow::Result<()> {
        let (path, original) = (self.directory.path().join(program), format!("original-{program}"));
        let script = format!("#!/bin/sh\nexec \"$(dirname \"$0\")/{original}\" \"$@\" {arguments}\n");
        fs::rename(&path, self.directory.path().join(&original)).with_context(|| format!("rename {program}"))?;
        fs::write(&path, script).with_context(|| format!("write {program}"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).context("make the script a program")
    }

    /// Returns the directory of the programs, in which they may write.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Runs a program until it exits; the loader also searches the directory for libraries.
    ///
    /// # Errors
    /// The program cannot be started, or still runs at the deadline.
    pub fn run(&self, program: &str, arguments: &[&str], deadline: Duration) -> anyhow::Result<Output> {
        let directory = self.directory.path();
        let log = directory.join("output");
        let output = File::create(&log).context("make a file for the output")?;
        let child = Command::new(directory.join(program))
            .args(arguments)
            .env(LIBRARY_PATH, self.library_path()?)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("share the output")?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {program}"))?;
        let mut child = KilledOnDrop(child);
        let mut status = None;
        wait_until(&format!("{program} has ended"), deadline, || {
            status = child.0.try_wait()?;
            Ok(status.is_some())
        })?;
        let text = fs::read_to_string(&log).context("read the output")?;
        Ok(Output { status: status.context("it has ended")?, text })
    }

    fn library_path(&self) -> anyhow::Result<OsString> {
        let before = std::env::var_os(LIBRARY_PATH).unwrap_or_default();
        let folders = [self.directory.path().to_owned()].into_iter().chain(std::env::split_paths(&before));
        std::env::join_paths(folders).context("join the folders of libraries")
    }
}

/// A process that is killed when the test fails.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // A process that has exited by itself cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
