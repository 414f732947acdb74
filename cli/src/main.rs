//! The binary `zerofleet`: parses the command line, runs the command and reports its error.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    fleet::report(cli::Cli::parse().run())
}
