//! The command line of the chores.

#![allow(clippy::print_stderr, reason = "a person called it")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::{certs, chaos, ci, deny, image, kubernetes, layers, libtorch, sanitise, suite, tidy, train, workspace};

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
    /// Make container images of binaries built here, and what `docker compose up` needs beside them; see
    /// docs/cluster.md.
    Image {
        /// The image below: any Debian as new as this machine's, or `scratch`, which takes libraries from this machine.
        #[arg(long, default_value = "scratch")]
        base: String,
        /// The tag of the images.
        #[arg(long, default_value = "dev")]
        tag: String,
        /// Debug builds instead of release builds.
        #[arg(long)]
        debug: bool,
        /// Build nothing: pack the binaries in this folder, and make no certificates.
        #[arg(long, value_name = "FOLDER", conflicts_with_all = ["debug", "torch"])]
        from: Option<PathBuf>,
        /// Link the inference server with libtorch, for accelerators.
        #[arg(long)]
        torch: bool,
        /// Only the image of this binary; may be given many times.
        #[arg(long, value_name = "BINARY")]
        only: Vec<String>,
    },
    /// Make an authority, certificates and tokens for every service of a cluster.
    Certs {
        /// The folder they are put into.
        #[arg(long, default_value = certs::FOLDER)]
        out: PathBuf,
        /// More names or addresses by which servers are reached, separated by commas.
        #[arg(long, value_delimiter = ',')]
        names: Vec<String>,
        /// Days for which certificates are valid.
        #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
        days: u32,
        /// Make new certificates and tokens where there are some, under the same authority.
        #[arg(long)]
        renew: bool,
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
    /// Render deploy/kubernetes and hold it against the published schemas and what it promises.
    Kubernetes,
    /// Run the tests of the CPU kernels under the address sanitiser.
    Sanitise,
    /// Kill, pause, cut off and slow down the processes of a fleet for some minutes (Linux, as root).
    Chaos(chaos::Options),
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
        Chore::Image { base, tag, debug, from, torch, only } => {
            let binaries = match (from, debug) {
                (Some(folder), _) => image::Binaries::From(folder),
                (None, true) => image::Binaries::Debug,
                (None, false) => image::Binaries::Release,
            };
            image::run(&root, &image::Options { base, tag, binaries, torch, only })
        }
        Chore::Certs { out, names, days, renew } => {
            let existing = if renew { certs::Existing::Renew } else { certs::Existing::Refuse };
            certs::make(&root.join(out), &names, days, existing)
        }
        Chore::Test { filter } => suite::run(&root, filter.as_deref()).map(drop),
        Chore::Ci => ci::run(&root),
        Chore::Layers => layers::run(&root),
        Chore::Tidy => tidy::run(&root),
        Chore::Deny => deny::run(&root),
        Chore::Kubernetes => kubernetes::run(&root),
        Chore::Sanitise => sanitise::run(&root),
        Chore::Chaos(options) => chaos::run(&root, &options),
    }
}
