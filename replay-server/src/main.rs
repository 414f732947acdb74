//! The replay process: parse, load, run, drain.

use clap::Parser as _;

/// A trajectory or sample is dozens of small allocations, which one thread makes and another gives back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Stores trajectories and serves samples of them.
#[derive(Debug, clap::Parser)]
#[command(name = "replay-server")]
struct Args {
    #[command(flatten)]
    common: service::CommonArgs,
}

fn main() -> std::process::ExitCode {
    service::run("replay-server", Args::parse().common, games::preset, replay_server::run)
}
