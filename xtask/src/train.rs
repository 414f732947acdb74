//! `cargo xtask train`: everything a newcomer needs, then `zerofleet train`.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::libtorch::{self, Place};
use crate::workspace;

/// The packages whose binaries make a fleet; `zerofleet` finds the others beside itself.
const FLEET: [&str; 6] = ["cli", "replay-server", "learner", "actor", "arena", "inference-server"];

/// Fetches libtorch, builds the fleet and becomes `zerofleet train`.
///
/// # Errors
/// If fetching, building or starting fails.
pub fn run(root: &Path, options: &[OsString]) -> Result<()> {
    let libtorch = libtorch::ensure(root, libtorch::Check::Stamp)?;
    let mut build = workspace::cargo(root);
    build.args(["build", "--release", "--bins"]);
    for package in FLEET {
        build.args(["--package", package]);
    }
    if has_accelerator() {
        build.args(["--features", "actor/torch,arena/torch,inference-server/torch"]);
    }
    workspace::run(&mut build)?;

    let program = workspace::metadata(root)?.target_directory.join("release").join("zerofleet");
    let mut train = Command::new(&program);
    train.arg("train").args(options);
    find_libraries(&mut train, &libtorch);
    replace_by(train).with_context(|| format!("start {program}"))
}

/// True if self-play may use libtorch on this machine: an Apple GPU, or the driver of an NVIDIA one. Everywhere else the CPU
/// kernel is the faster evaluator, and actors do without libtorch.
fn has_accelerator() -> bool {
    cfg!(target_os = "macos") || Path::new("/dev/nvidiactl").exists()
}

/// Binaries know the way to `.libtorch`; to any other place they must be shown it.
pub(crate) fn find_libraries(command: &mut Command, libtorch: &Place) {
    let Place::Elsewhere(folder) = libtorch else { return };
    let variable = if cfg!(target_os = "macos") { "DYLD_LIBRARY_PATH" } else { "LD_LIBRARY_PATH" };
    let mut path = folder.join("lib").into_os_string();
    if let Some(more) = std::env::var_os(variable).filter(|more| !more.is_empty()) {
        path.push(":");
        path.push(more);
    }
    command.env(variable, path);
}

/// Takes this process's place, so that a Ctrl-C goes straight to the one that drains.
#[cfg(unix)]
fn replace_by(mut command: Command) -> Result<()> {
    use std::os::unix::process::CommandExt;
    Err(command.exec().into())
}

#[cfg(not(unix))]
fn replace_by(mut command: Command) -> Result<()> {
    workspace::run(&mut command)
}
