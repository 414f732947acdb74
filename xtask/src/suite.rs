//! `cargo xtask test`: runs every test of the workspace and prints a summary line. `cargo xtask chaos`, `soak` and
//! `sanitise` run tests under injected faults, for hours, and under the address sanitiser.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Message;

use crate::jobs::{self, Ended, Job};
use crate::simulate::{self, SimulateOptions};
use crate::{libtorch, train, workspace};

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

/// Jobs that take minutes. They start first, so that a short job finishes last.
const LONGEST: [&str; 7] = [
    "crates/network-torch network_torch",
    "learner learner",
    "tests system compose",
    "tests system environments",
    "tests system first_step",
    "tests system learning_catch",
    "xtask xtask",
];

/// Number of slow jobs with durations printed at the end.
const SLOWEST: usize = 15;

/// Number of lines of a failed job that are repeated at the end.
const LINES_AGAIN: usize = 60;

/// Counts of tests by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that this machine cannot run. They also count as passed, since the test harness does not know about
    /// skipping.
    pub skipped: u64,
    /// Tests that are marked as ignored.
    pub ignored: u64,
}

/// Start of the line that a test prints if the machine cannot run it (`tests::skip`).
const SKIPPED: &str = "SKIPPED for want of ";

/// Options that select the tests to run.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub struct TestOptions {
    /// Run only tests with this text in the name.
    pub filter: Option<String>,
    /// Run only tests marked as ignored.
    ///
    /// CONTRIBUTING.md lists what these tests need and write.
    #[arg(long)]
    pub ignored: bool,
}

impl TestOptions {
    /// Returns the arguments of a test binary.
    fn arguments(&self) -> impl Iterator<Item = &str> {
        self.filter.as_deref().into_iter().chain(self.ignored.then_some("--ignored"))
    }
}

/// Runs every test, or the selected tests. Binaries that system tests start are built first.
///
/// # Errors
/// A build or a test fails.
pub fn run(root: &Path, options: &TestOptions) -> Result<Summary> {
    build(root)?;
    run_with(root, options, Vec::new())
}

/// Runs every test and, in parallel, the simulator for some seeds.
///
/// # Errors
/// A build or a test fails, or a seed breaks a promise.
pub fn run_and_simulate(root: &Path, runs: &[SimulateOptions]) -> Result<Summary> {
    build(root)?;
    let simulate = |options: &SimulateOptions| -> Result<Job> {
        // Runs the program of the workspace build: built alone it would have other features and be compiled again.
        let mut command = Command::new(programs(root)?.join("simulate"));
        command.args(options.arguments(simulate::revision(root).as_deref())?).current_dir(root);
        Ok(Job { name: format!("simulate from {}", options.first), command })
    };
    run_with(root, &TestOptions::default(), runs.iter().map(simulate).collect::<Result<_>>()?)
}

/// Builds all programs and tests together: programs built alone would have other features and be compiled twice.
/// Examples are compiled by no test; clippy checks them.
///
/// # Errors
/// A build fails.
pub fn build(root: &Path) -> Result<()> {
    libtorch::ensure(root, libtorch::Check::Stamp, libtorch::Choice::Cpu)?;
    workspace::run(workspace::cargo(root).args(["build", "--workspace", "--lib", "--bins", "--tests"]))
}

