//! Starts, watches, scrapes and drains the processes of a run.
//!
//! [`Fleet`] holds the processes of one run on this machine. A [`Member`] is one process with a [`Role`] and a
//! [`Child`](child::Child), which restarts the process after an exit. [`Plan`](plan::Plan) resolves the settings of a
//! session from the command line (including [`Algorithm`]), the run file and the preset. [`placement`] assigns a device
//! to each process after a [`trial`] of the devices, and [`feasibility`] lists the reasons why a run could never train.
//! [`RunDirectory`] is the directory of a run and [`Progress`](run_directory::Progress) holds the elapsed time; a
//! refused [`SessionStart`] leaves both unchanged. [`JsonLines`] reads a growing file of a run.
//! [`Wiring`](wiring::Wiring) holds the endpoints that connect the processes. A [`PlannedBoard`] has separate replay
//! servers and actors. [`Exposition`](exposition::Exposition) parses the metrics of an admin port, and [`admin_hosts`]
//! finds the admin ports of a cluster. Commands, benchmarks and system tests share this crate; `run-metrics` computes
//! sums and rates, and screen and summary are in `cli`.

pub mod admin_hosts;
mod algorithm;
mod boards;
pub mod child;
pub mod environment;
pub mod exposition;
pub mod feasibility;
mod json_lines;
pub mod placement;
pub mod plan;
mod processes;
mod programs;
pub mod run_directory;
mod session_start;
pub mod trial;
pub mod wiring;

use std::io::{self, Write as _};
use std::process::ExitCode;

pub use algorithm::Algorithm;
pub use boards::{ACTORS_MAX, PlannedBoard};
pub use json_lines::JsonLines;
pub use processes::{Fleet, Listed, Member, Rating, binaries, read_list};
pub use programs::beside_this_binary;
pub use run_directory::RunDirectory;
pub use session_start::SessionStart;
pub use wiring::Role;

/// Returns the exit status of a program. Prints an error to standard error: one line, followed by the code in the
/// error, if any.
pub fn report(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            // The terminal may be gone.
            drop(writeln!(io::stderr(), "error: {}", service::chain_with_code(&error)));
            exit_code(&error)
        }
    }
}

/// Returns 2 for an invalid command line or configuration, 1 otherwise.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    let invalid =
        error.chain().any(|cause| cause.is::<service::ConfigError>() || cause.is::<feasibility::Infeasible>());
    ExitCode::from(if invalid { 2 } else { 1 })
}
