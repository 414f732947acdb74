//! Command line of the development tasks.

#![allow(clippy::print_stderr, reason = "a person called it")]

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::libtorch::{Check, Choice};
use xtask::{
    browser, certs, ci, deny, device_check, fuzz, image, kubernetes, layers, libtorch, stress, suite, tidy, train,
    wheel, workspace,
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
    /// Install libtorch in `.libtorch`, unless an intact copy is present.
    ///
    /// Fetches the CPU libraries, and the CUDA libraries if nvidia-smi lists a supported GPU.
    Libtorch {
        /// Also fetch the CUDA libraries, even if nvidia-smi lists no GPU.
        ///
        /// Fails if this machine has a GPU, but the GPU or the driver is too old.
        #[arg(long)]
        cuda: bool,
        /// Fetch only the CPU libraries, and keep installed CUDA libraries.
        #[arg(long, conflicts_with = "cuda")]
        cpu: bool,
        /// Check every byte of the installed libraries, not only sizes and dates.
        #[arg(long)]
        verify: bool,
        /// Check that all dependencies of the installed libraries are present.
        #[arg(long)]
        check: bool,
    },
    /// Build release binaries and run `zerofleet train` with these options.
    ///
    /// Fetches libtorch on a Mac, if nvidia-smi lists a supported GPU, and for runs that need libtorch or train faster
    /// with it. `CUDA_VISIBLE_DEVICES=` hides the GPU. If the variable `LIBTORCH` contains a directory, that libtorch
    /// is always used.
    #[command(disable_help_flag = true)]
    Train {
        /// Options of `zerofleet train`; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Build container images and other files for `docker compose up`.
    ///
    /// The images contain binaries built on this machine; see docs/cluster.md.
    Image(image::Options),
    /// Check correctness and speed of zerofleet on a machine with a GPU.
    ///
    /// Packs the check on this machine, and runs it on the machine with the GPU; see docs/device-check.md.
    DeviceCheck(device_check::Options),
    /// Build the Python package as a wheel, with the programs of a fleet and the models (Linux).
    ///
    /// Installs maturin and Zig from the package index. With `--torch`, also builds programs that use the libtorch of
    /// the Python package `torch`.
    Wheel(wheel::Options),
    /// Create a CA, certificates and tokens for all services of a cluster.
    Certs(certs::Options),
    /// Run all tests, or only tests with a given text in the name.
    Test(suite::TestOptions),
    /// Run all CI checks.
    Ci,
    /// Check crate dependencies against the layers in ARCHITECTURE.md.
    Layers,
    /// Check the source tree against the rules in STYLE.md.
    ///
    /// Checks only the rules that a program can check.
    Tidy,
    /// Check licences, sources and advisories of third-party crates.
    ///
    /// The rules are in deny.toml.
    Deny,
    /// Render and validate the manifests in deploy/kubernetes.
    ///
    /// Validates against published schemas and the guarantees of this project.
    Kubernetes,
    /// Install Chromium and ChromeDriver by apt (Debian, as root).
    ///
    /// Tests open the web console in Chromium. Installs nothing if both programs run.
    Browser,
    /// Test the CPU kernels with AddressSanitizer.
    Sanitise,
    /// Run the fuzz targets with libFuzzer (fuzz/README.md).
    Fuzz(fuzz::Options),
    /// Inject faults into a running fleet (Linux, as root).
    ///
    /// Kills, pauses, disconnects and slows down processes.
    Chaos(stress::ChaosOptions),
    /// Run a fleet under load for hours (Linux).
    ///
    /// Fails if memory, descriptors, threads, disk usage or latency of a process keep growing.
    Soak(stress::SoakOptions),
    /// Simulate the replay service with clients and disks, once per seed.
    ///
    /// A simulation runs on one thread in virtual time. A failing simulation is shrunk, and the trace is printed.
    #[command(disable_help_flag = true)]
    Simulate {
        /// Options of the simulator; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
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
        Chore::Wheel(options) => wheel::run(&root, &options),
        Chore::Certs(options) => certs::make(&certs::Options { out: root.join(&options.out), ..options }),
        Chore::Test(options) => suite::run(&root, &options, &[]).map(drop),
        Chore::Ci => ci::run(&root),
        Chore::Layers => layers::run(&root),
        Chore::Tidy => tidy::run(&root),
        Chore::Deny => deny::run(&root).map(drop),
        Chore::Kubernetes => kubernetes::run(&root),
        Chore::Browser => browser::run().map(drop),
        Chore::Sanitise => stress::sanitise(&root),
        Chore::Fuzz(options) => fuzz::run(&root, &options),
        Chore::Chaos(options) => stress::chaos(&root, &options),
        Chore::Soak(options) => stress::soak(&root, &options),
        Chore::Simulate { options } => stress::simulate(&root, &options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    mod documented {
        include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/src/documented_commands.rs"));
    }

    #[test]
    fn every_documented_task_parses() {
        let commands = documented::of("xtask");
        assert!(commands.len() > 30, "{} commands", commands.len());
        for (page, words) in commands {
            let line = ["cargo xtask"].into_iter().chain(words.iter().map(String::as_str));
            let error = Arguments::try_parse_from(line).err().map(|error| error.to_string());
            assert_eq!(error, None, "{page}: {}", words.join(" "));
        }
    }
}
