//! The binary `zerofleet-torch`: what `zerofleet` starts for the commands that ask a network.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    cli::report(cli::Cli::parse().run_with_libtorch())
}
