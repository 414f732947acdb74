//! The processes of a run: starts, watches, scrapes and drains them.
//!
//! [`Fleet`] is the processes of one run on this machine; [`Child`](child::Child) is one of them, restarted when it dies.
//! [`Plan`](plan::Plan) decides what a session does from command line, run file and preset; [`RunDirectory`] is where a run
//! lives. [`Exposition`](exposition::Exposition) is what an admin port returns, and [`bottleneck`](bottleneck::bottleneck)
//! names what limits a run. Commands, benchmarks and system tests share it; the screen and the files of a run are not here.

pub mod bottleneck;
pub mod child;
pub mod config;
pub mod exposition;
pub mod plan;
mod processes;
pub mod run_directory;

use std::process::ExitCode;

pub use processes::{
    Fleet, Listed, Member, Rating, Role, Settings, Undrained, beside_this_binary, free_ports, read_list,
};
pub use run_directory::RunDirectory;

/// The exit status of a program; an error is printed as one line on standard error.
#[expect(clippy::print_stderr, reason = "the one place where a program reports its own failure")]
pub fn report(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", service::chain(&error));
            exit_code(&error)
        }
    }
}

/// 2 for a command line or configuration that is refused, 1 otherwise.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    let refused = error.chain().any(|cause| cause.is::<service::ConfigError>());
    ExitCode::from(if refused { 2 } else { 1 })
}
