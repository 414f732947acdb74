//! `cargo xtask chaos`, `soak`, `simulate` and `sanitise`: run tests under injected faults, for hours, in virtual time,
//! and under the address sanitiser.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::{suite, train, workspace};

/// The only target for which this project uses the compiler's address sanitiser.
pub(crate) const SANITISED: &str = "x86_64-unknown-linux-gnu";

/// Substrings of test names that the sanitiser skips. These tests take half of the sanitiser time for training, but
/// only call functions that other tests call as well, for more steps or from other threads.
const NOT_SANITISED: [&str; 7] = [
    "contribution::",
    "gradients_of_bfloat16",
    "growth::",
    "number_of_threads",
    "tests::boards::",
    "trainer::tests::",
    "training_reduces_the_losses",
];

/// Options for a chaos test: duration, seed and limits.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct ChaosOptions {
    /// Duration of fault injection in minutes.
    #[arg(long, default_value_t = 20)]
    pub minutes: u64,
    /// Seed for the choice and timing of faults; the test prints it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Maximum time from the repair of a fault to recovery, in seconds.
    ///
    /// Within this time, the replay server must acknowledge another trajectory from every actor.
    #[arg(long, default_value_t = 5.0)]
    pub rejoin_seconds: f64,
    /// Inject only faults with this text in the name.
    ///
    /// Examples are `disk` and `killed`; docs/recovery.md lists the names.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub faults: String,
    /// Write the table of recovery times to this Markdown file.
    ///
    /// The table is printed in any case. The recorded histories are written next to the file, as `.jsonl`.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Runs the chaos test for a given time, with strict limits.
///
/// # Errors
/// The build fails, a promise is violated, or the test does not run on Linux with root privileges.
pub fn chaos(root: &Path, options: &ChaosOptions) -> Result<()> {
    let ChaosOptions { minutes, seed, rejoin_seconds, faults, report } = options;
    let variables = [
        ("ZEROFLEET_CHAOS_SECONDS", (minutes * 60).to_string()),
        ("ZEROFLEET_CHAOS_SEED", seed.to_string()),
        ("ZEROFLEET_CHAOS_REJOIN_SECONDS", rejoin_seconds.to_string()),
        ("ZEROFLEET_CHAOS_FAULTS", faults.clone()),
    ];
    system_test(root, "chaos::", &variables, ("ZEROFLEET_CHAOS_REPORT", report.as_deref()))
}

/// Options for a soak test: duration and output directory.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct SoakOptions {
    /// Duration of the load in hours.
    ///
    /// Growth is checked only in runs of at least 20 minutes.
    #[arg(long, default_value_t = 2.0)]
    pub hours: f64,
    /// Write samples (`soak.csv`) and trends (`soak.md`) to this directory.
    ///
    /// The trends are printed in any case.
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

/// Runs a fleet under load for hours; fails if a process grows in memory, descriptors, threads, disk or latency.
///
/// # Errors
/// The build fails, a quantity grows by more than the limit, or a process fails.
pub fn soak(root: &Path, options: &SoakOptions) -> Result<()> {
    let seconds = ((options.hours * 3600.0).ceil() as u64).to_string();
    let report = ("ZEROFLEET_SOAK_REPORT", options.report.as_deref());
    system_test(root, "soak::", &[("ZEROFLEET_SOAK_SECONDS", seconds)], report)
}

/// Runs the system tests of a module with these environment variables; `report` is the variable and the path for the
/// results.
fn system_test(root: &Path, module: &str, variables: &[(&str, String)], report: (&str, Option<&Path>)) -> Result<()> {
    // Builds the whole workspace, as for the other tests, and together with a test; otherwise dependencies are built
    // once more.
    suite::build(root, &["--bins", "--test", "system"])?;
    let mut test = workspace::cargo(root);
    test.args(["test", "--workspace", "--test", "system", "--", module, "--nocapture"]);
    test.env("ZEROFLEET_BIN_DIR", workspace::target(root)?.join("debug"))
        .envs(variables.iter().map(|(name, value)| (name, value)));
    if let (name, Some(path)) = report {
        // The test runs in another directory than the caller.
        test.env(name, std::path::absolute(path)?);
    }
    train::find_libraries(&mut test, root);
    workspace::run(&mut test)
}

/// Runs the simulator of the replay service with these options.
///
/// # Errors
/// The build fails, or a seed breaks a promise.
pub fn simulate(root: &Path, options: &[OsString]) -> Result<()> {
    let mut simulate = workspace::cargo(root);
    // The test profile, which is optimised.
    simulate.args(["run", "--package", "simulator", "--bin", "simulate", "--"]).args(options);
    workspace::run(&mut simulate)
}

/// Runs the tests of `crates/network-cpu` and `crates/training-cpu` that call each unsafe function, under the address
/// sanitiser, so that an out-of-bounds read or write aborts the tests.
///
/// # Errors
/// The build or a test fails.
pub fn sanitise(root: &Path) -> Result<()> {
    if !has_runtime()? {
        println!("sanitiser: SKIPPED, the compiler has none for {SANITISED}");
        return Ok(());
    }
    let mut tests = workspace::cargo(root);
    // The unit tests alone call every unsafe leaf function; other test targets would compile each crate once more.
    tests.args(["test", "--package", "network-cpu", "--package", "training-cpu", "--lib"]);
    tests.args(["--target", SANITISED, "--target-dir", "target/sanitiser"]);
    // All other tests are compiled without these checks, which take most of the time.
    for package in ["network-cpu", "training-cpu"] {
        tests.args(["--config", &format!("profile.dev.package.{package}.debug-assertions=true")]);
    }
    // The option is unstable, and the compiler may be stable; no released binary is built this way.
    tests.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    workspace::run(tests.arg("--").args(NOT_SANITISED.iter().flat_map(|name| ["--skip", name])))
}

/// Returns true if this compiler has the run-time library of the address sanitiser.
pub(crate) fn has_runtime() -> Result<bool> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Ok(false);
    }
    let folder = workspace::output(Command::new("rustc").args(["--print", "target-libdir", "--target", SANITISED]))?;
    let runtime = |channel: &str| Path::new(folder.trim()).join(format!("librustc-{channel}_rt.asan.a"));
    Ok(runtime("stable").exists() || runtime("nightly").exists())
}