/// Runs the given jobs and every test, or the selected tests.
fn run_with(root: &Path, options: &TestOptions, mut jobs: Vec<Job>) -> Result<Summary> {
    let (system, mut others): (Vec<TestBinary>, Vec<_>) =
        test_binaries(root, &["--workspace", "--tests"])?.into_iter().partition(TestBinary::is_system);
    // The other packages keep the default features, so that only the learner is compiled once more.
    let without_libtorch = ["--workspace", "--bin", "learner", "--no-default-features", "--features", "cli/parquet"];
    let without_libtorch = test_binaries(root, &without_libtorch)?.into_iter();
    others.extend(
        without_libtorch.map(|binary| TestBinary { name: format!("{} without libtorch", binary.name), ..binary }),
    );
    for binary in &system {
        jobs.extend(binary.modules(root, options)?);
    }
    let mut background = Vec::new();
    for binary in &others {
        let mut command = binary.command(root, Some("nice"))?;
        command.args(options.arguments());
        background.push(Job { name: binary.name.clone(), command });
    }
    let mut examples = workspace::cargo(root);
    examples.args(["test", "--doc"]);
    for package in packages_with_examples(root)? {
        examples.args(["--package", &package]);
    }
    examples.arg("--").args(options.arguments());
    // An example marked as ignored is not meant to run.
    if !options.ignored {
        background.push(Job { name: "examples".to_owned(), command: examples });
    }

    for jobs in [&mut jobs, &mut background] {
        jobs.sort_by_key(|job| !LONGEST.contains(&job.name.as_str()));
    }
    // A failing binary must not hide the results of the other binaries.
    let mut ended = jobs::run(jobs, background, together());
    let mut summary = Summary::default();
    ended.iter().flat_map(|one| one.output.lines()).for_each(|line| summary.add(line));
    ended.sort_by_key(|one| std::cmp::Reverse(one.took));
    println!("\n{:<40} {:>9}", "slowest", "seconds");
    for one in ended.iter().take(SLOWEST) {
        println!("{:<40} {:>9.1}", one.name, one.took.as_secs_f64());
    }
    let failed = failed(&ended);
    println!("\n{summary}");
    failed.map(|()| summary)
}

/// Repeats the last lines of failed jobs below all other output.
///
/// # Errors
/// At least one job failed.
fn failed(ended: &[Ended]) -> Result<()> {
    let failed: Vec<&Ended> = ended.iter().filter(|one| !one.is_success).collect();
    for Ended { name, output, .. } in &failed {
        let lines: Vec<&str> = output.lines().filter(|line| !line.ends_with(" ... ok")).collect();
        let last = lines.len().saturating_sub(LINES_AGAIN);
        println!("\n── {name} FAILED, last lines\n{}", lines[last..].join("\n"));
    }
    let names: Vec<&str> = failed.iter().map(|one| one.name.as_str()).collect();
    ensure!(names.is_empty(), "tests failed: {}", names.join(", "));
    Ok(())
}

/// Returns the number of parallel jobs.
fn together() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2))
}

/// A compiled test binary.
#[derive(Debug)]
struct TestBinary {
    /// Directory of the package, and target: `crates/search search`.
    name: String,
    /// Directory of the package, the working directory of the tests as under `cargo test`.
    folder: PathBuf,
    executable: PathBuf,
}

impl TestBinary {
    /// Returns true for the tests of whole processes, which take longest. All other binaries have short tests in one
    /// process.
    fn is_system(&self) -> bool {
        self.name == "tests system"
    }

    /// Returns the command that runs the tests, through the program `through` if there is one.
    fn command(&self, root: &Path, through: Option<&str>) -> Result<Command> {
        let mut command = match through {
            Some(program) => {
                let mut command = Command::new(program);
                command.arg(&self.executable);
                command
            }
            None => Command::new(&self.executable),
        };
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.env("ZEROFLEET_BIN_DIR", programs(root)?);
        // Tests run in parallel: several threads of libtorch would wait for each other on busy cores.
        command.env("OMP_NUM_THREADS", "1");
        train::find_libraries(&mut command, root);
        Ok(command)
    }

    /// Returns a job per module, with the tests that the options select. Each module has a separate process, so that
    /// modules run in parallel and a crash affects only one.
    ///
    /// # Errors
    /// The binary does not list the tests in it.
    fn modules(&self, root: &Path, options: &TestOptions) -> Result<Vec<Job>> {
        let list = ["--list", "--format", "terse"].into_iter().chain(options.arguments());
        let list = workspace::output(self.command(root, None)?.args(list))?;
        let mut modules: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for test in list.lines().filter_map(|line| line.strip_suffix(": test")) {
            modules.entry(test.split("::").next().unwrap_or(test)).or_default().push(test);
        }
        let job = |(module, tests)| {
            let mut command = self.command(root, None)?;
            command.arg("--exact").args(options.ignored.then_some("--ignored")).args::<Vec<&str>, _>(tests);
            Ok(Job { name: format!("{} {module}", self.name), command })
        };
        modules.into_iter().map(job).collect()
    }
}

