//! Backends for training steps: the CPU kernels and libtorch in this process, and PyTorch in another process.

use std::path::Path;

use network_torch::{Device, Network};
use serde_json::json;
use training::{Trainer, TrainerSettings, TrainingKernel};

use super::inputs::Inputs;
use super::pytorch;
use super::steps::{CHECKED_STEPS, FirstSteps};
use crate::series::Work;
use crate::threads::rounds;

/// A backend for training steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// The kernels of this project.
    Kernels,
    /// libtorch, as the learner calls it.
    Libtorch,
    /// PyTorch, one operation after the other.
    Pytorch,
    /// PyTorch with `torch.compile`.
    PytorchCompile,
}

impl std::fmt::Display for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = clap::ValueEnum::to_possible_value(self).expect("no backend is hidden");
        f.write_str(value.get_name())
    }
}

/// A backend after the first steps, which allocate memory and compile.
pub(super) struct Prepared {
    /// Calls are training steps, units are positions.
    pub(super) work: Work,
    pub(super) first_steps: FirstSteps,
    /// Instructions or memory format in use.
    pub(super) details: String,
}

impl Backend {
    /// Returns true if PyTorch takes the steps.
    pub(super) fn is_pytorch(self) -> bool {
        matches!(self, Self::Pytorch | Self::PytorchCompile)
    }

    /// Makes a trainer and takes the first steps.
    ///
    /// # Errors
    /// The backend cannot train the network; the error gives the reason.
    pub(super) fn prepare(self, inputs: &Inputs, python: &Path) -> anyhow::Result<Prepared> {
        match self {
            Self::Kernels => kernels(inputs),
            Self::Libtorch => libtorch(inputs),
            Self::Pytorch | Self::PytorchCompile => self.pytorch(inputs, python),
        }
    }

    fn pytorch(self, inputs: &Inputs, python: &Path) -> anyhow::Result<Prepared> {
        let (mut script, started) = pytorch::start(python, inputs, self)?;
        let details = format!("PyTorch {}, {}", started.version, started.format);
        let work = Work::of_size(move |_, time| script.measure(json!({}), time, pytorch::STEP_PATIENCE));
        Ok(Prepared { work, first_steps: started.first_steps, details })
    }
}

fn kernels(inputs: &Inputs) -> anyhow::Result<Prepared> {
    let Inputs { case, architecture, settings, seed, .. } = inputs;
    training_cpu::Trainer::check(settings)?;
    let trainer = training_cpu::Trainer::new(architecture, settings.clone(), *seed, case.threads)?;
    let details = trainer.path().to_string();
    in_this_process(trainer, inputs, details)
}

fn libtorch(inputs: &Inputs) -> anyhow::Result<Prepared> {
    let Inputs { case, architecture, seed, .. } = inputs;
    network_torch::set_threads(case.threads);
    // With `auto`, libtorch would leave stem and blocks to the matrix-tile kernel on CPUs that support it.
    let settings = TrainerSettings { tower: TrainingKernel::Libtorch, ..inputs.settings.clone() };
    let network = Network::to_train(architecture, &settings, Device::Cpu, *seed)?;
    in_this_process(network_torch::Trainer::new(network, settings)?, inputs, String::new())
}

fn in_this_process(mut trainer: impl Trainer + 'static, inputs: &Inputs, details: String) -> anyhow::Result<Prepared> {
    let (examples, threads) = (inputs.examples.clone(), inputs.case.threads);
    let losses = (0..CHECKED_STEPS).map(|_| trainer.step(&examples)).collect::<Result<Vec<_>, _>>()?;
    let first_steps = FirstSteps::new(&losses, &trainer.published()?, inputs)?;
    let work = Work::of_size(move |_, time| {
        network_torch::set_threads(threads);
        rounds(time, || {
            trainer.step(&examples)?;
            Ok(1)
        })
    });
    Ok(Prepared { work, first_steps, details })
}
