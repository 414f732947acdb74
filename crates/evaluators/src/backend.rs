use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use inference::Evaluator;
use network_cpu::{ChosenVariant, Kernel};
use weights::Manifest;

/// Builds evaluators of a weights version, one for each thread.
pub trait Backend: Send + Sync {
    /// Names the engine that evaluates, once it is known: `cpu avx512-f32`.
    fn describe(&self) -> String;

    /// Builds the evaluator of one thread.
    ///
    /// # Errors
    /// Weights that are not of the network their manifest names, or that the engine does not take; a device that fails.
    fn build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn Evaluator>, Error>;

    /// Limits the batches in flight on a device that the threads share; no effect where each thread computes by itself.
    fn set_in_flight(&self, _depth: usize) {}
}

/// A function that builds evaluators, for tests.
impl<F> Backend for F
where
    F: Fn(&Manifest, &Bytes) -> Result<Box<dyn Evaluator>, Error> + Send + Sync,
{
    fn describe(&self) -> String {
        "a function".to_owned()
    }

    fn build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn Evaluator>, Error> {
        self(manifest, bytes)
    }
}

/// The reason why no evaluator could be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The CPU kernel refused the weights, or does not take the network.
    #[error(transparent)]
    Kernel(#[from] network_cpu::Error),
    /// The CPU kernel does not take the network, and this build has no other engine.
    #[error("{source}; libtorch may take the network, and this build lacks it: {remedy}")]
    NeedsLibtorch {
        /// The kernel's reason for not taking the network.
        source: network_cpu::Error,
        /// The way to get a build that has libtorch.
        remedy: &'static str,
    },
    /// libtorch refused the weights, or its device failed.
    #[cfg(feature = "torch")]
    #[error(transparent)]
    Libtorch(#[from] network_torch::Error),
    /// A backend of another crate failed.
    #[error("{0}")]
    Other(String),
}

/// The CPU kernel as a backend.
pub(crate) struct Cpu {
    kernel: Kernel,
    /// The way to get a build that takes the networks that the kernel does not; `None` if this build does.
    remedy: Option<&'static str>,
    /// The variant that was logged last: it is known with the first weights and may change with others.
    announced: Mutex<Option<ChosenVariant>>,
}

impl Cpu {
    pub(crate) fn new(kernel: Kernel, remedy: Option<&'static str>) -> Self {
        Self { kernel, remedy, announced: Mutex::default() }
    }

    fn announce(&self) {
        let chosen = self.kernel.chosen();
        let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        if *announced != chosen {
            let reason = chosen.as_ref().map_or("", |chosen| &chosen.reason);
            tracing::info!(evaluator = self.describe(), reason, "the weights are ready to use");
            *announced = chosen;
        }
    }
}

impl Backend for Cpu {
    fn describe(&self) -> String {
        match self.kernel.chosen() {
            // Without the reason, which may name numbers of one version: this is a label of a metric.
            Some(chosen) => format!("cpu {}", chosen.path),
            None => "cpu".to_owned(),
        }
    }

    fn build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn Evaluator>, Error> {
        match (self.kernel.evaluator(manifest, bytes), self.remedy) {
            (Ok(evaluator), _) => {
                self.announce();
                Ok(Box::new(evaluator))
            }
            (Err(source), Some(remedy)) if source.is_of_the_kernel() => Err(Error::NeedsLibtorch { source, remedy }),
            (Err(error), _) => Err(error.into()),
        }
    }
}

#[cfg(feature = "torch")]
impl Backend for network_torch::Libtorch {
    fn describe(&self) -> String {
        Self::describe(self)
    }

    fn build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn Evaluator>, Error> {
        Ok(Box::new(self.evaluator(manifest, bytes)?))
    }

    fn set_in_flight(&self, depth: usize) {
        Self::set_in_flight(self, depth);
    }
}
