//! `cargo xtask fuzz`: builds the fuzz targets with libFuzzer and the address sanitiser, and runs each for some
//! minutes.
//!
//! Every bin of `fuzz/Cargo.toml` is a target; `fuzz/README.md` describes them. New inputs stay below `target/fuzz`;
//! the committed corpus is only read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail, ensure};

use crate::stress::{SANITISED, has_runtime};
use crate::suite::{self, Ended, Job};
use crate::{files, libtorch, train, workspace};

/// Compiler options of cargo-fuzz: coverage for libFuzzer, and the address sanitiser.
const RUSTFLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                         -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                         -Cllvm-args=-sanitizer-coverage-pc-table";
/// Maximum memory per target and per allocation, in MiB. A replay log head may decompress to 256 MiB.
const MEMORY_MIB_MAX: u64 = 2048;
const ALLOCATION_MIB_MAX: u64 = 600;
/// Time limit for one input, in seconds; a longer run counts as a hang.
const INPUT_SECONDS_MAX: u64 = 20;
/// Number of log lines to print for a finding.
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

    println!("target          executions  per second  corpus   found  result");
    let jobs: Result<Vec<Job>> = targets.iter().map(|target| job(root, &folder, target, options.minutes)).collect();
    let ended = suite::run_jobs(jobs?, options.parallel, |ended| println!("{}", row(root, &folder, ended)));
    for one in &ended {
        files::write(&folder.join(format!("{}.log", one.name)), &one.output)?;
    }
    let failed: Vec<&str> = ended.iter().filter(|one| !one.is_success).map(|one| one.name.as_str()).collect();
    if !failed.is_empty() {
        bail!("found failing inputs, saved in {}: {}", folder.join("findings").display(), failed.join(", "));
    }
    Ok(())
}

/// Returns the names of all targets, in order.
fn targets(manifest: &Path) -> Result<Vec<String>> {
    let packages = workspace::metadata(manifest)?.packages;
    let bins = packages.iter().flat_map(|package| &package.targets).filter(|target| target.is_bin());
    let mut names: Vec<String> = bins.map(|target| target.name.clone()).collect();
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

/// Returns the job that runs a target.
fn job(root: &Path, folder: &Path, target: &str, minutes: f64) -> Result<Job> {
    let (found, findings) = (found(folder, target), folder.join("findings"));
    files::create_folder(&found)?;
    files::create_folder(&findings)?;
    let mut command = Command::new(folder.join(SANITISED).join("release").join(target));
    command.arg(&found).arg(corpus(root, target)).arg(format!("-max_total_time={}", (minutes * 60.0).ceil().max(1.0)));
    command.arg(format!("-artifact_prefix={}/{target}-", findings.display()));
    command.args([format!("-rss_limit_mb={MEMORY_MIB_MAX}"), format!("-malloc_limit_mb={ALLOCATION_MIB_MAX}")]);
    command.args([format!("-timeout={INPUT_SECONDS_MAX}"), "-print_final_stats=1".to_owned()]);
    // A server that some targets start runs until the process exits; the memory of the server is no leak.
    command.env("ASAN_OPTIONS", "detect_leaks=0");
    // The compiler options of the targets replace the options that link the library path of the workspace.
    train::find_libraries_in(&mut command, &workspace::libtorch(root));
    Ok(Job { name: target.to_owned(), command, is_background: false })
}

/// Returns the directory of the committed corpus of a target.
fn corpus(root: &Path, target: &str) -> PathBuf {
    root.join("fuzz/corpus").join(target)
}

/// Returns the directory for inputs that runs find in addition to the corpus.
fn found(folder: &Path, target: &str) -> PathBuf {
    folder.join("found").join(target)
}

/// Formats the result of a target: executed inputs, the sizes of both corpora, and the last log lines if an input
/// failed the check, hung or took too much memory.
fn row(root: &Path, folder: &Path, Ended { name, took, output, is_success }: &Ended) -> String {
    let executions = executions(output);
    let per_second = executions as f64 / took.as_secs_f64().max(1e-9);
    let [corpus, found] = [corpus(root, name), found(folder, name)].map(|folder| count(&folder));
    let numbers = format!("{name:<14} {executions:>11} {per_second:>11.0} {corpus:>7} {found:>7}");
    if *is_success {
        return format!("{numbers}  passed");
    }
    let lines: Vec<&str> = output.lines().collect();
    format!("{}\n{numbers}  FINDING", lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"))
}

/// Returns the number of executed inputs from the statistics of libFuzzer; 0 without statistics.
fn executions(log: &str) -> u64 {
    let count = log.lines().find_map(|line| line.trim().strip_prefix("stat::number_of_executed_units:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

fn count(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, Iterator::count)
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
            let count = count(&corpus(&root, &target));
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
