//! The programs of a run, which lie in the folder of this one.

use std::path::PathBuf;

use anyhow::{Context as _, bail};

/// Returns the path of the program `name` of `package` in the folder of this program.
///
/// # Errors
/// The file is missing; the error names the command that builds it.
pub fn beside_this_binary(name: &str, package: &str) -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("find this program")?.with_file_name(name);
    if !program.is_file() {
        bail!("{} is missing; build it with cargo build --release --package {package}", program.display());
    }
    Ok(program)
}