/// Builds the test binaries that `cargo test` with these arguments runs, and returns them.
fn test_binaries(root: &Path, arguments: &[&str]) -> Result<Vec<TestBinary>> {
    test_binaries_of(root, workspace::cargo(root).arg("test").args(arguments))
}

/// Builds the test binaries that the `cargo test` in `command` runs, and returns them.
fn test_binaries_of(root: &Path, command: &mut Command) -> Result<Vec<TestBinary>> {
    command.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("start cargo test")?;
    let messages = child.stdout.take().context("read the messages of cargo")?;
    let mut binaries = Vec::new();
    for message in Message::parse_stream(BufReader::new(messages)) {
        let Message::CompilerArtifact(artifact) = message.context("read a message of cargo")? else { continue };
        let (Some(executable), true) = (artifact.executable, artifact.profile.test) else { continue };
        let folder = artifact.manifest_path.parent().context("a manifest lies in a folder")?;
        let package = folder.strip_prefix(root).unwrap_or(folder);
        let name = format!("{package} {}", artifact.target.name);
        binaries.push(TestBinary { name, folder: folder.into(), executable: executable.into() });
    }
    ensure!(child.wait().context("wait for cargo test")?.success(), "{} failed", workspace::line(command));
    Ok(binaries)
}

/// Returns the directory of the programs that tests start.
fn programs(root: &Path) -> Result<PathBuf> {
    Ok(workspace::metadata(root)?.target_directory.join("debug").into())
}

/// Returns the packages with examples in the documentation. Doc tests of any other package would compile it once more
/// for nothing.
fn packages_with_examples(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for package in workspace::metadata(root)?.workspace_packages() {
        let folder = package.manifest_path.with_file_name("src");
        for file in walkdir::WalkDir::new(folder) {
            let file = file.context("list the sources of a package")?;
            let is_rust = file.path().extension().is_some_and(|extension| extension == "rs");
            if is_rust && has_example(&fs::read_to_string(file.path()).context("read a source file")?) {
                found.push(package.name.to_string());
                break;
            }
        }
    }
    Ok(found)
}

fn has_example(source: &str) -> bool {
    source.lines().map(str::trim_start).any(|line| line.starts_with("/// ```") || line.starts_with("//! ```"))
}

/// Builds these targets and returns the command that tests them. The environment of the command locates libtorch and
/// the programs that tests start.
fn prepared(root: &Path, targets: &[&str]) -> Result<Command> {
    libtorch::ensure(root, libtorch::Check::Stamp, libtorch::Choice::Cpu)?;
    workspace::run(workspace::cargo(root).args(["build", "--workspace"]).args(targets))?;
    let mut command = workspace::cargo(root);
    command.arg("test").env("ZEROFLEET_BIN_DIR", programs(root)?);
    train::find_libraries(&mut command, root);
    Ok(command)
}

/// Options of a chaos test: duration, seed and limits.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct ChaosOptions {
    /// Duration of fault injection in minutes.
    #[arg(long, default_value_t = 20)]
    pub minutes: u64,
    /// Seed for the choice and timing of faults, which is printed.
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
    /// Markdown file for the table of recovery times, which is also printed.
    ///
    /// The recorded histories are written to the same directory.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Runs the chaos test for a given time, with strict limits.
