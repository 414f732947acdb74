//! The binary `zerofleet`: parse, dispatch, report.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    cli::report(cli::Cli::parse().run())
}
