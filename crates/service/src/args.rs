//! The part of the command line that every process shares.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::Probe;

/// Options of every process.
#[derive(Debug, Clone, PartialEq, Eq, clap::Parser)]
#[command(version)]
pub struct CommonArgs {
    /// Run file (TOML, one section per role).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Override one key of the run file: `--set section.key=value`.
    ///
    /// Repeatable.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub sets: Vec<String>,

    /// Print the effective configuration, including defaults, and exit.
    #[arg(long)]
    pub print_config: bool,

    /// Address of the gRPC server, if any; port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,

    /// Address of the admin port; port 0 picks a free port.
    ///
    /// Serves `/metrics`, `/healthz` and `/readyz`.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub admin: SocketAddr,

    /// Format of log lines.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Log level, or directives such as `info,learner=debug`.
    #[arg(long, default_value = "info")]
    pub log_level: String,

    /// Drain as soon as standard input closes.
    ///
    /// The supervisor holds the other end of the pipe, so that no process outlives the supervisor.
    #[arg(long)]
    pub exit_with_parent: bool,

    /// Probe the process at `--admin` instead of starting a process.
    ///
    /// Prints the response and exits with 0 if the process is healthy, else with 1. For health checks of containers
    /// without a shell.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub probe: Option<Probe>,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// One line of text per event.
    #[default]
    Text,
    /// One JSON object per event.
    Json,
}
