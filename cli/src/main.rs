//! The binary `zerofleet`: parse, dispatch, report.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    fleet::report(cli::Cli::parse().run())
}
