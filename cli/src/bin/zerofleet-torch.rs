//! The binary `zerofleet-torch`: `zerofleet` starts it for commands that evaluate a network.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    fleet::report(cli::Cli::parse().run_with_libtorch())
}
