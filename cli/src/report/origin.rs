//! The origin of the results in a run: command, program and machine in the last session.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};
use service::gpus::Gpus;
use service::machine;

use crate::printed_command::quoted;

/// Git commit from which this program was built, or `unknown`.
const COMMIT: &str = env!("ZEROFLEET_COMMIT");

/// The command, program and machine of a training session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Origin {
    /// Command line in shell syntax, with the program name in place of the path.
    pub(crate) command: String,
    /// Git commit from which the program was built, or `unknown`.
    pub(crate) commit: String,
    /// Processor model of the machine.
    pub(crate) processor: String,
    /// Number of cores that the program may use.
    pub(crate) cores: usize,
    /// Models of all NVIDIA GPUs of the machine.
    pub(crate) gpus: Vec<String>,
}

impl Origin {
    /// Returns the origin of a session in this process with the command-line `arguments`.
    pub(crate) fn here(arguments: impl Iterator<Item = OsString>) -> Self {
        let arguments = arguments.skip(1).map(|argument| format!(" {}", quoted(argument)));
        // Without an NVIDIA driver, the list of GPUs is empty.
        let gpus = Gpus::open().and_then(|gpus| gpus.read()).unwrap_or_default();
        Self {
            command: format!("zerofleet{}", arguments.collect::<String>()),
            commit: COMMIT.to_owned(),
            processor: machine::cpu_model(),
            cores: machine::cores(),
            gpus: gpus.into_iter().map(|gpu| gpu.name).collect(),
        }
    }

    /// Returns the rows for the summary, each with a name and a value. The result is empty if the origin was not
    /// recorded.
    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        if *self == Self::default() {
            return Vec::new();
        }
        let processor = format!("{}, {} cores", self.processor, self.cores);
        let mut rows =
            vec![("command", self.command.clone()), ("commit", self.commit.clone()), ("processor", processor)];
        if !self.gpus.is_empty() {
            rows.push(("GPUs", self.gpus.join(", ")));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_names_command_commit_and_processor() {
        let arguments = ["/usr/bin/zerofleet", "train", "--runs", "my runs"].map(OsString::from);
        let origin = Origin::here(arguments.into_iter());
        assert_eq!(origin.command, "zerofleet train --runs 'my runs'");
        assert!(origin.cores > 0 && !origin.processor.is_empty());
        let is_commit = origin.commit.len() >= 7 && origin.commit.chars().all(|c| c.is_ascii_hexdigit());
        assert!(is_commit || origin.commit == "unknown", "{}", origin.commit);
        assert_eq!(Origin::default().rows(), []);
    }
}
