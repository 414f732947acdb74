//! `cargo xtask simulate`: runs the simulator of the replay service, for seeds from a given number or the commit hash.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::workspace;

/// Number of hexadecimal digits of the commit hash that form a first seed: 48 bits, so that no run reaches the largest
/// seed.
const SEED_DIGITS: usize = 12;

/// Value of `--first` for a seed from the commit hash, so that each commit has different seeds.
const COMMIT: &str = "commit";

/// Options for simulating the replay service.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct SimulateOptions {
    /// Number of seeds to simulate.
    #[arg(long, default_value_t = 1_000)]
    pub seeds: u64,
    /// First seed: a number, or `commit` for a seed from the commit hash.
    #[arg(long, default_value = "0", value_name = "SEED")]
    pub first: String,
    /// Start no further seed after this many minutes.
    #[arg(long)]
    pub minutes: Option<f64>,
    /// Run each seed twice and compare the digests.
    #[arg(long)]
    pub twice: bool,
}

impl SimulateOptions {
    /// Returns the two runs in CI, which take ninety seconds in total and run each seed twice. One run has the same
    /// seeds at every commit, for comparison between commits; the other has new seeds at each commit.
    #[must_use]
    pub fn in_ci() -> [Self; 2] {
        ["0", COMMIT].map(|first| Self { seeds: u64::MAX, first: first.to_owned(), minutes: Some(0.75), twice: true })
    }

    /// Returns the arguments of the simulator at this revision.
    ///
    /// # Errors
    /// The first seed is not a number, or depends on the commit although the revision is unknown.
    pub(crate) fn arguments(&self, revision: Option<&str>) -> Result<Vec<String>> {
        let Self { seeds, first, minutes, twice } = self;
        let first: u64 = match first.as_str() {
            COMMIT => revision.and_then(seed_of).context(
                "read the commit hash for the first seed; use a git repository, or pass a seed with --first",
            )?,
            seed => seed.parse().with_context(|| format!("{seed:?} is neither a number nor `{COMMIT}`"))?,
        };
        let mut arguments = vec!["--seeds".to_owned(), seeds.to_string(), "--first".to_owned(), first.to_string()];
        arguments.extend(twice.then(|| "--twice".to_owned()));
        arguments.extend(minutes.iter().flat_map(|minutes| ["--minutes".to_owned(), minutes.to_string()]));
        arguments.extend(revision.iter().flat_map(|revision| ["--revision".to_owned(), (*revision).to_owned()]));
        Ok(arguments)
    }
}

/// Runs the simulator for some seeds.
///
/// # Errors
/// The build fails, or a seed breaks a promise.
pub fn run(root: &Path, options: &SimulateOptions) -> Result<()> {
    let arguments = options.arguments(revision(root).as_deref())?;
    let mut simulate = workspace::cargo(root);
    // The test profile, which is optimised.
    simulate.args(["run", "--package", "simulator", "--bin", "simulate", "--"]).args(arguments);
    workspace::run(&mut simulate)
}

/// Returns the commit hash of `root`, with the suffix `-dirty` if files differ from the commit; `None` without git or a
/// repository.
pub(crate) fn revision(root: &Path) -> Option<String> {
    let mut describe = Command::new("git");
    describe.args(["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]).current_dir(root);
    workspace::output(&mut describe).ok().map(|revision| revision.trim().to_owned())
}

/// Returns the first seed derived from a revision.
fn seed_of(revision: &str) -> Option<u64> {
    u64::from_str_radix(revision.get(..SEED_DIGITS)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REVISION: &str = "ef80edc4a3b2c1d0ef80edc4a3b2c1d0ef80edc4-dirty";

    fn options(first: &str) -> SimulateOptions {
        SimulateOptions { seeds: 10, first: first.to_owned(), minutes: None, twice: false }
    }

    #[test]
    fn the_first_seed_is_a_number_or_that_of_the_commit_and_the_revision_is_passed_on() {
        for (first, seed) in [("231", "231"), ("commit", "263337023939506")] {
            let arguments = options(first).arguments(Some(REVISION)).unwrap();
            assert_eq!(arguments, ["--seeds", "10", "--first", seed, "--revision", REVISION]);
        }
        let error = options("head").arguments(None).unwrap_err().to_string();
        assert_eq!(error, "\"head\" is neither a number nor `commit`");
    }

    #[test]
    fn without_a_revision_the_seed_of_the_commit_is_refused_and_others_are_not() {
        assert_eq!(options("0").arguments(None).unwrap(), ["--seeds", "10", "--first", "0"]);
        for unknown in [None, Some("not a hash"), Some("abc")] {
            let error = options("commit").arguments(unknown).unwrap_err();
            assert!(error.to_string().contains("pass a seed with --first"), "{error}");
        }
    }

    #[test]
    fn ci_repeats_the_seeds_from_zero_and_adds_those_of_the_commit() {
        let firsts = SimulateOptions::in_ci().map(|run| run.first);
        assert_eq!(firsts, ["0", COMMIT]);
    }
}
