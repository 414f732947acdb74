//! `cargo xtask fuzz`: builds the fuzz targets with libFuzzer and the address sanitiser, and runs each for some
//! minutes.
//!
//! Every bin of `fuzz/Cargo.toml` is a target; `fuzz/README.md` describes them. New inputs stay below `target/fuzz`;
//! the committed corpus is only read.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use cargo_metadata::MetadataCommand;

use crate::suite::{SANITISED, has_runtime};
use crate::{libtorch, train, workspace};

/// Compiler options of cargo-fuzz: coverage for libFuzzer, and the address sanitiser.
const RUSTFLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                         -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                         -Cllvm-args=-sanitizer-coverage-pc-table";
/// Maximum memory per target and per allocation, in MiB. A replay log head may decompress to 256 MiB.
const MEMORY_MIB_MAX: u64 = 2048;
const ALLOCATION_MIB_MAX: u64 = 600;
/// Time limit for one input, in seconds; a longer run counts as a hang.
const INPUT_SECONDS_MAX: u64 = 20;
/// Log lines printed for a finding.
const TAIL_LINES: usize = 40;

/// Options for running fuzz targets.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct Options {
    /// Duration per target in minutes.
    #[arg(long, default_value_t = 10.0)]
    pub minutes: f64,
    /// Number of targets to run in parallel.
    #[arg(long, default_value_t = 1)]
    pub parallel: usize,
    /// Names of the targets to run [default: all].
    pub targets: Vec<String>,
}

/// Result of one target.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    target: String,
    /// Number of executed inputs.
    executions: u64,
    took: Duration,
    /// Files of the committed corpus, and files that this and earlier runs found in addition.
    corpus: usize,
    found: usize,
    /// False if an input failed the check, hung or took too much memory.
    passed: bool,
}

/// Builds all targets, runs the named targets, and prints executions and corpus sizes.
///
/// # Errors
/// A target has a finding or does not build, or there is no such target.
pub fn run(root: &Path, options: &Options) -> Result<()> {
    ensure!(has_runtime()?, "the compiler has no address sanitiser for {SANITISED}");
    libtorch::ensure(root, libtorch::Check::Stamp, libtorch::Choice::Cpu)?;
    let manifest = root.join("fuzz/Cargo.toml");
    let targets = chosen(&targets(&manifest)?, &options.targets)?;
    let folder = root.join("target/fuzz");
    let mut build = workspace::cargo(root);
    build.args(["build", "--release", "--bins", "--target", SANITISED, "--manifest-path"]).arg(&manifest);
    build.arg("--target-dir").arg(&folder);
    // The options are unstable, and the compiler may be stable.
    build.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", RUSTFLAGS);
    workspace::run(&mut build)?;

    let waiting = Mutex::new(targets.into_iter().rev().collect::<Vec<String>>());
    let rows = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            // The lock is released before the target runs.
            let next = waiting.lock().expect("no holder of the lock panics").pop();
            let Some(target) = next else { return Ok(()) };
            let row = run_target(root, &folder, &target, options.minutes)?;
            println!("{row}");
            rows.lock().expect("no holder of the lock panics").push(row);
        }
    };
    println!("{}", Row::HEAD);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.parallel.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    let failed: Vec<String> = rows
        .into_inner()
        .expect("no holder of the lock panics")
        .into_iter()
        .filter_map(|row| (!row.passed).then_some(row.target))
        .collect();
    if !failed.is_empty() {
        bail!("found failing inputs, saved in {}: {}", folder.join("findings").display(), failed.join(", "));
    }
    Ok(())
}

/// Returns the names of all targets, in order.
fn targets(manifest: &Path) -> Result<Vec<String>> {
    let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().exec();
    let metadata = metadata.context("read the manifest of the fuzz targets")?;
    let mut names: Vec<String> = metadata
        .packages
        .iter()
        .flat_map(|package| &package.targets)
        .filter(|target| target.is_bin())
        .map(|target| target.name.clone())
        .collect();
    names.sort();
    Ok(names)
}

/// Returns the named targets; all if none is named.
fn chosen(all: &[String], named: &[String]) -> Result<Vec<String>> {
    if let Some(unknown) = named.iter().find(|name| !all.contains(name)) {
        bail!("unknown target {unknown}; targets are {}", all.join(", "));
    }
    Ok(if named.is_empty() { all.to_vec() } else { named.to_vec() })
}

