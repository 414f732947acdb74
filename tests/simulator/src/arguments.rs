//! The options of the simulator, and the revision of the program. Only this module starts a process: git.

use std::process::Command;

use clap::Parser;
use replay_server::defect::Defect;

/// Number of hexadecimal digits of the commit hash that form a first seed: 48 bits, so that no run reaches the largest
/// seed.
const SEED_DIGITS: usize = 12;

/// Value of `--first` for a seed from the commit hash, so that each commit has different seeds.
const COMMIT: &str = "commit";

/// Simulates the replay service with clients and disks, one run per seed.
#[derive(Debug, Clone, Parser)]
#[command(name = "simulate")]
pub struct Arguments {
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
    /// Continue after a failing seed, and only name it.
    #[arg(long)]
    pub all: bool,
    /// Plant a defect of the server, by name.
    #[arg(long, value_parser = defect)]
    pub defect: Option<Defect>,
}

/// Returns the defect with a name.
fn defect(name: &str) -> Result<Defect, String> {
    let named = Defect::ALL.iter().copied().find(|defect| format!("{defect:?}") == name);
    named.ok_or_else(|| format!("is none of {:?}", Defect::ALL))
}

impl Arguments {
    /// Returns the first seed at a revision.
    ///
    /// # Errors
    /// The first seed is not a number, or depends on the commit although the revision is unknown.
    pub fn first_seed(&self, revision: Option<&str>) -> Result<u64, String> {
        let first = self.first.as_str();
        if first != COMMIT {
            return first.parse().map_err(|_| format!("{first:?} is neither a number nor `{COMMIT}`"));
        }
        let seed = revision.and_then(|revision| u64::from_str_radix(revision.get(..SEED_DIGITS)?, 16).ok());
        seed.ok_or_else(|| "the commit hash is unknown; use a git repository, or pass a seed with --first".to_owned())
    }
}

/// Returns the commit hash of the working directory, with the suffix `-dirty` if files differ from the commit; `None`
/// without git or a repository.
#[must_use]
pub fn revision() -> Option<String> {
    let mut describe = Command::new("git");
    describe.args(["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]);
    let output = describe.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REVISION: &str = "ef80edc4a3b2c1d0ef80edc4a3b2c1d0ef80edc4-dirty";

    fn first_seed(first: &str, revision: Option<&str>) -> Result<u64, String> {
        Arguments::try_parse_from(["simulate", "--first", first]).unwrap().first_seed(revision)
    }

    #[test]
    fn the_first_seed_is_a_number_or_that_of_the_commit() {
        assert_eq!(first_seed("231", Some(REVISION)), Ok(231));
        assert_eq!(first_seed("commit", Some(REVISION)), Ok(263_337_023_939_506));
        assert_eq!(first_seed("head", None).unwrap_err(), "\"head\" is neither a number nor `commit`");
    }

    #[test]
    fn without_a_revision_the_seed_of_the_commit_is_refused_and_others_are_not() {
        assert_eq!(first_seed("0", None), Ok(0));
        for unknown in [None, Some("not a hash"), Some("abc")] {
            let error = first_seed("commit", unknown).unwrap_err();
            assert!(error.contains("pass a seed with --first"), "{error}");
        }
    }

    #[test]
    fn documented_options_and_those_of_ci_parse() {
        for line in ["--seeds 100000 --minutes 60 --twice", "--first 231 --seeds 1", "--first commit --minutes 0.75"] {
            let words = ["simulate"].into_iter().chain(line.split(' '));
            assert!(Arguments::try_parse_from(words).is_ok(), "{line}");
        }
    }
}
