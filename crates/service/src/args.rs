//! Command-line options that all processes share.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::Probe;

/// Command-line options that every process accepts.
#[derive(Debug, Clone, PartialEq, Eq, clap::Parser)]
#[command(version)]
pub struct CommonArgs {
    /// Run file (TOML, one section per role).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Override one key of the run file; may be repeated.
    ///
    /// For example `--set learner.device=cpu`.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub sets: Vec<String>,

    /// Print the effective configuration, including defaults, and exit.
    #[arg(long)]
    pub print_config: bool,

    /// Listen address of the gRPC server, if any; port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,

    /// Listen address of the admin server; port 0 picks a free port.
    ///
    /// The admin server responds to `/metrics`, `/healthz` and `/readyz` over HTTP.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub admin: SocketAddr,

    /// Format of log lines.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Log level, or directives such as `info,learner=debug`.
    #[arg(long, default_value = "info")]
    pub log_level: String,

    /// Drain and exit as soon as standard input closes.
    ///
    /// A supervisor keeps the other end of the pipe open, so that no process outlives the supervisor.
    #[arg(long)]
    pub exit_with_parent: bool,

    /// Probe the running process at `--admin`, and exit.
    ///
    /// Prints the response, and exits with 0 if the probe succeeds, else with 1. Intended for health checks of
    /// containers without a shell.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub probe: Option<Probe>,
}

/// The format in which a process writes log events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// One line of text per log event.
    #[default]
    Text,
    /// One JSON object per log event.
    Json,
}
