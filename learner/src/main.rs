//! The learner: parse, load, build, run, drain.

mod metrics;
mod pipeline;
mod priorities;
mod process;
mod targets;
mod training;

use clap::Parser;

/// Trains the network of a run and publishes its weights.
#[derive(Parser)]
#[command(name = "learner")]
struct Args {
    #[command(flatten)]
    common: service::CommonArgs,
}

fn main() -> std::process::ExitCode {
    network_torch::keep_memory();
    service::run("learner", Args::parse().common, games::preset, process::run)
}
