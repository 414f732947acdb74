//! The choice of the backend that trains on a device: the kernels of the CPU, which need no libtorch, or libtorch.

use std::num::NonZeroUsize;

use anyhow::Context as _;
use network_torch::{Device, Network};
use training::{TrainerSettings, TrainingKernel};
use training_cpu::Path;
use weights::Architecture;

use crate::trainer::Trainer;

/// A trainer and what it computes with, for the log.
pub(crate) struct Backend {
    pub(crate) trainer: Box<dyn Trainer>,
    pub(crate) description: String,
}

impl Backend {
    /// Makes the trainer of a new network. On a CPU it is that of the kernels, unless libtorch is configured or they
    /// lack something; `threads` 0 is the number of cores.
    ///
    /// # Errors
    /// Settings out of range, a device that fails.
    pub(crate) fn new(
        architecture: &Architecture,
        settings: TrainerSettings,
        device: Device,
        threads: usize,
        seed: u64,
    ) -> anyhow::Result<Self> {
        match why_libtorch(&settings, device, Path::widest()) {
            None => {
                let threads = match threads {
                    0 => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
                    _ => threads,
                };
                let trainer = training_cpu::Trainer::new(architecture, settings, seed, threads)
                    .context("make the trainer of the CPU")?;
                let description = format!("the kernels of the CPU ({}, threads: {threads})", trainer.path());
                Ok(Self { trainer: Box::new(trainer), description })
            }
            Some(reason) => {
                let network = Network::to_train(architecture, &settings, device, seed).context("make the network")?;
                let trainer = network_torch::Trainer::new(network, settings).context("make the trainer")?;
                let description = if trainer.trains_by_hand() {
                    "libtorch, with the kernel on matrix tiles for stem and blocks".to_owned()
                } else {
                    format!("libtorch ({reason})")
                };
                Ok(Self { trainer: Box::new(trainer), description })
            }
        }
    }
}

/// The reason why libtorch trains on `device`, of which `path` is the widest; `None` if the kernels of the CPU do.
fn why_libtorch(settings: &TrainerSettings, device: Device, path: Path) -> Option<String> {
    if device != Device::Cpu {
        return Some(format!("the device is {}", network_torch::device_name(device)));
    }
    if settings.tower == TrainingKernel::Libtorch {
        return Some("learner.kernel = \"libtorch\"".to_owned());
    }
    if path == Path::Portable {
        return Some("the CPU has neither AVX2 with FMA nor AVX-512".to_owned());
    }
    training_cpu::Trainer::check(settings).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use training::Precision;
    use weights::Model;

    use super::*;
    use crate::trainer::conformance::architecture;

    #[test]
    fn the_kernels_train_on_a_cpu_what_they_support_and_libtorch_trains_the_rest_with_the_reason() {
        let settings = TrainerSettings::default;
        assert_eq!(why_libtorch(&settings(), Device::Cpu, Path::Avx2), None);
        let bf16 = TrainerSettings { precision: Precision::Bf16, ..settings() };
        let libtorch = TrainerSettings { tower: TrainingKernel::Libtorch, ..settings() };
        for (settings, device, path, reason) in [
            (settings(), Device::Cuda(1), Path::Avx2, "cuda:1"),
            (libtorch, Device::Cpu, Path::Avx2, "learner.kernel"),
            (bf16, Device::Cpu, Path::Avx2, "precision"),
            (settings(), Device::Cpu, Path::Portable, "AVX2"),
        ] {
            let why = why_libtorch(&settings, device, path).unwrap();
            assert!(why.contains(reason), "{why}");
        }
    }

    #[test]
    fn a_backend_of_either_kind_is_made_and_described_for_every_model() {
        for model in [
            Model::Alphazero,
            Model::AlphazeroReturns { support: 5 },
            Model::muzero(5),
            Model::StochasticMuzero { support: 5, codes: 3 },
        ] {
            let make = |settings| Backend::new(&architecture(model), settings, Device::Cpu, 2, 1).unwrap();
            let libtorch = TrainerSettings { tower: TrainingKernel::Libtorch, ..TrainerSettings::default() };
            assert!(make(libtorch).description.starts_with("libtorch"));
            let kernels = make(TrainerSettings::default()).description;
            assert_eq!(kernels.contains("threads: 2"), Path::widest() != Path::Portable, "{kernels}");
        }
    }
}
