//! The binary `zerofleet`: parses the command line, runs the command and reports an error.

use std::process::ExitCode;

fn main() -> ExitCode {
    fleet::report(cli::Cli::of_arguments().run())
}
