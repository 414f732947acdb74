//! The binary `zerofleet-torch`: what `zerofleet` starts for the commands that ask a network.

use std::process::ExitCode;

use clap::Parser;

/// `bench replay` has a replay server in this process, which has the same in its own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::report(cli::Cli::parse().run_with_libtorch())
}
