//! The command line of the chores.

#![allow(clippy::print_stderr, reason = "a person called it")]

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::{ci, deny, layers, libtorch, sanitise, suite, tidy, train, workspace};

/// Every chore of the repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Fetch libtorch into `.libtorch`, unless it is there and whole.
    Libtorch {
        /// Read every byte of what is there, not only sizes and dates.
        #[arg(long)]
        verify: bool,
    },
    /// Fetch libtorch, build release binaries and train: `zerofleet train`, with its options.
    #[command(disable_help_flag = true)]
    Train {
        /// Options of `zerofleet train`; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Run every test, or those whose name holds a text.
    Test {
        /// A part of the names of the tests to run.
        filter: Option<String>,
    },
    /// Run all that CI runs.
    Ci,
    /// Hold the layer table of ARCHITECTURE.md against the dependencies that are there.
    Layers,
    /// Hold the tree against the rules of STYLE.md that a machine can check.
    Tidy,
    /// Hold licences, sources and advisories of third-party crates against deny.toml.
    Deny,
    /// Run the tests of the CPU kernel under the address sanitiser.
    Sanitise,
}

fn main() -> ExitCode {
    match run(Arguments::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One sentence for a person; a backtrace through cargo would hide it.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> anyhow::Result<()> {
    let root = workspace::root();
    match chore {
        Chore::Libtorch { verify: false } => libtorch::ensure(&root, libtorch::Check::Stamp).map(drop),
        Chore::Libtorch { verify: true } => libtorch::ensure(&root, libtorch::Check::Bytes).map(drop),
        Chore::Train { options } => train::run(&root, &options),
        Chore::Test { filter } => suite::run(&root, filter.as_deref()).map(drop),
        Chore::Ci => ci::run(&root),
        Chore::Layers => layers::run(&root),
        Chore::Tidy => tidy::run(&root),
        Chore::Deny => deny::run(&root),
        Chore::Sanitise => sanitise::run(&root),
    }
}
