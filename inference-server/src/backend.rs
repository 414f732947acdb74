//! From published weights to something that evaluates: an accelerator if one works, else the CPU kernel, else libtorch.

use std::time::Instant;

#[cfg(feature = "torch")]
use inference::DEPTH_MAX;
use inference::Evaluator;
use network_cpu::{Kernel, Precision, Preference};
use service::ConfigError;
use weights::Manifest;

use crate::config::InferenceSection;

/// Builds the evaluator of a weights version from its bytes.
type Build = Box<dyn Fn(&Manifest, &[u8]) -> anyhow::Result<Box<dyn Evaluator>> + Send + Sync>;

/// What evaluates in this process.
pub(crate) struct Backend {
    build: Build,
    /// How many threads it is asked from, unless told otherwise.
    threads: usize,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backend").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Backend {
    /// The one that a configuration asks for.
    ///
    /// # Errors
    /// [`ConfigError`] names the key that makes no sense, or that this build cannot do.
    pub(crate) fn choose(section: &InferenceSection) -> Result<Self, ConfigError> {
        let preference: Preference =
            section.kernel.parse().map_err(|reason: String| ConfigError::invalid("inference.kernel", reason))?;
        let coarsest = match section.precision.parse() {
            // Integers are calibrated on what was asked before: the same question would get another answer later.
            Ok(Precision::Int8) => Err("a server answers in auto, f32 or bf16".to_owned()),
            parsed => parsed,
        };
        let coarsest = coarsest.map_err(|reason: String| ConfigError::invalid("inference.precision", reason))?;
        Self::of_device(section, preference.kernel(coarsest, &mut Instant::now), preference)
    }

    /// One that tests bring.
    #[cfg(test)]
    pub(crate) fn of(
        threads: usize,
        build: impl Fn(&Manifest, &[u8]) -> anyhow::Result<Box<dyn Evaluator>> + Send + Sync + 'static,
    ) -> Self {
        Self { build: Box::new(build), threads }
    }

    /// In a build with libtorch.
    #[cfg(feature = "torch")]
    fn of_device(
        section: &InferenceSection,
        kernel: Option<Kernel>,
        preference: Preference,
    ) -> Result<Self, ConfigError> {
        /// While one batch is computed another one is brought.
        const ACCELERATOR_THREADS: usize = 2;
        let device =
            section.device.parse().map_err(|reason: String| ConfigError::invalid("inference.device", reason))?;
        let precision =
            section.precision.parse().map_err(|reason: String| ConfigError::invalid("inference.precision", reason))?;
        let libtorch = network_torch::Libtorch::new(device, precision, Instant::now);
        let threads = if libtorch.is_accelerated() { ACCELERATOR_THREADS } else { cores() };
        // Each thread has its batch in flight: on an accelerator in a slot, in which the next one waits for the device.
        let in_flight = if section.threads == 0 { threads } else { section.threads };
        libtorch.set_in_flight(in_flight.min(DEPTH_MAX));
        let Some(kernel) = kernel.filter(|_| !libtorch.is_accelerated()) else {
            let build: Build = Box::new(move |manifest, bytes| Ok(Box::new(libtorch.evaluator(manifest, bytes)?)));
            return Ok(Self { build, threads });
        };
        // Who names a path wants no other evaluator.
        let takes_over = preference == Preference::Auto;
        let build: Build = Box::new(move |manifest, bytes| match kernel.evaluator(manifest, bytes) {
            Ok(evaluator) => Ok(Box::new(evaluator)),
            Err(error) if takes_over && error.is_of_the_kernel() => {
                tracing::warn!(%error, "libtorch takes over");
                Ok(Box::new(libtorch.evaluator(manifest, bytes)?))
            }
            Err(error) => Err(error.into()),
        });
        Ok(Self { build, threads })
    }

    /// In a build without libtorch.
    #[cfg(not(feature = "torch"))]
    fn of_device(
        section: &InferenceSection,
        kernel: Option<Kernel>,
        _preference: Preference,
    ) -> Result<Self, ConfigError> {
        let without = "this inference server was built without libtorch; build it with --features torch";
        let device = section.device.as_str();
        if !matches!(device, "auto" | "cpu") {
            return Err(ConfigError::invalid("inference.device", format!("`{device}` cannot be had: {without}")));
        }
        let reason = || ConfigError::invalid("inference.kernel", format!("`libtorch` cannot be had: {without}"));
        let kernel = kernel.ok_or_else(reason)?;
        let build: Build = Box::new(move |manifest, bytes| Ok(Box::new(kernel.evaluator(manifest, bytes)?)));
        Ok(Self { build, threads: cores() })
    }

    /// How many threads should evaluate.
    pub(crate) fn threads(&self, section: &InferenceSection) -> usize {
        if section.threads == 0 { self.threads } else { section.threads }
    }

    /// An evaluator for each of `threads` threads.
    ///
    /// # Errors
    /// Weights that are not of the network their manifest names, or a device that refuses.
    pub(crate) fn evaluators(
        &self,
        manifest: &Manifest,
        bytes: &[u8],
        threads: usize,
    ) -> anyhow::Result<Vec<Box<dyn Evaluator>>> {
        (0..threads).map(|_| (self.build)(manifest, bytes)).collect()
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
