//! The self-play process.

use std::process::ExitCode;

use clap::Parser;

/// Plays games against itself with the newest weights and hands the trajectories to the replay server.
#[derive(Debug, Parser)]
#[command(name = "actor", version)]
struct Args {
    #[command(flatten)]
    common: service::CommonArgs,
}

fn main() -> ExitCode {
    let args = Args::parse();
    service::run("actor", args.common, games::preset, actor::run)
}
