//! The devices of this machine, in the one-line JSON format of `learner --devices`.
//!
//! Other programs are not linked with libtorch and read the line from the program `learner`. A driver that crashes or
//! hangs then stops that program only.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

/// The option with which the program `learner` prints a [`DeviceTrial`] and exits.
pub const OPTION: &str = "--devices";

/// The devices tried by libtorch, and the files of libtorch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceTrial {
    /// The files of libtorch, as loaded.
    pub libtorch: Libtorch,
    /// Working devices, the CPU first: `cpu`, `cuda:1`.
    pub working: Vec<String>,
    /// Devices that do not work, each followed by a colon and the reason.
    pub missing: Vec<String>,
    /// Working devices that cannot train, each followed by a colon and the reason.
    pub cannot_train: Vec<String>,
    /// The device for training under `auto`.
    pub training: Choice,
    /// The accelerator to compare with the CPU for evaluation under `auto`, or the CPU.
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
        let of = |device: &str| reason_of(&self.missing, device);
        // If CUDA as a whole is missing, the first CUDA device has the reason.
        let first = device.starts_with("cuda").then(|| of("cuda")).flatten();
        Some(of(device).or(first).unwrap_or("libtorch does not list the device"))
    }
}

fn reason_of<'a>(refused: &'a [String], device: &str) -> Option<&'a str> {
    refused.iter().find_map(|refused| refused.strip_prefix(device)?.strip_prefix(": "))
}

/// The files of libtorch; `None` for a file that is not loaded, or not reported by the system.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Libtorch {
    /// Version from the files next to the library directory.
    pub version: Option<String>,
    /// The library loaded by every process with libtorch.
    pub cpu_half: Option<PathBuf>,
    /// The library of CUDA kernels.
    pub cuda_half: Option<PathBuf>,
}

/// A device and the reason for choosing it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Choice {
    /// Name of the device in a configuration.
    pub device: String,
    /// Human-readable reason, for logs.
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
        let none = Some("libtorch does not list the device");
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
