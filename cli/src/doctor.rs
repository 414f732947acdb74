//! `zerofleet doctor`: checks whether a run would work on this machine.
//!
//! `machine` reads facts about the system, and tests the devices with the program `learner`. `findings` rates the
//! results: a fault would stop a run, a note would not. `page` formats the findings. The command starts no process of a
//! run and changes nothing.

mod findings;
mod machine;
mod page;

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

use fleet::plan::{self, Plan};
use serde_json::json;

use findings::{faults, findings};
use machine::Facts;

/// Checks whether a run with these options would work on this machine.
///
/// Reports on CPU, GPUs, libtorch, devices of each role, ports, disk and limits. Exits with 1 if something would stop
/// the run.
#[derive(Debug, Clone, clap::Args)]
// The argument group of the flattened run options has the same name.
#[group(skip)]
pub(crate) struct Args {
    /// Options of the run to check.
    #[command(flatten)]
    run: plan::Args,

    /// Also check this listen address; may be repeated.
    ///
    /// This is useful for processes and containers with fixed ports; `zerofleet train` picks free ports.
    #[arg(long = "port", value_name = "ADDRESS:PORT")]
    ports: Vec<SocketAddr>,

    /// Print one JSON object instead of a page.
    #[arg(long)]
    json: bool,

    /// Check only the settings for a new run, not this machine.
    ///
    /// Programs are not checked either. Exits with 2 if the run could never train.
    #[arg(long, conflicts_with_all = ["run", "ports", "json"])]
    settings_only: bool,
}

impl Args {
    /// Prints the findings. Returns exit status 1 if a finding would stop a run, otherwise 0.
    ///
    /// # Errors
    /// The settings are invalid (with `--settings-only`), or the output cannot be written.
    pub(crate) fn run(&self, out: &mut impl Write) -> anyhow::Result<ExitCode> {
        let env: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        if self.settings_only {
            plan::check_settings(&self.run, env.into_iter())?;
            writeln!(out, "all settings are valid for training")?;
            return Ok(ExitCode::SUCCESS);
        }
        let plan = Plan::new(&self.run, env.into_iter());
        let facts = Facts::read(&self.run, plan, &self.ports);
        let found = findings(&facts);
        if self.json {
            let gpus = facts.gpus.as_ref().ok();
            let devices = facts.trial.as_ref().ok();
            writeln!(
                out,
                "{}",
                json!({ "faults": faults(&found), "findings": found, "gpus": gpus, "devices": devices })
            )?;
        } else {
            write!(out, "{}", page::page(&found))?;
        }
        Ok(exit_code(&found))
    }
}

/// Returns the exit status: failure if a finding would stop a run, otherwise success.
fn exit_code(found: &[findings::Finding]) -> ExitCode {
    if faults(found) > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests;
