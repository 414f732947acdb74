//! The binary `zerofleet-bench`: parse, measure, report.

use std::process::ExitCode;

use clap::Parser;

/// `bench replay` runs a replay server in this process; the binary of the server uses the same allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    fleet::report(bench::Bench::parse().run(&mut std::io::stdout().lock()).map(|()| ExitCode::SUCCESS))
}
