//! `cargo xtask test`: every test of the workspace, and one line that sums them up.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::{libtorch, train, workspace};

/// The count of tests by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that are marked to be left out.
    pub ignored: u64,
}

/// Runs every test, or those whose names hold `filter`. Binaries that system tests start are built first.
///
/// # Errors
/// If something does not build or a test fails.
pub fn run(root: &Path, filter: Option<&str>) -> Result<Summary> {
    let libtorch = libtorch::ensure(root, libtorch::Check::Stamp)?;
    // All that `cargo test` needs, with the features it needs: binaries alone would have others, and be compiled twice.
    workspace::run(workspace::cargo(root).args(["build", "--workspace", "--all-targets"]))?;
    let binaries = workspace::metadata(root)?.target_directory.join("debug");

    let mut command = workspace::cargo(root);
    // One failing binary does not hide the results of the others.
    command.args(["test", "--workspace", "--no-fail-fast"]).args(filter);
    command.env("ZEROFLEET_BIN_DIR", &binaries);
    train::find_libraries(&mut command, &libtorch);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("start cargo test")?;

    let mut summary = Summary::default();
    let output = child.stdout.take().expect("stdout is piped");
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("read the output of the tests")?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        summary.add(&line);
    }
    let status = child.wait().context("wait for cargo test")?;
    println!("\n{summary}");
    if !status.success() {
        bail!("tests failed");
    }
    Ok(summary)
}

impl Summary {
    /// Counts a closing line of a test binary; any other line counts nothing.
    fn add(&mut self, line: &str) {
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
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.ignored)
    }
}

#[cfg(test)]
mod tests {
    //! Claims about the summary.

    use super::Summary;

    #[test]
    fn closing_lines_of_all_test_binaries_are_summed() {
        let mut summary = Summary::default();
        for line in [
            "running 3 tests",
            "test tests::a ... ok",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 4 filtered out; finished in 1.50s",
        ] {
            summary.add(line);
        }
        assert_eq!(summary, Summary { passed: 4, failed: 2, ignored: 1 });
        assert_eq!(summary.to_string(), "4 passed, 2 failed, 1 skipped");
    }
}
