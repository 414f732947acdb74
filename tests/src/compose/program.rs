//! Finds the Compose program that runs a cluster.

use std::process::Command;

use anyhow::ensure;

use crate::process::run;

/// Environment variable with the command of Compose, such as `docker-compose` or a path to it. If it is unset, the
/// plugin, Compose v2, is preferred to docker-compose.
const CHOICE: &str = "ZEROFLEET_COMPOSE";
const CANDIDATES: [&str; 2] = ["docker compose", "docker-compose"];

/// The command of a working Compose program, as a list of words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program(Vec<String>);

impl Program {
    /// Returns the Compose programs on this machine, the preferred one first; if `ZEROFLEET_COMPOSE` is set, only that
    /// program.
    ///
    /// # Errors
    /// The program that `ZEROFLEET_COMPOSE` names does not work.
    pub fn on_this_machine() -> anyhow::Result<Vec<Self>> {
        let of = |line: &str| Self(line.split_whitespace().map(str::to_owned).collect());
        if let Ok(line) = std::env::var(CHOICE) {
            let chosen = of(&line);
            ensure!(!chosen.0.is_empty() && chosen.answers(), "{CHOICE} is `{line}`, which does not answer");
            return Ok(vec![chosen]);
        }
        Ok(CANDIDATES.into_iter().map(of).filter(Self::answers).collect())
    }

    /// Returns a command that runs the program, without arguments.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.0[0]);
        command.args(&self.0[1..]);
        command
    }

    fn answers(&self) -> bool {
        self.version().is_ok()
    }

    /// Returns the version of the program.
    ///
    /// # Errors
    /// The program does not report a version.
    pub fn version(&self) -> anyhow::Result<String> {
        Ok(run(self.command().args(["version", "--short"]))?.trim().to_owned())
    }
}
