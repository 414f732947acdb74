//! PyTorch in a separate process: a Python program that takes the training steps, in a virtual environment.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use training::Optimiser;
use weights::Architecture;

use super::backend::Backend;
use super::inputs::Inputs;
use super::steps::{CHECKED_STEPS, FirstSteps};
use crate::output;
use crate::python;
use crate::script::Script;

const PROGRAM: &str = include_str!("pytorch/train.py");
const REQUIREMENTS: &str = include_str!("pytorch/requirements.txt");
/// Maximum time for the first steps: `torch.compile` takes minutes on a busy machine, for each of two memory formats.
const START_PATIENCE: Duration = Duration::from_secs(1800);
/// Maximum time of a turn beyond the requested duration: one step.
pub(super) const STEP_PATIENCE: Duration = Duration::from_secs(300);
/// Settings of the C library's allocator, matching [`network_torch::keep_memory`] in this process.
const ALLOCATOR: [(&str, &str); 3] =
    [("MALLOC_ARENA_MAX", "1"), ("MALLOC_TRIM_THRESHOLD_", "2147483647"), ("MALLOC_MMAP_THRESHOLD_", "33554432")];

/// First response of the process.
#[derive(Debug, Deserialize)]
pub(super) struct Started {
    /// Version of PyTorch.
    pub(super) version: String,
    /// The faster memory format.
    pub(super) format: String,
    #[serde(flatten)]
    pub(super) first_steps: FirstSteps,
}

/// Starts PyTorch with the virtual environment in `folder`, which is made if it does not exist. The process takes the
/// first steps, in the faster of two memory formats, and then measures steps/s on request.
///
/// # Errors
/// A step fails; the error describes it.
pub(super) fn start(folder: &Path, inputs: &Inputs, backend: Backend) -> anyhow::Result<(Script, Started)> {
    let python = python::environment_with(folder, REQUIREMENTS)?;
    let program = folder.join("train.py");
    output::write(&program, PROGRAM)?;
    let mut command = Command::new(python);
    command.arg(program).arg(options(inputs, backend).to_string()).envs(ALLOCATOR).stderr(Stdio::null());
    // Later runs find compiled code there. One compile thread, so that no compile workers remain.
    command.env("TORCHINDUCTOR_CACHE_DIR", std::path::absolute(folder.join("compiled"))?);
    command.env("TORCHINDUCTOR_COMPILE_THREADS", "1");
    Script::start(command, START_PATIENCE)
}

/// Returns the argument of the program.
fn options(inputs: &Inputs, backend: Backend) -> Value {
    let Inputs { case, architecture, settings, weights, batch, .. } = inputs;
    let Architecture { planes, height, width, actions, channels, blocks, .. } = architecture;
    let Optimiser::AdamW { betas, epsilon } = settings.optimiser else {
        unreachable!("the settings of the benchmark have the default optimiser, AdamW")
    };
    json!({
        "network": {
            "planes": planes, "height": height, "width": width, "actions": actions, "channels": channels, "blocks": blocks
        },
        "positions": case.batch,
        "weights": weights,
        "batch": batch,
        "precision": case.precision.to_string(),
        "threads": case.threads,
        "compile": backend == Backend::PytorchCompile,
        "checked_steps": CHECKED_STEPS,
        "settings": {
            "learning_rate": settings.learning_rate,
            "betas": betas,
            "epsilon": epsilon,
            "weight_decay": settings.weight_decay,
            "gradient_clip_norm": settings.gradient_clip_norm,
            "ema_decay": settings.ema_decay,
            "value_loss_weight": settings.loss_weights.value
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pytorch_has_the_version_of_libtorch_and_its_libraries() {
        let libtorch = include_str!("../../../xtask/src/libtorch/requirements.txt");
        let is_pinned = |line: &&str| line.starts_with("torch==") || line.starts_with("nvidia-");
        let pinned: Vec<&str> = REQUIREMENTS.lines().filter(is_pinned).collect();
        assert_eq!(pinned.len(), 13);
        for line in pinned {
            let package = line.split(';').next().unwrap_or_default();
            assert!(libtorch.contains(&format!("\n{package} \\\n")), "{package}");
        }
    }

    #[test]
    fn the_first_answer_has_the_format_and_the_first_steps() {
        let line = r#"{"id": 0, "version": "2.11.0", "format": "channels last", "losses": [[3.1, 2.0, 1.1, 2.5]],
            "average_norm": 36.1}"#;
        let Started { version, format, first_steps } = serde_json::from_str(line).unwrap();
        assert_eq!((version.as_str(), format.as_str()), ("2.11.0", "channels last"));
        first_steps.check(&first_steps, network_torch::Precision::F32).unwrap();
    }
}
