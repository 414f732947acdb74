//! `cargo xtask test`: runs every test of the workspace as one queue of jobs, and prints a summary line.
//!
//! Tests of processes mostly wait for clocks and for each other, so that a single test command leaves a core idle.
//! Start with [`run`].

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufReader, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::Message;

use crate::{libtorch, train, workspace};

/// The last words in the names of jobs that take minutes. These jobs start first, so that a short job finishes last.
const LONGEST: &str = "browser compose environments first_step learner learning_catch network_torch xtask";

/// The feature with which CI builds, checks and tests the learner: the backend on libtorch.
pub(crate) const LEARNER_TORCH: &str = "learner/torch";

/// Targets to build for all tests. No test compiles examples, which clippy checks.
pub const ALL_TARGETS: [&str; 3] = ["--lib", "--bins", "--tests"];

/// The package with examples in the documentation. Doc tests of any other package would compile it once more for
/// nothing.
const WITH_EXAMPLES: &str = "games";

/// The tests of whole processes, which take longest. All other binaries have short tests in one process.
const SYSTEM: &str = "tests system";

/// Start of the line that a test prints if the machine cannot run it (`tests::skip`).
const SKIPPED: &str = "SKIPPED for want of ";

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
    /// Returns the arguments to pass to a test binary.
    fn arguments(&self) -> impl Iterator<Item = &str> {
        self.filter.as_deref().into_iter().chain(self.ignored.then_some("--ignored"))
    }
}

/// Runs every test, or the selected tests, and in parallel runs of the simulator from these first seeds. Programs that
/// system tests start are built first.
///
/// # Errors
/// A build or a test fails, or a seed breaks a promise.
pub fn run(root: &Path, options: &TestOptions, first_seeds: &[&str]) -> Result<Summary> {
    build(root, &ALL_TARGETS)?;
    let mut jobs = Vec::new();
    for first in first_seeds {
        // Runs the program of the workspace build: built alone it would have other features and be compiled again.
        let mut command = Command::new(workspace::target(root)?.join("debug/simulate"));
        command.args(["--first", first, "--minutes", "0.75", "--twice", "--seeds", &u64::MAX.to_string()]);
        command.current_dir(root);
        jobs.push(Job { name: format!("simulate from {first}"), command, is_background: false });
    }
    let mut binaries = test_binaries(root, &["--workspace", "--tests", "--features", LEARNER_TORCH], "")?;
    binaries.extend(test_binaries(root, &["--workspace", "--bin", "learner"], " without libtorch")?);
    for binary in binaries {
        jobs.extend(binary.jobs(root, options)?);
    }
    // An example marked as ignored is not meant to run.
    if !options.ignored {
        let mut command = workspace::cargo(root);
        command.args(["test", "--doc", "--package", WITH_EXAMPLES, "--"]).args(options.arguments());
        jobs.push(Job { name: "examples".to_owned(), command, is_background: true });
    }
    run_all(jobs)
}

/// Builds these targets of the workspace together: programs built alone would have other features and be compiled
/// twice.
///
/// # Errors
/// A build fails.
pub fn build(root: &Path, targets: &[&str]) -> Result<()> {
    libtorch::ensure(root, libtorch::Check::Stamp, libtorch::Choice::Cpu)?;
    workspace::run(workspace::cargo(root).args(["build", "--workspace", "--features", LEARNER_TORCH]).args(targets))
}

