//! Runs commands for `tests/src/python.rs`, which finds and installs Python for all tests.

use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// Runs a command to completion; returns the standard output.
///
/// # Errors
/// The command cannot be started or fails; the error contains the output.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("start {command:?}"))?;
    let [text, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    ensure!(output.status.success(), "{command:?} ended with {}:\n{text}{errors}", output.status);
    Ok(text)
}
