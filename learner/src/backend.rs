//! Chooses the training backend for a device: libtorch, or the CPU kernels, which do not need libtorch.

use anyhow::Context as _;
use training::{Precision, TrainerSettings};
use weights::Architecture;

use crate::device::Device;
use crate::trainer::Trainer;
#[cfg(feature = "torch")]
use run_file::learner::libtorch::Cpu;

/// The device and precision selected for training.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) device: Device,
    pub(crate) precision: Precision,
    /// True if layers that lose too much accuracy in this precision are switched to float32.
    pub(crate) is_adaptive: bool,
    /// Device and precision with the reasons for the choice, for the log.
    pub(crate) description: String,
}

/// A trainer, with a description of the backend for the log.
pub(crate) struct Backend {
    pub(crate) trainer: Box<dyn Trainer>,
    pub(crate) description: String,
}

impl Backend {
    /// Creates the trainer of a new network. On a CPU, the CPU kernels train, unless
    /// [`why_on_cpu`](run_file::learner::libtorch::why_on_cpu) gives a reason for libtorch and this program includes
    /// libtorch. `threads` is the number of CPU threads; 0 means one.
    ///
    /// # Errors
    /// A setting is out of range, the program does not support a setting, or the device fails.
    pub(crate) fn new(
        architecture: &Architecture,
        settings: TrainerSettings,
        device: Device,
        threads: usize,
        seed: u64,
    ) -> anyhow::Result<Self> {
        #[cfg(feature = "torch")]
        if let Some(reason) = why_libtorch(&settings, device, Cpu::this()) {
            return Self::libtorch(architecture, settings, device, seed, &reason);
        }
        debug_assert_eq!(device, Device::Cpu, "the kernels compute on the CPU");
        let threads = threads.max(1);
        let trainer =
            training_cpu::Trainer::new(architecture, settings, seed, threads).context("create the CPU trainer")?;
        let description = format!("CPU kernels ({}, threads: {threads})", trainer.path());
        Ok(Self { trainer: Box::new(trainer), description })
    }

    #[cfg(feature = "torch")]
    fn libtorch(
        architecture: &Architecture,
        settings: TrainerSettings,
        device: Device,
        seed: u64,
        reason: &str,
    ) -> anyhow::Result<Self> {
        let network =
            network_torch::Network::to_train(architecture, &settings, device, seed).context("create the network")?;
        let trainer = network_torch::Trainer::new(network, settings).context("create the trainer")?;
        Ok(Self { trainer: Box::new(trainer), description: format!("libtorch ({reason})") })
    }
}

/// Returns the reason to train with libtorch on `device`; `None` if the CPU kernels train. `cpu` describes this
/// machine.
#[cfg(feature = "torch")]
fn why_libtorch(settings: &TrainerSettings, device: Device, cpu: Cpu) -> Option<String> {
    if device != Device::Cpu {
        return Some(format!("the device is {}", crate::device::device_name(device)));
    }
    run_file::learner::libtorch::why_on_cpu(settings, cpu).map(|reason| reason.to_string())
}

#[cfg(test)]
mod tests {
    use training_cpu::Path;
    use weights::Model;

    use super::*;
    use crate::trainer::conformance::architecture;

    fn made(model: Model, settings: TrainerSettings) -> anyhow::Result<String> {
        Backend::new(&architecture(model), settings, Device::Cpu, 2, 1).map(|made| made.description)
    }

    #[cfg(feature = "torch")]
    #[test]
    fn an_accelerator_trains_with_libtorch_and_a_cpu_with_the_kernels_unless_there_is_a_reason() {
        let settings = TrainerSettings::default;
        let cpu = Cpu { path: Path::Avx2, has_bf16: false };
        assert_eq!(why_libtorch(&settings(), Device::Cpu, cpu), None);
        let bf16 = TrainerSettings { precision: Precision::Bf16, ..settings() };
        for (settings, device, reason) in
            [(settings(), Device::Cuda(1), "cuda:1"), (bf16, Device::Cpu, "learner.precision")]
        {
            let why = why_libtorch(&settings, device, cpu).unwrap();
            assert!(why.contains(reason), "{why}");
        }
    }

    #[cfg(feature = "torch")]
    #[test]
    fn a_backend_of_either_kind_is_made_and_described_for_every_model() {
        for model in [
            Model::Alphazero,
            Model::AlphazeroReturns { support: 5 },
            Model::Muzero { support: 5 },
            Model::StochasticMuzero { support: 5, codes: 3 },
        ] {
            let settings = TrainerSettings { tower: training::TrainingKernel::Libtorch, ..TrainerSettings::default() };
            assert!(made(model, settings).unwrap().starts_with("libtorch"));
            let kernels = made(model, TrainerSettings::default()).unwrap();
            assert_eq!(kernels.contains("threads: 2"), Path::widest() != Path::Portable, "{kernels}");
        }
    }

    #[cfg(not(feature = "torch"))]
    #[test]
    fn without_libtorch_the_kernels_train_whatever_instructions_the_cpu_has() {
        let kernels = made(Model::Alphazero, TrainerSettings::default()).unwrap();
        assert!(kernels.contains(&format!("{}, threads: 2", Path::widest())), "{kernels}");
        made(Model::Muzero { support: 5 }, TrainerSettings::default()).unwrap();
    }
}
