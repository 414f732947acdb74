//! The arena: `arena --config runs/NAME/config.toml`.

use std::process::ExitCode;

use clap::Parser;

/// Measures how strong the weights of a run are: solved positions, rated games, Elo.
#[derive(Parser)]
#[command(name = "arena", version)]
struct Args {
    #[command(flatten)]
    common: service::CommonArgs,
}

fn main() -> ExitCode {
    service::run("arena", Args::parse().common, games::preset, arena::run)
}
