//! The inference server: parse, load, build, run, drain.

use std::process::ExitCode;

use clap::Parser;

/// Evaluates positions with the newest weights for its clients.
#[derive(Debug, Parser)]
#[command(name = "inference-server", version)]
struct Args {
    #[command(flatten)]
    common: service::CommonArgs,
}

fn main() -> ExitCode {
    #[cfg(feature = "torch")]
    network_torch::keep_memory();
    service::run("inference-server", Args::parse().common, games::preset, inference_server::run)
}
