//! The devices of this machine, as `learner --devices` prints them in one line of JSON.
//!
//! Other programs are not linked with libtorch and read the line from the program `learner`. A driver that crashes or
//! hangs then ends that program only.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

/// The option that makes the program `learner` print a [`DeviceTrial`] and exit.
pub const OPTION: &str = "--devices";

/// The devices that libtorch tried, and its files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceTrial {
    /// The files of libtorch.
    pub libtorch: Libtorch,
    /// The devices that work, the CPU first: `cpu`, `cuda:1`.
    pub working: Vec<String>,
    /// The devices that do not work, each followed by a colon and the reason.
    pub missing: Vec<String>,
    /// The working devices that cannot train, each followed by a colon and the reason.
    pub cannot_train: Vec<String>,
    /// The device that `auto` chooses for training.
    pub training: Choice,
    /// The accelerator that `auto` compares with the CPU for evaluation, or the CPU.
    pub inference: Choice,
}

impl DeviceTrial {
    /// Prints the trial as one line of JSON.
    #[must_use]
    pub fn print(&self) -> ExitCode {
        let printed = serde_json::to_string(self).map(|line| writeln!(std::io::stdout(), "{line}"));
        if matches!(printed, Ok(Ok(()))) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Returns the reason why this device cannot train; `None` if it can.
    #[must_use]
    pub fn training_refusal(&self, device: &str) -> Option<&str> {
        self.refusal(device).or_else(|| reason_of(&self.cannot_train, device))
    }

    /// Returns the reason why this device cannot be used; `None` if it works.
    #[must_use]
    pub fn refusal(&self, device: &str) -> Option<&str> {
        if self.working.iter().any(|works| works == device) {
            return None;
        }
        let of =
            |device: &str| self.missing.iter().find_map(|missing| missing.strip_prefix(device)?.strip_prefix(": "));
        // Where CUDA as a whole is missing, the reason stands with its first device.
        let first = device.starts_with("cuda").then(|| of("cuda")).flatten();
        Some(of(device).or(first).unwrap_or("libtorch does not list it"))
    }
}

fn reason_of<'a>(refused: &'a [String], device: &str) -> Option<&'a str> {
    refused.iter().find_map(|refused| refused.strip_prefix(device)?.strip_prefix(": "))
}

/// The files of libtorch; `None` where one is not loaded, or the system does not tell.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Libtorch {
    /// The version beside the files.
    pub version: Option<String>,
    /// The library that every process with libtorch loads.
    pub cpu_half: Option<PathBuf>,
    /// The library of CUDA kernels.
    pub cuda_half: Option<PathBuf>,
}

/// A device and the reason for its choice.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Choice {
    /// The name in a configuration.
    pub device: String,
    /// The reason.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_listed_has_the_reason_of_the_first_of_its_kind() {
        let list = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let missing = list(&["cuda: no driver", "mps: no MPS"]);
        let trial = DeviceTrial { working: list(&["cpu"]), missing, ..DeviceTrial::default() };
        let refusals = ["cpu", "cuda", "cuda:1", "mps", "xpu"].map(|device| trial.refusal(device));
        let none = Some("libtorch does not list it");
        assert_eq!(refusals, [None, Some("no driver"), Some("no driver"), Some("no MPS"), none]);
    }

    #[test]
    fn a_device_may_evaluate_and_not_train() {
        let working = vec!["cpu".to_owned(), "mps".to_owned()];
        let cannot_train = vec!["mps: its step differs".to_owned()];
        let trial = DeviceTrial { working, cannot_train, ..DeviceTrial::default() };
        assert_eq!((trial.refusal("mps"), trial.training_refusal("mps")), (None, Some("its step differs")));
        assert_eq!((trial.training_refusal("cpu"), trial.training_refusal("cuda").is_some()), (None, true));
    }
}
