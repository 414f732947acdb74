use bytes::Bytes;
use inference::Evaluator;
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
