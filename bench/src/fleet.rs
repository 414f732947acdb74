//! `zerofleet bench fleet`: the load of an actor fleet on replay server and learner.
//!
//! It makes two measurements. `scaling` starts real fleets of 1, 2, 4, … actors with an evaluator that takes a fixed
//! time, so that neither cores nor an accelerator are the limit, and measures whether inserts scale with the actors.
//! `load` opens the connections of a thousand actors from this process: insert streams to a real replay server, and
//! subscriptions to a [`publisher`] of weights in a separate process. From the latter, `fan_out` computes the delivery
//! time of a version over slower links. Start with [`measure`].

mod fan_out;
mod load;
pub mod publisher;
mod scaling;

use anyhow::Context;

use crate::output::temporary_folder;
use crate::report::Report;

#[cfg(test)]
mod tests;

/// Options of `zerofleet bench fleet`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Options for measuring real fleets.
    #[command(flatten)]
    pub scaling: scaling::ScalingArgs,
    /// Options for the load of many simulated actors.
    #[command(flatten)]
    pub load: load::LoadArgs,
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Directory for runs and logs [default: the temporary directory].
    #[arg(long, value_name = "DIR")]
    pub folder: Option<std::path::PathBuf>,
}

/// Runs the measurements and returns the report.
///
/// # Errors
/// An option is invalid, or a process dies or is not built.
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    args.scaling.check()?;
    args.load.check()?;
    // Each actor has a connection to each server, and each connection takes a descriptor.
    let descriptors_max = service::descriptors::raise_limit();
    let mut report = Report::new("fleet", "A fleet of actors");
    let descriptors = descriptors_max.map_or("unknown".to_owned(), |limit| limit.to_string());
    report.note("all processes share the cores of this machine, over loopback");
    report.note(format!("seed {}; file descriptors that a process may have open: {descriptors}", args.seed));
    scaling::measure(&args.scaling, args.folder.as_deref(), args.seed, &mut report)?;
    if args.load.actors > 0 {
        let folder = temporary_folder(args.folder.as_deref())?;
        let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
        runtime.block_on(load::measure(&args.load, folder.path(), args.seed, &mut report))?;
        if !args.load.networks.is_empty() {
            runtime.block_on(fan_out::measure(&args.load, args.seed, &mut report))?;
        }
    }
    Ok(report)
}