/// Runs jobs with tests, and prints the output of each. Repeats the output of failed jobs, without the passed tests,
/// and the counts of all tests below all other output.
///
/// # Errors
/// At least one job failed.
fn run_all(mut jobs: Vec<Job>) -> Result<Summary> {
    let is_long = |job: &Job| LONGEST.split(' ').any(|word| job.name.rsplit(' ').next() == Some(word));
    // Background jobs start from the end, so that the longest of them are last.
    jobs.sort_by_key(|job| (job.is_background, is_long(job) == job.is_background));
    let print = |Ended { name, took, output, .. }: &Ended| {
        // A closed standard output fails no job.
        drop(writeln!(std::io::stdout().lock(), "\n── {name}: {:.1} s\n{output}", took.as_secs_f64()));
    };
    let ended = run_jobs(jobs, workspace::cores().max(2), print);
    let mut summary = Summary::default();
    ended.iter().flat_map(|one| one.output.lines()).for_each(|line| summary.add(line));
    let failed: Vec<&Ended> = ended.iter().filter(|one| !one.is_success).collect();
    for Ended { name, output, .. } in &failed {
        let lines: Vec<&str> = output.lines().filter(|line| !line.ends_with(" ... ok")).collect();
        println!("\n── {name} FAILED\n{}", lines.join("\n"));
    }
    println!("\n{summary}");
    let names: Vec<&str> = failed.iter().map(|one| one.name.as_str()).collect();
    ensure!(names.is_empty(), "tests failed: {}", names.join(", "));
    Ok(summary)
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
    /// Returns the command that runs the tests; a higher niceness is a lower priority.
    fn command(&self, root: &Path, niceness: &str) -> Command {
        let mut command = Command::new("nice");
        command.args(["-n", niceness]).arg(&self.executable).current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        // Test binaries lie in the directory `deps`, next to the programs that they start.
        command.env("ZEROFLEET_BIN_DIR", self.executable.ancestors().nth(2).unwrap_or(root));
        // Tests run in parallel: several threads of libtorch would wait for each other on busy cores.
        command.env("OMP_NUM_THREADS", "1");
        train::find_libraries(&mut command, root);
        command
    }

    /// Returns one background job with the selected tests, or for tests of whole processes one job per module. Each
    /// module has a separate process, so that modules run in parallel and a crash affects only one.
    ///
    /// # Errors
    /// The binary does not list the tests in it.
    fn jobs(&self, root: &Path, options: &TestOptions) -> Result<Vec<Job>> {
        if self.name != SYSTEM {
            let mut command = self.command(root, "10");
            command.args(options.arguments());
            return Ok(vec![Job { name: self.name.clone(), command, is_background: true }]);
        }
        let list = ["--list", "--format", "terse"].into_iter().chain(options.arguments());
        let list = workspace::output(self.command(root, "0").args(list))?;
        let mut modules: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for test in list.lines().filter_map(|line| line.strip_suffix(": test")) {
            modules.entry(test.split("::").next().unwrap_or(test)).or_default().push(test);
        }
        let job = |(module, tests): (&str, Vec<&str>)| {
            let mut command = self.command(root, "0");
            command.arg("--exact").args(options.ignored.then_some("--ignored")).args(tests);
            Job { name: format!("{} {module}", self.name), command, is_background: false }
        };
        Ok(modules.into_iter().map(job).collect())
    }
}

/// Builds the test binaries that `cargo test` runs with these arguments; each name gets the suffix.
fn test_binaries(root: &Path, arguments: &[&str], suffix: &str) -> Result<Vec<TestBinary>> {
    let mut cargo = workspace::cargo(root);
    cargo.arg("test").args(arguments).args(["--no-run", "--message-format=json-render-diagnostics"]);
    let mut child = cargo.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("start cargo test")?;
    let messages = child.stdout.take().context("read the messages of cargo")?;
    let mut binaries = Vec::new();
    for message in Message::parse_stream(BufReader::new(messages)) {
        let Message::CompilerArtifact(artifact) = message.context("read a message of cargo")? else { continue };
        let (Some(executable), true) = (artifact.executable, artifact.profile.test) else { continue };
        let folder = artifact.manifest_path.parent().context("a manifest lies in a folder")?;
        let name = format!("{} {}{suffix}", folder.strip_prefix(root).unwrap_or(folder), artifact.target.name);
        binaries.push(TestBinary { name, folder: folder.into(), executable: executable.into() });
    }
    ensure!(child.wait().context("wait for cargo test")?.success(), "{} failed", workspace::line(&cargo));
    Ok(binaries)
}

/// A command with a human-readable name.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) command: Command,
    /// True for a job that runs next to the other jobs on busy cores.
    pub(crate) is_background: bool,
}

/// Outcome of a finished job.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) name: String,
    pub(crate) took: Duration,
    /// Standard output and standard error, interleaved as written.
    pub(crate) output: String,
    pub(crate) is_success: bool,
}

/// Runs all jobs, and returns them in the order in which they finish. Takes jobs from the front, `together` at a time,
/// and next to them one background job from the back. A command that cannot start has failed, with the reason as
/// output. `report` gets each job that has finished.
pub(crate) fn run_jobs(jobs: Vec<Job>, together: usize, report: impl Fn(&Ended) + Sync) -> Vec<Ended> {
    const LOCK: &str = "no holder of the lock panics";
    let (waiting, ended) = (Mutex::new(VecDeque::from(jobs)), Mutex::new(Vec::new()));
    let work = |take: fn(&mut VecDeque<Job>) -> Option<Job>| {
        // The queue is not locked while a job runs.
        let next = || take(&mut waiting.lock().expect(LOCK));
        while let Some(Job { name, mut command, .. }) = next() {
            let start = Instant::now();
            let (output, is_success) = output(&mut command).unwrap_or_else(|error| (format!("{error:#}\n"), false));
            let one = Ended { name, took: start.elapsed(), output, is_success };
            let mut ended = ended.lock().expect(LOCK);
            report(&one);
            ended.push(one);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..together.max(1) {
            scope.spawn(|| work(VecDeque::pop_front));
        }
        scope.spawn(|| work(|jobs| if jobs.back()?.is_background { jobs.pop_back() } else { None }));
    });
    ended.into_inner().expect(LOCK)
}

