//! Command line of the development tasks.

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
    /// Fetch libtorch into `.libtorch`, unless it is installed and intact.
    ///
    /// Fetches the CPU half, and the CUDA half if nvidia-smi lists a GPU that can run it.
    Libtorch {
        /// Fetch the CUDA half even without a GPU.
        ///
        /// A GPU or driver that is too old is an error.
        #[arg(long)]
        cuda: bool,
        /// Fetch only the CPU half; keep an installed CUDA half.
        #[arg(long, conflicts_with = "cuda")]
        cpu: bool,
        /// Check every byte of the installed libraries, not only sizes and dates.
        #[arg(long)]
        verify: bool,
        /// Check that all dependencies of the installed libraries are present.
        #[arg(long)]
        check: bool,
    },
    /// Build release binaries and run `zerofleet train` with the options.
    ///
    /// Fetches libtorch if nvidia-smi lists a GPU that can run it, on a Mac, and for runs that the CPU kernels do not
    /// train or train slower. `CUDA_VISIBLE_DEVICES=` hides the GPU, and `LIBTORCH` names a libtorch to use in any
    /// case.
    #[command(disable_help_flag = true)]
    Train {
        /// Options of `zerofleet train`; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Build container images, and the other files for `docker compose up`.
    ///
    /// The images contain binaries built on this machine; see docs/cluster.md.
    Image(image::Options),
    /// Check correctness and speed of zerofleet on a machine with a GPU.
    ///
    /// Packs the check on this machine, and runs it on the machine with the GPU; see docs/device-check.md.
    DeviceCheck(device_check::Options),
    /// Create a CA, certificates and tokens for all services of a cluster.
    Certs(certs::Options),
    /// Run all tests, or the tests with a text in the name.
    Test(suite::TestOptions),
    /// Run all CI checks.
    Ci,
    /// Check crate dependencies against the layers in ARCHITECTURE.md.
    Layers,
    /// Check the source tree against the rules in STYLE.md.
    ///
    /// Covers the machine-checkable rules.
    Tidy,
    /// Check licences, sources and advisories of third-party crates.
    ///
    /// The rules are in deny.toml.
    Deny,
    /// Render and validate the manifests in deploy/kubernetes.
    ///
    /// Validates against published schemas and the promises of this project.
    Kubernetes,
    /// Test the CPU kernels with the address sanitiser.
    Sanitise,
    /// Run the fuzz targets with libFuzzer (fuzz/README.md).
    Fuzz(fuzz::Options),
    /// Inject faults into a running fleet (Linux, as root).
    ///
    /// Kills, pauses, cuts off and slows down processes.
    Chaos(suite::ChaosOptions),
    /// Run a fleet under load for hours (Linux).
    ///
    /// Fails if a process grows in memory, descriptors, threads, disk or latency.
    Soak(suite::SoakOptions),
    /// Simulate the replay service with clients and disks, once per seed.
    ///
    /// A simulation runs on one thread in virtual time. A failing seed is shrunk, and the trace printed.
    Simulate(simulate::SimulateOptions),
}

fn main() -> ExitCode {
    match run(Arguments::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One human-readable sentence; a backtrace would hide it in the output of cargo.
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
