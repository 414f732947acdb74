//! The origin of a run's results: command, program and machine of the last session.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};
use service::gpus::Gpus;
use service::machine;

use crate::printed_command::quoted;

/// Commit from which this program was built, or `unknown`.
const COMMIT: &str = env!("ZEROFLEET_COMMIT");

/// Command, program and machine of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Origin {
    /// The command in shell form, with the name of the program instead of the path.
    pub(crate) command: String,
    /// Commit from which the program was built, or `unknown`.
    pub(crate) commit: String,
    /// Model of the processor.
    pub(crate) processor: String,
    /// Number of cores that the program may use.
    pub(crate) cores: usize,
    /// Models of the NVIDIA GPUs.
    pub(crate) gpus: Vec<String>,
}

impl Origin {
    /// Returns the origin of a session of this process, with these `arguments`.
    pub(crate) fn here(arguments: impl Iterator<Item = OsString>) -> Self {
        let arguments = arguments.skip(1).map(|argument| format!(" {}", quoted(argument)));
        // A machine without a driver has no GPU to name.
        let gpus = Gpus::open().and_then(|gpus| gpus.read()).unwrap_or_default();
        Self {
            command: format!("zerofleet{}", arguments.collect::<String>()),
            commit: COMMIT.to_owned(),
            processor: machine::cpu_model(),
            cores: machine::cores(),
            gpus: gpus.into_iter().map(|gpu| gpu.name).collect(),
        }
    }

    /// Returns the rows of a summary as name and value; none for a run without a recorded origin.
    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        if *self == Self::default() {
            return Vec::new();
        }
        // `|` separates the cells of a Markdown row.
        let command = self.command.replace('|', "\\|");
        let processor = format!("{}, {} cores", self.processor, self.cores);
        let mut rows = vec![("command", command), ("commit", self.commit.clone()), ("processor", processor)];
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
