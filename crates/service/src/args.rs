//! The part of the command line that every process shares.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::Probe;

/// The options of every process.
#[derive(Debug, Clone, PartialEq, Eq, clap::Parser)]
#[command(version)]
pub struct CommonArgs {
    /// The run file (TOML, one section per role).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Overrides one key of the run file: `--set section.key=value`; may be given many times.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub sets: Vec<String>,

    /// Prints the configuration as this process understands it, defaults included, and exits.
    #[arg(long)]
    pub print_config: bool,

    /// The address of the gRPC server, if the process has one; port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,

    /// The address of `/metrics`, `/healthz` and `/readyz`; port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub admin: SocketAddr,

    /// The format of log lines.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// The log level, or directives such as `info,learner=debug`.
    #[arg(long, default_value = "info")]
    pub log_level: String,

    /// Drains as soon as standard input closes, so that no process outlives the supervisor that holds its other end.
    #[arg(long)]
    pub exit_with_parent: bool,

    /// Probes the process that serves `--admin` instead of starting one: prints its response and exits with 0 if it is
    /// healthy, else with 1. For health checks of containers without a shell.
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
