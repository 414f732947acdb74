//! The programs of a run, which are in the directory of this program.

use std::path::PathBuf;

use anyhow::{Context as _, bail};

/// Returns the path of the program `name` from `package`, in the directory of this program.
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
