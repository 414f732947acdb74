//! The binary `zerofleet-bench`: parse, measure, report.

use std::process::ExitCode;

use clap::Parser;

/// The allocator of the replay server: clients of a server under load make as many small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    fleet::report(bench::Bench::parse().run(&mut std::io::stdout().lock()).map(|()| ExitCode::SUCCESS))
}
