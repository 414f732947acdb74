//! `cargo xtask sanitise`: the unsafe leaves of the CPU kernels under the address sanitiser.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace;

/// The targets for which the compiler has a sanitiser that we use.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs the tests of `crates/network-cpu` and `crates/gradients` so that a read or write outside what was allocated
/// ends them.
///
/// # Errors
/// If they fail.
pub fn run(root: &Path) -> Result<()> {
    if !has_runtime()? {
        println!("sanitiser: SKIPPED, this compiler brings none for {TARGET}");
        return Ok(());
    }
    let mut tests = workspace::cargo(root);
    tests.args(["test", "--package", "network-cpu", "--package", "gradients"]);
    tests.args(["--lib", "--test", "integers", "--test", "file"]);
    tests.args(["--target", TARGET, "--target-dir", "target/sanitiser"]);
    // The option is unstable though the compiler is not; nothing that is shipped is built so.
    tests.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    workspace::run(&mut tests)
}

fn has_runtime() -> Result<bool> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Ok(false);
    }
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]).output();
    let output = output.context("ask rustc for its libraries")?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(["stable", "nightly"]
        .iter()
        .any(|channel| Path::new(&folder).join(format!("librustc-{channel}_rt.asan.a")).exists()))
}
