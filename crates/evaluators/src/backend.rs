use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use inference::{EngineCounts, Evaluator, LatentModel, ReturnEvaluator};
use network_cpu::{ChosenVariant, Kernel};
use weights::{Manifest, Model};

use crate::Network;

/// Builds the evaluators and learned models of a weights version, one per thread.
pub trait Backend: Send + Sync {
    /// Returns the name of the chosen engine, which is more precise after the first build: `cpu avx512-f32`.
    fn describe(&self) -> String;

    /// Builds the evaluator of one thread from AlphaZero weights, which predict either outcomes or returns.
    ///
    /// # Errors
    /// The weights do not match the network in the manifest, the engine does not support the network, or the device
    /// failed.
    fn build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn Evaluator>, Error>;

    /// Builds the learned model of one thread from MuZero weights, with an empty pool of latent states.
    ///
    /// # Errors
    /// Same as [`build`](Self::build), and [`Error::NoLatentModel`] if the engine computes no MuZero networks.
    fn build_latent(&self, _manifest: &Manifest, _bytes: &Bytes) -> Result<Box<dyn LatentModel>, Error> {
        Err(Error::NoLatentModel { engine: self.describe() })
    }

    /// Builds the network of one thread with [`build`](Self::build) or [`build_latent`](Self::build_latent), depending
    /// on the architecture in the manifest.
    ///
    /// # Errors
    /// Same as the called function.
    fn build_network(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Network, Error> {
        match manifest.architecture.model.has_dynamics() {
            true => self.build_latent(manifest, bytes).map(Network::Latent),
            false => self.build(manifest, bytes).map(Network::Evaluator),
        }
    }

    /// Returns true if one of the engines is an accelerator, which needs large batches to be fast.
    fn is_accelerated(&self) -> bool {
        false
    }

    /// Builds the evaluator like [`build`](Self::build), or returns `None` while another thread prepares the same
    /// weights for all threads, so that the caller can continue with earlier weights.
    ///
    /// # Errors
    /// Same as [`build`](Self::build).
    fn try_build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Option<Box<dyn Evaluator>>, Error> {
        self.build(manifest, bytes).map(Some)
    }

    /// Builds the network like [`build_network`](Self::build_network), or returns `None` while another thread prepares
    /// the same weights for all threads. A MuZero network is built in every call.
    ///
    /// # Errors
    /// Same as [`build_network`](Self::build_network).
    fn try_build_network(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Option<Network>, Error> {
        match manifest.architecture.model.has_dynamics() {
            true => self.build_network(manifest, bytes).map(Some),
            false => Ok(self.try_build(manifest, bytes)?.map(Network::Evaluator)),
        }
    }

    /// Limits the batches in flight on a shared device to `_depth`. This has no effect if each thread computes
    /// separately.
    fn set_in_flight(&self, _depth: usize) {}

    /// Returns the counters of the engine that merges the requests of all threads; `None` if each thread computes
    /// separately.
    fn engine_counts(&self) -> Option<EngineCounts> {
        None
    }

    /// Returns the reason why a CUDA device evaluates without graphs, empty if graphs are used; `None` without such a
    /// device.
    fn graphs(&self) -> Option<String> {
        None
    }

    /// Returns the product name of the accelerator, on which speeds depend; `None` without an accelerator or name.
    fn model(&self) -> Option<String> {
        None
    }
}

/// Makes a function that builds evaluators a backend, for tests.
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

/// The error of a failed [`Backend::build`] or [`Backend::build_latent`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The CPU kernel rejected the weights, or does not support the network.
    #[error(transparent)]
    Kernel(#[from] network_cpu::Error),
    /// The CPU kernel does not support the network, and this build has no other engine.
    #[error("{source}; libtorch may support the network, but this build lacks libtorch: {remedy}")]
    NeedsLibtorch {
        /// The kernel's reason to reject the network.
        source: network_cpu::Error,
        /// Instructions for getting a build with libtorch.
        remedy: &'static str,
    },
    /// libtorch rejected the weights, or the device failed.
    #[cfg(feature = "torch")]
    #[error(transparent)]
    Libtorch(#[from] network_torch::Error),
    /// The engine computes no MuZero networks, and so no AlphaZero networks of returns, which are part of a MuZero
    /// network.
    #[error("{engine} does not support MuZero networks")]
    NoLatentModel {
        /// Name of the engine, as [`Backend::describe`] returns it.
        engine: String,
    },
    /// A backend of another crate failed, with the reason.
    #[error("{0}")]
    Other(String),
}

/// Returns true for an AlphaZero network of returns. Such a network is evaluated as the prediction part of a learned
/// model.
fn predicts_returns(manifest: &Manifest) -> bool {
    matches!(manifest.architecture.model, Model::AlphazeroReturns { .. })
}

/// The CPU kernel as a backend.
pub(crate) struct Cpu {
    kernel: Kernel,
    /// Instructions for getting a build with libtorch, for networks that the kernel rejects; `None` if this build has
    /// libtorch.
    remedy: Option<&'static str>,
    /// The last logged variant. The first weights determine the variant, and later weights may change it.
    announced: Mutex<Option<ChosenVariant>>,
}

impl Cpu {
    pub(crate) fn new(kernel: Kernel, remedy: Option<&'static str>) -> Self {
        Self { kernel, remedy, announced: Mutex::default() }
    }

    /// Returns the variant for the latest AlphaZero weights, or else for the latest MuZero weights; `None` before the
    /// first build.
    fn chosen(&self) -> Option<ChosenVariant> {
        self.kernel.chosen().or_else(|| self.kernel.chosen_latent())
    }

    /// Adds the remedy to an error if another engine may support the network.
    fn explained(&self, error: network_cpu::Error) -> Error {
        match self.remedy {
            Some(remedy) if error.is_of_the_kernel() => Error::NeedsLibtorch { source: error, remedy },
            _ => error.into(),
        }
    }

    fn announce(&self) {
        let chosen = self.chosen();
        let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        if *announced != chosen {
            let reason = chosen.as_ref().map_or("", |chosen| &chosen.reason);
            tracing::info!(evaluator = self.describe(), reason, "weights ready");
            *announced = chosen;
        }
    }
}

impl Backend for Cpu {
    fn describe(&self) -> String {
        match self.chosen() {
            // The reason is omitted: it may contain numbers of one version, and this text is the label of a metric.
            Some(chosen) => format!("cpu {}", chosen.path),
            None => "cpu".to_owned(),
        }
    }

    fn build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn Evaluator>, Error> {
        if predicts_returns(manifest) {
            return Ok(Box::new(ReturnEvaluator::new(self.build_latent(manifest, bytes)?)));
        }
        let evaluator = self.kernel.evaluator(manifest, bytes).map_err(|error| self.explained(error))?;
        self.announce();
        Ok(Box::new(evaluator))
    }

    fn build_latent(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn LatentModel>, Error> {
        let model = self.kernel.latent_evaluator(manifest, bytes).map_err(|error| self.explained(error))?;
        self.announce();
        Ok(Box::new(model))
    }
}

#[cfg(feature = "torch")]
impl Backend for network_torch::Libtorch {
    fn describe(&self) -> String {
        Self::describe(self)
    }

    fn build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn Evaluator>, Error> {
        if predicts_returns(manifest) {
            return Ok(Box::new(ReturnEvaluator::new(self.build_latent(manifest, bytes)?)));
        }
        Ok(self.evaluator(manifest, bytes)?)
    }

    fn build_latent(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn LatentModel>, Error> {
        Ok(self.latent_model(manifest, bytes)?)
    }

    fn try_build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Option<Box<dyn Evaluator>>, Error> {
        if predicts_returns(manifest) {
            return self.build(manifest, bytes).map(Some);
        }
        Ok(self.try_evaluator(manifest, bytes)?)
    }

    fn set_in_flight(&self, depth: usize) {
        Self::set_in_flight(self, depth);
    }

    fn engine_counts(&self) -> Option<EngineCounts> {
        self.counts()
    }

    fn graphs(&self) -> Option<String> {
        Self::graphs(self)
    }

    fn model(&self) -> Option<String> {
        Self::model(self)
    }
}
