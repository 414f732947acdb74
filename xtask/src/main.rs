//! The command line of the development tasks.

#![allow(clippy::print_stderr, reason = "a person called it")]

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::libtorch::{Check, Choice};
use xtask::{
    certs, ci, deny, device_check, fuzz, image, kubernetes, layers, libtorch, simulate, suite, tidy, train, workspace,
};

/// Runs the development tasks of the repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Fetch libtorch into `.libtorch`, unless it is installed and intact: the CPU half, and the CUDA half where
    /// nvidia-smi lists a GPU that it runs on.
    Libtorch {
        /// Fetch the CUDA half also where there is no GPU; a GPU or driver that is too old is an error.
        #[arg(long)]
        cuda: bool,
        /// Fetch only the CPU half; a CUDA half that is there stays.
        #[arg(long, conflicts_with = "cuda")]
        cpu: bool,
        /// Check every byte of the installed libraries, not only sizes and dates.
        #[arg(long)]
        verify: bool,
        /// Check that every library which the installed ones load is there.
        #[arg(long)]
        check: bool,
    },
    /// Build release binaries and train: `zerofleet train`, with its options. Fetch libtorch where nvidia-smi lists a
    /// GPU that it runs on, on a Mac, and for runs that the kernels of the CPU do not train or train slower.
    /// `CUDA_VISIBLE_DEVICES=` leaves the GPU out, and `LIBTORCH` names a libtorch that is always used.
    #[command(disable_help_flag = true)]
    Train {
        /// Options of `zerofleet train`; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Build container images of binaries built here, and the other files that `docker compose up` needs; see
    /// docs/cluster.md.
    Image(image::Options),
    /// Check on a machine with a GPU that zerofleet computes correctly and fast: pack the check here, run it there; see
    /// docs/device-check.md.
    DeviceCheck(device_check::Options),
    /// Make an authority, certificates and tokens for every service of a cluster.
    Certs(certs::Options),
    /// Run every test, or those whose name contains a text.
    Test(suite::TestOptions),
    /// Run every check of CI.
    Ci,
    /// Check the dependencies of the workspace against the layer table of ARCHITECTURE.md.
    Layers,
    /// Check the tree against the machine-checkable rules of STYLE.md.
    Tidy,
    /// Check licences, sources and advisories of third-party crates against deny.toml.
    Deny,
    /// Render deploy/kubernetes and validate it against the published schemas and its promises.
    Kubernetes,
    /// Run the tests of the CPU kernels under the address sanitiser.
    Sanitise,
    /// Run the fuzz targets with libFuzzer, each for some minutes; see fuzz/README.md.
    Fuzz(fuzz::Options),
    /// Kill, pause, cut off and slow down the processes of a fleet for some minutes (Linux, as root).
    Chaos(suite::ChaosOptions),
    /// Run a fleet under load for some hours, and fail if a process grows in memory, descriptors, threads, disk or
    /// latency (Linux).
    Soak(suite::SoakOptions),
    /// Simulate the replay service with its clients and disks, on one thread and in virtual time, once for each seed;
    /// a failing seed is shrunk and its story printed.
    Simulate(simulate::SimulateOptions),
}

fn main() -> ExitCode {
    match run(Arguments::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One human-readable sentence; a backtrace through cargo would hide it.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> anyhow::Result<()> {
    let root = workspace::root();
    match chore {
        Chore::Libtorch { cuda, cpu, verify, check } => {
            let choice = match (cuda, cpu) {
                (true, _) => Choice::Cuda,
                (false, true) => Choice::Cpu,
                (false, false) => Choice::Auto,
            };
            libtorch::ensure(&root, if verify { Check::Bytes } else { Check::Stamp }, choice)?;
            if check { libtorch::check_needed(&root) } else { Ok(()) }
        }
        Chore::Train { options } => train::run(&root, &options),
        Chore::Image(options) => image::run(&root, &options),
        Chore::DeviceCheck(options) => device_check::run(&root, &options),
        Chore::Certs(options) => certs::make(&certs::Options { out: root.join(&options.out), ..options }),
        Chore::Test(options) => suite::run(&root, &options).map(drop),
        Chore::Ci => ci::run(&root),
        Chore::Layers => layers::run(&root),
        Chore::Tidy => tidy::run(&root),
        Chore::Deny => deny::run(&root).map(drop),
        Chore::Kubernetes => kubernetes::run(&root),
        Chore::Sanitise => suite::sanitise(&root),
        Chore::Fuzz(options) => fuzz::run(&root, &options),
        Chore::Chaos(options) => suite::chaos(&root, &options),
        Chore::Soak(options) => suite::soak(&root, &options),
        Chore::Simulate(options) => simulate::run(&root, &options),
    }
}
