//! The evaluators of benchmarks: an accelerator if one works, else the CPU kernel, else libtorch.

use std::time::Instant;

use inference::{DevicePreference, Evaluator, PrecisionPreference};
use network_cpu::{Kernel, KernelPreference};
use network_torch::Libtorch;
use weights::Manifest;

/// Hands out evaluators, one per thread.
#[derive(Debug)]
pub struct Evaluators {
    libtorch: Libtorch,
    /// `None` where libtorch is to do everything.
    kernel: Option<Kernel>,
    /// True if libtorch may take the networks that the kernel does not take.
    takes_over: bool,
}

impl Evaluators {
    /// Chooses by preference.
    ///
    /// # Errors
    /// A named device that cannot be used.
    pub fn new(
        device: DevicePreference,
        precision: PrecisionPreference,
        kernel: KernelPreference,
    ) -> anyhow::Result<Self> {
        let libtorch = Libtorch::new(device, precision, Instant::now)?;
        // Who names a path wants no other evaluator.
        let takes_over = !matches!(kernel, KernelPreference::Only(_));
        let kernel = kernel.kernel(precision, &mut Instant::now);
        let kernel = kernel.filter(|_| !(takes_over && libtorch.is_accelerated()));
        Ok(Self { libtorch, kernel, takes_over })
    }

    /// An evaluator of a published version.
    ///
    /// # Errors
    /// Weights that are not of the network their manifest names, a path that is not there, or a device that refuses.
    pub fn evaluator(&self, manifest: &Manifest, bytes: &[u8]) -> anyhow::Result<Box<dyn Evaluator>> {
        let Some(kernel) = &self.kernel else { return self.libtorch(manifest, bytes) };
        match kernel.evaluator(manifest, bytes) {
            Ok(evaluator) => Ok(Box::new(evaluator)),
            Err(error) if error.is_of_the_kernel() && self.takes_over => {
                tracing::warn!(%error, "libtorch takes over");
                self.libtorch(manifest, bytes)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// libtorch on the same device, in the same precision.
    ///
    /// # Errors
    /// As [`evaluator`](Self::evaluator).
    pub fn libtorch(&self, manifest: &Manifest, bytes: &[u8]) -> anyhow::Result<Box<dyn Evaluator>> {
        Ok(Box::new(self.libtorch.evaluator(manifest, bytes)?))
    }

    /// Batches of libtorch that may be under way at once from now on; on a CPU each thread computes by itself.
    pub fn set_in_flight(&self, depth: usize) {
        self.libtorch.set_in_flight(depth);
    }

    /// The same; `None` on a CPU.
    #[must_use]
    pub fn in_flight(&self) -> Option<usize> {
        self.libtorch.in_flight()
    }

    /// For people: libtorch's device and precision, and why they were chosen.
    #[must_use]
    pub fn describe_libtorch(&self) -> String {
        self.libtorch.describe()
    }
}

#[cfg(test)]
mod tests {
    use game::{Action, ObservationShape};
    use inference::{Batch, Predictions};
    use network_cpu::KernelVariant;
    use network_torch::{Device, Network};
    use weights::{Architecture, Digest, WeightsVersion};

    use super::*;

    /// Untrained weights of a small network for tic-tac-toe.
    fn weights(channels: usize) -> (Manifest, Vec<u8>) {
        let architecture = Architecture {
            game: "tic_tac_toe".to_owned(),
            planes: 2,
            height: 3,
            width: 3,
            actions: 9,
            channels,
            blocks: 3,
            squeeze_excitation: 8,
            global_pooling: 4,
        };
        let bytes = Network::new(&architecture, Device::Cpu, 1).unwrap().to_safetensors().unwrap();
        let (digest, size_bytes) = (Digest::of(&bytes), bytes.len() as u64);
        (Manifest { version: WeightsVersion(1), training_step: 1, digest, size_bytes, architecture }, bytes)
    }

    fn evaluators(precision: PrecisionPreference, kernel: KernelPreference) -> Evaluators {
        Evaluators::new(DevicePreference::Cpu, precision, kernel).unwrap()
    }

    /// The answers to a few observations.
    fn answers(evaluators: &Evaluators) -> Vec<f32> {
        let mut batch = Batch::new(ObservationShape { planes: 2, height: 3, width: 3 });
        for position in 0..40 {
            let legal = [Action(0), Action(4), Action(8)];
            batch.push(&legal, |cells| {
                cells.iter_mut().enumerate().for_each(|(i, cell)| *cell = f32::from((i * i + position) % 5 < 2));
            });
        }
        let ((manifest, bytes), mut predictions) = (weights(16), Predictions::new());
        evaluators.evaluator(&manifest, &bytes).unwrap().evaluate(&batch, &mut predictions).unwrap();
        let numbers = |i| {
            let value = predictions.value(i);
            predictions.priors(i).iter().copied().chain([value.win, value.draw, value.loss]).collect::<Vec<_>>()
        };
        (0..batch.len()).flat_map(numbers).collect()
    }

    #[test]
    fn every_variant_of_the_cpu_kernel_answers_as_libtorch_does() {
        let libtorch = answers(&evaluators(PrecisionPreference::F32, KernelPreference::Libtorch));
        for variant in KernelVariant::ALL.into_iter().filter(|variant| variant.is_available()) {
            let (precision, tolerance) = match variant.is_bf16() {
                true => (PrecisionPreference::Bf16, 5e-3),
                false => (PrecisionPreference::F32, 1e-5),
            };
            let kernel = answers(&evaluators(precision, KernelPreference::Only(variant)));
            for (kernel, libtorch) in kernel.iter().zip(&libtorch) {
                assert!((kernel - libtorch).abs() <= tolerance, "{variant}: {kernel}, not {libtorch}");
            }
        }
    }

    #[test]
    fn libtorch_takes_over_what_the_cpu_kernel_does_not_take() {
        let (manifest, bytes) = weights(12);
        let of = |kernel| evaluators(PrecisionPreference::F32, kernel).evaluator(&manifest, &bytes);
        let evaluator = of(KernelPreference::Auto).unwrap();
        assert_eq!(&*evaluator.attributes().name, "libtorch cpu f32");
        let error = of(KernelPreference::Only(KernelVariant::PortableF32)).map(drop).unwrap_err().to_string();
        assert!(error.contains("the CPU kernel does not take channels of 12"), "{error}");
    }
}
