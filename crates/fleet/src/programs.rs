//! Finds the programs of a run in the directory of this program.

use std::path::PathBuf;

use anyhow::{Context as _, bail};

/// Returns the path of the program `name` in the directory of this program. The cargo package `package` builds the
/// program.
///
/// # Errors
/// The file is missing; the error names the command to build it.
pub fn beside_this_binary(name: &str, package: &str) -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("find this program")?.with_file_name(name);
    if !program.is_file() {
        bail!("{} is missing; build it with cargo build --release --package {package}", program.display());
    }
    Ok(program)
}
