//! `zerofleet bench fleet`: the load of a thousand actors on replay server and learner, without games.
//!
//! `load` opens the connections of all actors from this process: insert streams to a real replay server, and
//! subscriptions to a [`publisher`] of weights in a separate process. From the latter, `fan_out` computes the delivery
//! time of a version over slower links. `bench phases --actors 1,2,4,8` measures real fleets. Start with [`measure`].

mod fan_out;
mod load;
pub mod publisher;

use anyhow::Context;

use crate::output::temporary_folder;
use crate::report::Report;
pub use load::Args;

#[cfg(test)]
mod tests;

/// Runs the measurements and returns the report.
///
/// # Errors
/// An option is invalid, or a process dies or is not built.
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    args.check()?;
    // Each actor has a connection to each server, and each connection takes a descriptor.
    let descriptors_max = service::descriptors::raise_limit();
    let mut report = Report::new("fleet", "A fleet of actors");
    let descriptors = descriptors_max.map_or("unknown".to_owned(), |limit| limit.to_string());
    report.note("all processes share the cores of this machine, over loopback");
    report.note(format!("seed {}; file descriptors that a process may have open: {descriptors}", args.seed));
    let folder = temporary_folder(args.folder.as_deref())?;
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    runtime.block_on(load::measure(args, folder.path(), &mut report))?;
    runtime.block_on(fan_out::measure(args, &mut report))?;
    Ok(report)
}