///
/// # Errors
/// The build fails, a promise is violated, or the test does not run on Linux with root privileges.
pub fn chaos(root: &Path, options: &ChaosOptions) -> Result<()> {
    // Builds the whole workspace, as for the other tests, and together with a test; otherwise dependencies are built
    // once more.
    let mut test = prepared(root, &["--bins", "--test", "system"])?;
    test.args(["--workspace", "--test", "system", "--", "chaos::", "--nocapture"]);
    test.env("ZEROFLEET_CHAOS_SECONDS", (options.minutes * 60).to_string());
    test.env("ZEROFLEET_CHAOS_SEED", options.seed.to_string());
    test.env("ZEROFLEET_CHAOS_REJOIN_SECONDS", options.rejoin_seconds.to_string());
    test.env("ZEROFLEET_CHAOS_FAULTS", &options.faults);
    if let Some(report) = &options.report {
        // The test runs in another directory than the caller.
        test.env("ZEROFLEET_CHAOS_REPORT", std::path::absolute(report)?);
    }
    workspace::run(&mut test)
}

/// Options of a soak test: duration and output directory.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct SoakOptions {
    /// Duration of the load in hours.
    ///
    /// Growth is checked only in runs of at least 20 minutes.
    #[arg(long, default_value_t = 2.0)]
    pub hours: f64,
    /// Output directory for samples (`soak.csv`) and trends (`soak.md`).
    ///
    /// The table of trends is also printed.
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

/// Runs a fleet under load for hours; fails if a process grows in memory, descriptors, threads, disk or latency.
///
/// # Errors
/// The build fails, a quantity grows by more than the limit, or a process fails.
pub fn soak(root: &Path, options: &SoakOptions) -> Result<()> {
    let mut test = prepared(root, &["--bins", "--test", "system"])?;
    test.args(["--workspace", "--test", "system", "--", "soak::", "--nocapture"]);
    test.env("ZEROFLEET_SOAK_SECONDS", ((options.hours * 3600.0).ceil() as u64).to_string());
    if let Some(report) = &options.report {
        test.env("ZEROFLEET_SOAK_REPORT", std::path::absolute(report)?);
    }
    workspace::run(&mut test)
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
    let mut jobs = Vec::new();
    for binary in test_binaries_of(root, &mut tests)? {
        let mut command = binary.command(root, None)?;
        command.args(NOT_SANITISED.iter().flat_map(|name| ["--skip", name]));
        jobs.push(Job { name: binary.name, command });
    }
    failed(&jobs::run(jobs, Vec::new(), together()))
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

impl Summary {
    /// Counts a skipped test, or the closing line of a test binary; ignores any other line.
    fn add(&mut self, line: &str) {
        if line.starts_with(SKIPPED) {
            self.skipped += 1;
            return;
        }
        let Some((_, counts)) = line.split_once("test result: ") else { return };
        let mut words = counts.split([' ', ';', '.']).filter(|word| !word.is_empty()).skip(1);
        while let (Some(count), Some(what)) = (words.next(), words.next()) {
            let Ok(count) = count.parse::<u64>() else { return };
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => return,
            }
        }
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { passed, failed, skipped, ignored } = self;
        // To the test harness, a test that returns early has passed.
        let ran = passed.saturating_sub(*skipped);
        write!(f, "{ran} passed, {failed} failed, {} skipped", skipped + ignored)?;
        if *skipped > 0 {
            write!(f, " ({skipped} with missing requirements, {ignored} marked as ignored)")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    //! Tests of the summary.

    use super::Summary;

    #[test]
    fn an_example_is_code_in_documentation() {
        assert!(super::has_example("    /// ```\n    /// run();\n    /// ```") && super::has_example("//! ```\n"));
        assert!(!super::has_example("// ```\nlet text = \"/// ```\";"));
    }

    #[test]
    fn closing_lines_of_all_test_binaries_are_summed() {
        let mut summary = Summary::default();
        for line in [
            "running 3 tests",
            "test tests::a ... ok",
            "SKIPPED for want of docker: there is no Docker engine on this machine",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 4 filtered out; finished in 1.50s",
        ] {
            summary.add(line);
        }
        assert_eq!(summary, Summary { passed: 4, failed: 2, skipped: 1, ignored: 1 });
        assert_eq!(
            summary.to_string(),
            "3 passed, 2 failed, 2 skipped (1 with missing requirements, 1 marked as ignored)"
        );
    }
}