fn run_target(root: &Path, folder: &Path, target: &str, minutes: f64) -> Result<Row> {
    let corpus = root.join("fuzz/corpus").join(target);
    let (found, findings) = (folder.join("found").join(target), folder.join("findings"));
    for path in [&found, &findings] {
        fs::create_dir_all(path).with_context(|| format!("create {}", path.display()))?;
    }
    let log = folder.join(format!("{target}.log"));
    let output = fs::File::create(&log).with_context(|| format!("create {}", log.display()))?;
    let mut command = Command::new(folder.join(SANITISED).join("release").join(target));
    command.arg(&found).arg(&corpus).arg(format!("-max_total_time={}", (minutes * 60.0).ceil().max(1.0)));
    command.arg(format!("-artifact_prefix={}/{target}-", findings.display()));
    command.args([format!("-rss_limit_mb={MEMORY_MIB_MAX}"), format!("-malloc_limit_mb={ALLOCATION_MIB_MAX}")]);
    command.args([format!("-timeout={INPUT_SECONDS_MAX}"), "-print_final_stats=1".to_owned()]);
    // A server that some targets start runs until the process exits; the memory of the server is no leak.
    command.env("ASAN_OPTIONS", "detect_leaks=0");
    // The compiler options of the targets replace the options that link the library path of the workspace.
    let libtorch = workspace::chosen_libtorch(root).unwrap_or_else(|| root.join(".libtorch"));
    train::find_libraries_in(&mut command, &libtorch);
    let start = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).status();
    let status = status.with_context(|| format!("start the fuzz target {target}"))?;
    let text = String::from_utf8_lossy(&fs::read(&log).context("read the output of a fuzz target")?).into_owned();
    if !status.success() {
        let lines: Vec<&str> = text.lines().collect();
        let mut output = std::io::stderr().lock();
        for line in &lines[lines.len().saturating_sub(TAIL_LINES)..] {
            writeln!(output, "{line}").context("print the output of a fuzz target")?;
        }
    }
    Ok(Row {
        target: target.to_owned(),
        executions: executions(&text),
        took: start.elapsed(),
        corpus: files(&corpus)?,
        found: files(&found)?,
        passed: status.success(),
    })
}

/// Returns the number of executed inputs from the statistics of libFuzzer; 0 without statistics.
fn executions(log: &str) -> u64 {
    let count = log.lines().find_map(|line| line.trim().strip_prefix("stat::number_of_executed_units:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

fn files(folder: &PathBuf) -> Result<usize> {
    Ok(fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?.count())
}

impl Row {
    const HEAD: &str = "target          executions  per second  corpus   found  result";
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { target, executions, took, corpus, found, passed } = self;
        let per_second = *executions as f64 / took.as_secs_f64().max(1e-9);
        let result = if *passed { "passed" } else { "FINDING" };
        write!(f, "{target:<14} {executions:>11} {per_second:>11.0} {corpus:>7} {found:>7}  {result}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_its_check_its_corpus_and_a_share_in_the_tests() {
        let root = workspace::root();
        let targets = targets(&root.join("fuzz/Cargo.toml")).unwrap();
        assert!(targets.len() >= 13, "{targets:?}");
        let test = fs::read_to_string(root.join("tests/tests/corpus.rs")).unwrap();
        for target in targets {
            assert!(root.join("fuzz/checks").join(format!("{target}.rs")).exists(), "{target} has no check");
            let count = files(&root.join("fuzz/corpus").join(&target)).unwrap();
            assert!((1..=20).contains(&count), "the corpus of {target} has {count} files");
            assert!(test.contains(&format!("run(\"{target}\"")), "no test runs the corpus of {target}");
        }
    }

    #[test]
    fn a_target_that_does_not_exist_is_refused_with_those_that_do() {
        let all = ["crash".to_owned(), "spool".to_owned()];
        assert_eq!(chosen(&all, &[]).unwrap(), all);
        assert_eq!(chosen(&all, &all[1..]).unwrap(), all[1..]);
        let error = chosen(&all, &["spol".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "unknown target spol; targets are crash, spool");
    }

    #[test]
    fn executions_are_read_from_the_statistics() {
        let log = "#12\tDONE   cov: 9\nstat::number_of_executed_units: 4711\nstat::average_exec_per_sec:     12\n";
        assert_eq!((executions(log), executions("")), (4711, 0));
    }
}
