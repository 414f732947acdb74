//! The program `zerofleet-torch`: the command `zerofleet` with libtorch.

use std::process::ExitCode;

fn main() -> ExitCode {
    fleet::report(cli::Cli::of_arguments().run())
}
