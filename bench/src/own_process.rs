//! Runs this program in a separate process, so that peak memory and threads belong to one measurement alone.

use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::Serialize;

use crate::report::Report;

/// Runs this program with `arguments` that make it print a report in JSON, and returns that report.
///
/// # Errors
/// The process cannot be started, fails, or prints something else.
pub(crate) fn report(arguments: &[String]) -> anyhow::Result<Report> {
    let output = command(arguments)?.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.context("start a process")?;
    ensure!(output.status.success(), "the process ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("read the results of the process")
}

/// Returns the command that runs this program with `arguments`.
///
/// # Errors
/// The system does not name this program.
pub(crate) fn command(arguments: &[String]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("find this program")?);
    command.args(arguments);
    Ok(command)
}

/// Returns options as words of a command line: `--name value` for each field with a value, and for each element of a
/// list.
pub(crate) fn words(options: &impl Serialize) -> Vec<String> {
    let fields = serde_json::to_value(options).expect("options have text or numbers as values");
    let fields = fields.as_object().expect("options have names").iter().filter(|(_, value)| !value.is_null());
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let values = |value: &'_ serde_json::Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    let words = |name: &str, value| [format!("--{}", name.replace('_', "-")), text(&value)];
    fields.flat_map(|(name, value)| values(value).into_iter().flat_map(|value| words(name, value))).collect()
}
