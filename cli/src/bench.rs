//! `zerofleet bench`: runs the program `zerofleet-bench` from the directory of this program.
//!
//! Only `zerofleet-bench` links libtorch. `zerofleet` therefore starts on a machine without libtorch, and reports the
//! missing library with a remedy instead of the dynamic loader's message.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail};
use fleet::child::lacks_libtorch;

/// Runs a benchmark (with the program zerofleet-bench).
#[derive(Debug, Clone, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Name and options of a benchmark; `zerofleet bench --help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

impl Args {
    /// Returns the command-line arguments that run `benchmark` with `options`.
    pub(crate) fn of(benchmark: &str, options: Vec<OsString>) -> Self {
        Self { arguments: std::iter::once(benchmark.into()).chain(options).collect() }
    }

    /// Runs `zerofleet-bench` on this terminal, and returns the exit status.
    ///
    /// # Errors
    /// `zerofleet-bench` was not built, or the dynamic loader finds no libtorch. The error names the command that fixes
    /// this.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let program = fleet::beside_this_binary("zerofleet-bench", "bench")?;
        // Prompts and results go to standard output. Standard error is captured, so that a missing libtorch is reported
        // in one line.
        let child = Command::new(&program).args(self.arguments).stderr(Stdio::piped()).spawn();
        let child = child.with_context(|| format!("start {}", program.display()))?;
        let output = child.wait_with_output().with_context(|| format!("wait for {}", program.display()))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        if let Some(error) = lacks_libtorch(&errors).filter(|_| !output.status.success()) {
            bail!(error);
        }
        // A closed standard error must not turn a success into a failure.
        let _ = io::stderr().write_all(&output.stderr);
        let status = output.status.code().and_then(|code| u8::try_from(code).ok());
        Ok(status.map_or(ExitCode::FAILURE, ExitCode::from))
    }
}
