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
    /// Whether libtorch may take the networks that the kernel does not take.
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
