//! The compose program that runs a cluster.

use std::process::Command;

use anyhow::ensure;

use crate::process::run;

/// A command that is taken as the compose, such as `docker-compose` or the path of one. Where it is unset that is the
/// plugin, Compose v2, if there is one, and else docker-compose.
const CHOICE: &str = "ZEROFLEET_COMPOSE";
const CANDIDATES: [&str; 2] = ["docker compose", "docker-compose"];

/// A compose that answers, as the words it is called by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program(Vec<String>);

impl Program {
    /// Those on this machine, the one to prefer first; of `ZEROFLEET_COMPOSE`, where it is set, only that.
    ///
    /// # Errors
    /// The one that was chosen does not answer.
    pub fn on_this_machine() -> anyhow::Result<Vec<Self>> {
        let of = |line: &str| Self(line.split_whitespace().map(str::to_owned).collect());
        if let Ok(line) = std::env::var(CHOICE) {
            let chosen = of(&line);
            ensure!(!chosen.0.is_empty() && chosen.answers(), "{CHOICE} is `{line}`, which does not answer");
            return Ok(vec![chosen]);
        }
        Ok(CANDIDATES.into_iter().map(of).filter(Self::answers).collect())
    }

    /// The beginning of a command.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.0[0]);
        command.args(&self.0[1..]);
        command
    }

    fn answers(&self) -> bool {
        self.version().is_ok()
    }

    /// Returns its version.
    ///
    /// # Errors
    /// It does not answer.
    pub fn version(&self) -> anyhow::Result<String> {
        Ok(run(self.command().args(["version", "--short"]))?.trim().to_owned())
    }
}
