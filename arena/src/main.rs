//! The program `arena`: `arena --config runs/NAME/config.toml`.

use std::process::ExitCode;

use clap::Parser;

/// Measures the strength of a run's weights: solved positions, rated games, Elo.
#[derive(Parser)]
#[command(name = "arena", version)]
struct Args {
    #[command(flatten)]
    common: service::CommonArgs,
}

fn main() -> ExitCode {
    service::run("arena", Args::parse().common, games::preset, arena::run)
}
