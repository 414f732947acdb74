//! The program that is linked with libtorch, for commands that ask a network.
//!
//! `zerofleet` itself is not (a release build leaves out what is never called): so it starts on a machine without libtorch,
//! where the loader would say nothing helpful, and says what is missing and what to do.

use std::env;
use std::io::{self, Write};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail};

use crate::child::{LIBTORCH_REMEDY, lacks_libtorch};
use crate::fleet;

/// The program's name; it lies beside this one.
const NAME: &str = "zerofleet-torch";

/// Runs the companion with this process's command line and terminal; returns its exit status.
pub fn run() -> anyhow::Result<ExitCode> {
    let program = fleet::beside_this_binary(NAME, "cli")?;
    // Prompts and results go to standard output. What it says of failure is held back, so that one error is one line.
    let companion = Command::new(&program).args(env::args_os().skip(1)).stderr(Stdio::piped()).spawn();
    let companion = companion.with_context(|| format!("start {}", program.display()))?;
    let output = companion.wait_with_output().with_context(|| format!("wait for {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && lacks_libtorch(&said) {
        bail!("{LIBTORCH_REMEDY}: {}", said.trim());
    }
    // A standard error that is gone must not turn a success into a failure.
    let _ = io::stderr().write_all(&output.stderr);
    let status = output.status.code().and_then(|code| u8::try_from(code).ok());
    Ok(status.map_or(ExitCode::FAILURE, ExitCode::from))
}
