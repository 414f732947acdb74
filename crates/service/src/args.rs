//! The part of the command line that every process shares.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::Probe;

/// Options that mean the same in every process; flatten them into a process's own `Args`.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
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

    /// Where this process serves gRPC, if it serves; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,

    /// Where this process serves `/metrics`, `/healthz` and `/readyz`; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub admin: SocketAddr,

    /// How log lines look.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// What is logged: a level, or directives such as `info,learner=debug`.
    #[arg(long, default_value = "info")]
    pub log_level: String,

    /// Drains as soon as standard input closes, so that no process outlives the supervisor that holds its other end.
    #[arg(long)]
    pub exit_with_parent: bool,

    /// Starts nothing: asks the process that serves `--admin` how it is, prints its answer, and exits with 0 if it is well,
    /// else with 1. For health checks of containers, where there is no shell and no other program.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub probe: Option<Probe>,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// One line of text for people.
    #[default]
    Text,
    /// One JSON object per line for machines.
    Json,
}
