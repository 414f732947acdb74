//! `cargo xtask chaos`: the chaos test for as long as one wants, judged strictly.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::{libtorch, train, workspace};

/// Duration, seed and limits of a run.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct Options {
    /// Minutes during which faults are injected.
    #[arg(long, default_value_t = 20)]
    pub minutes: u64,
    /// Decides what goes wrong, and when; it is printed.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seconds after a heal within which every actor must have another trajectory acknowledged.
    #[arg(long, default_value_t = 5.0)]
    pub rejoin_seconds: f64,
    /// The file for the table of recovery times, as Markdown; it is printed, too.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Builds the fleet and lets things go wrong.
///
/// # Errors
/// Something does not build, a promise is broken, or this is no Linux with root rights.
pub fn run(root: &Path, options: &Options) -> Result<()> {
    let libtorch = libtorch::ensure(root, libtorch::Check::Stamp)?;
    // All of the workspace, as for the other tests, and together with a test: otherwise dependencies are built once
    // more.
    workspace::run(workspace::cargo(root).args(["build", "--workspace", "--bins", "--test", "chaos"]))?;
    let mut test = workspace::cargo(root);
    test.args(["test", "--workspace", "--test", "chaos", "--", "--nocapture"]);
    test.env("ZEROFLEET_BIN_DIR", workspace::metadata(root)?.target_directory.join("debug"));
    test.env("ZEROFLEET_CHAOS_SECONDS", (options.minutes * 60).to_string());
    test.env("ZEROFLEET_CHAOS_SEED", options.seed.to_string());
    test.env("ZEROFLEET_CHAOS_REJOIN_SECONDS", options.rejoin_seconds.to_string());
    if let Some(report) = &options.report {
        // The test runs in another folder than the caller.
        test.env("ZEROFLEET_CHAOS_REPORT", std::path::absolute(report)?);
    }
    train::find_libraries(&mut test, &libtorch);
    workspace::run(&mut test)
}
