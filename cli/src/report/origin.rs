//! Where the results of a run come from: the command, the program and the machine of its last session.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};
use service::gpus::Gpus;
use service::machine;

use crate::printed_command::quoted;

/// The commit from which this program was built, or `unknown`.
const COMMIT: &str = env!("ZEROFLEET_COMMIT");

/// The command, the program and the machine of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Origin {
    /// The command as a shell reads it, with the name of the program in place of its path.
    pub(crate) command: String,
    /// The commit from which the program was built, or `unknown`.
    pub(crate) commit: String,
    /// The model of the processor.
    pub(crate) processor: String,
    /// The number of cores that the program may use.
    pub(crate) cores: usize,
    /// The models of the NVIDIA GPUs.
    pub(crate) gpus: Vec<String>,
}

impl Origin {
    /// Returns the origin of a session of this process, which was started with these `arguments`.
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

    /// Returns the rows of a summary as name and value; none for a run whose sessions did not note them.
    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        if *self == Self::default() {
            return Vec::new();
        }
        // Rows of Markdown are divided by `|`.
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
