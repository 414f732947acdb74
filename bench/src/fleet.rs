//! `zerofleet bench fleet`: the load that a fleet of actors puts on replay server and learner.
//!
//! Two measurements. `scaling` starts real fleets of 1, 2, 4, … actors whose evaluator takes a fixed time, so that
//! neither cores nor an accelerator are the limit, and measures whether inserts grow with the actors. `load` makes the
//! connections of a thousand actors in this process: insert streams to a real replay server, subscriptions to a
//! [`publisher`] of weights in a process of its own. `fan_out` computes from that how long a version takes over slower
//! links. Start with [`run`].

mod fan_out;
mod load;
pub mod publisher;
mod replay_server;
mod scaling;

use std::io::Write;

use anyhow::Context;

use crate::output::Destination;
use crate::report::Report;
use crate::training_run::TemporaryFolder;

#[cfg(test)]
mod tests;

/// Options of `zerofleet bench fleet`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The measurement of fleets of real actors.
    #[command(flatten)]
    pub scaling: scaling::ScalingArgs,
    /// The load of one process in the name of many actors.
    #[command(flatten)]
    pub load: load::LoadArgs,
    /// Everything random descends from it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The folder where runs and logs lie while they are measured [default: where the system keeps what is temporary].
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<std::path::PathBuf>,
    /// The destination of the report.
    #[command(flatten)]
    pub destination: Destination,
}

/// Measures, prints and writes.
///
/// # Errors
/// Options that make no sense, a process that dies or is not built, a file that is no earlier report, a folder that
/// cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    args.destination.run("fleet", out, |_| measure(args))
}

/// Measures.
///
/// # Errors
/// As [`run`].
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    args.scaling.check()?;
    args.load.check()?;
    // A connection of each actor to each server.
    let descriptors_max = service::descriptors::raise_limit();
    let mut report = Report::new("fleet", "A fleet of actors");
    let descriptors = descriptors_max.map_or("unknown".to_owned(), |limit| limit.to_string());
    report.note("all processes share the cores of this machine, over loopback");
    report.note(format!("seed {}; file descriptors that a process may have open: {descriptors}", args.seed));
    scaling::measure(&args.scaling, args.folder.as_deref(), args.seed, &mut report)?;
    if args.load.actors > 0 {
        let folder = TemporaryFolder::new(args.folder.as_deref())?;
        let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
        runtime.block_on(load::measure(&args.load, folder.path(), args.seed, &mut report))?;
        if !args.load.networks.is_empty() {
            runtime.block_on(fan_out::measure(&args.load, args.seed, &mut report))?;
        }
    }
    Ok(report)
}
