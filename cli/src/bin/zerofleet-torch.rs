//! The binary `zerofleet-torch`: `zerofleet` with libtorch.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    fleet::report(cli::Cli::parse().run())
}