/// Runs a command until it exits; returns the output, and whether the command succeeded.
fn output(command: &mut Command) -> Result<(String, bool)> {
    let mut file = tempfile::tempfile().context("create a file for the output")?;
    let share = || file.try_clone().context("share the file for the output");
    let status =
        command.stdin(Stdio::null()).stdout(share()?).stderr(share()?).status().context("start the process")?;
    let mut output = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut output)).context("read the output")?;
    let failure = if status.success() { String::new() } else { format!("{status}\n") };
    Ok((String::from_utf8_lossy(&output).into_owned() + &failure, status.success()))
}

impl Summary {
    /// Counts a skipped test, or the closing line of a test binary; ignores any other line.
    fn add(&mut self, line: &str) {
        self.skipped += u64::from(line.starts_with(SKIPPED));
        let Some((_, counts)) = line.split_once("test result: ") else { return };
        let count = |result: &str| {
            let before = counts.split_once(&format!(" {result};")).map_or("", |(before, _)| before);
            before.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()).unwrap_or(0)
        };
        self.passed += count("passed");
        self.failed += count("failed");
        self.ignored += count("ignored");
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { passed, failed, skipped, ignored } = self;
        // To the test harness, a test that returns early has passed.
        let (ran, unrun) = (passed.saturating_sub(*skipped), skipped + ignored);
        write!(f, "{ran} passed, {failed} failed, {unrun} skipped ({skipped} with missing requirements)")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::tidy;

    #[test]
    fn one_package_has_examples() {
        let is_example = |line: &str| ["/// ```", "//! ```"].iter().any(|mark| line.trim_start().starts_with(mark));
        let mut found = BTreeSet::new();
        for source in tidy::sources(&workspace::root()).unwrap() {
            if let Some((package, file)) = source.path.split_once("/src/")
                && file.ends_with(".rs")
                && source.text.lines().any(is_example)
            {
                found.insert(package.rsplit('/').next().unwrap().to_owned());
            }
        }
        assert_eq!(found, BTreeSet::from([WITH_EXAMPLES.to_owned()]));
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
        assert_eq!(summary.to_string(), "3 passed, 2 failed, 2 skipped (1 with missing requirements)");
    }

    fn shell(name: &str, line: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        Job { name: name.to_owned(), command, is_background: false }
    }

    #[test]
    fn every_job_runs_and_its_output_and_failure_are_its_own() {
        let jobs = || {
            let missing = Job { command: Command::new("/nowhere/at/all"), ..shell("missing", "") };
            vec![shell("both", "echo out; echo err >&2; echo again"), shell("fails", "echo before; exit 3"), missing]
        };
        for together in [1, 3] {
            let mut ended = run_jobs(jobs(), together, |_| ());
            ended.sort_by(|a, b| a.name.cmp(&b.name));
            let [both, fails, missing] = &ended[..] else { panic!("{ended:?}") };
            assert_eq!((both.output.as_str(), both.is_success), ("out\nerr\nagain\n", true));
            assert!(!fails.is_success && fails.output.starts_with("before\n"), "{fails:?}");
            assert!(!missing.is_success && missing.output.starts_with("start the process"), "{missing:?}");
        }
    }

    /// The first job finishes only after the second has started.
    #[test]
    fn jobs_run_together_and_next_to_one_in_the_background() {
        for (together, is_background) in [(2, false), (1, true)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("begun").display().to_string();
            let waits = format!("for i in $(seq 600); do [ -e '{path}' ] && exit 0; sleep 0.1; done; exit 1");
            let begins = Job { is_background, ..shell("begins", &format!("touch '{path}'")) };
            let ended = run_jobs(vec![shell("waits", &waits), begins], together, |_| ());
            assert!(ended.len() == 2 && ended.iter().all(|one| one.is_success), "{ended:?}");
        }
    }

    #[test]
    fn counts_and_failures_of_jobs_are_reported_together() {
        let passed = shell("passed", "echo 'test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured;'");
        assert_eq!(run_all(vec![passed]).unwrap().passed, 2);
        let error = run_all(vec![shell("a", "exit 1"), shell("b", "exit 0")]).unwrap_err();
        assert_eq!(error.to_string(), "tests failed: a");
    }
}
