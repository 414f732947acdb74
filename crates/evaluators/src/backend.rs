use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use inference::{EngineCounts, Evaluator, LatentModel, ReturnEvaluator};
use network_cpu::{ChosenVariant, Kernel};
use weights::{Manifest, Model};

use crate::Network;

/// Builds evaluators and learned models of a weights version, one for each thread.
pub trait Backend: Send + Sync {
    /// Returns the name of the chosen engine, more precise after the first build: `cpu avx512-f32`.
    fn describe(&self) -> String;

    /// Builds the evaluator of one thread from the weights of an AlphaZero network, of either kind of values.
    ///
    /// # Errors
    /// Weights that do not match the network in their manifest, or that the engine does not support; a device that
    /// fails.
    fn build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn Evaluator>, Error>;

    /// Builds the learned model of one thread from the weights of a MuZero network. Its pool of latent states is empty.
    ///
    /// # Errors
    /// Same as [`build`](Self::build), and [`Error::NoLatentModel`] from an engine that computes no MuZero networks.
    fn build_latent(&self, _manifest: &Manifest, _bytes: &Bytes) -> Result<Box<dyn LatentModel>, Error> {
        Err(Error::NoLatentModel { engine: self.describe() })
    }

    /// Builds the network of one thread: with [`build`](Self::build) or [`build_latent`](Self::build_latent), as the
    /// architecture in the manifest requires.
    ///
    /// # Errors
    /// Those of the two functions.
    fn build_network(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Network, Error> {
        match manifest.architecture.model {
            Model::Alphazero | Model::AlphazeroReturns { .. } => self.build(manifest, bytes).map(Network::Evaluator),
            Model::Muzero { .. } | Model::StochasticMuzero { .. } => {
                self.build_latent(manifest, bytes).map(Network::Latent)
            }
        }
    }

    /// Returns true if an accelerator is among the engines, so that large batches pay.
    fn is_accelerated(&self) -> bool {
        false
    }

    /// Builds the evaluator as [`build`](Self::build) does, or returns `None` while another thread prepares the same
    /// weights for all, so that the caller can go on with earlier weights.
    ///
    /// # Errors
    /// Same as [`build`](Self::build).
    fn try_build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Option<Box<dyn Evaluator>>, Error> {
        self.build(manifest, bytes).map(Some)
    }

    /// Builds the network as [`build_network`](Self::build_network) does, or returns `None` while another thread
    /// prepares the same weights for all.
    ///
    /// # Errors
    /// Same as [`build_network`](Self::build_network).
    fn try_build_network(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Option<Network>, Error> {
        match manifest.architecture.model {
            Model::Alphazero | Model::AlphazeroReturns { .. } => {
                Ok(self.try_build(manifest, bytes)?.map(Network::Evaluator))
            }
            Model::Muzero { .. } | Model::StochasticMuzero { .. } => {
                self.build_latent(manifest, bytes).map(|model| Some(Network::Latent(model)))
            }
        }
    }

    /// Limits the batches in flight on a device that the threads share; no effect where each thread computes by itself.
    fn set_in_flight(&self, _depth: usize) {}

    /// Returns the counters of the engine that merges the requests of all threads; `None` where each thread computes by
    /// itself.
    fn engine_counts(&self) -> Option<EngineCounts> {
        None
    }

    /// Returns the name of the model of an accelerator, which determines its speed; `None` without one.
    fn model(&self) -> Option<String> {
        None
    }
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

/// The error of a failed [`Backend::build`] or [`Backend::build_latent`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The CPU kernel rejected the weights, or does not support the network.
    #[error(transparent)]
    Kernel(#[from] network_cpu::Error),
    /// The CPU kernel does not support the network, and this build has no other engine.
    #[error("{source}; libtorch may take the network, and this build lacks it: {remedy}")]
    NeedsLibtorch {
        /// The reason why the kernel does not support the network.
        source: network_cpu::Error,
        /// Instructions for getting a build with libtorch.
        remedy: &'static str,
    },
    /// libtorch rejected the weights, or its device failed.
    #[cfg(feature = "torch")]
    #[error(transparent)]
    Libtorch(#[from] network_torch::Error),
    /// The engine computes no MuZero networks, nor AlphaZero networks of returns, which are a part of these.
    #[error("{engine} does not compute MuZero networks")]
    NoLatentModel {
        /// The name of the engine.
        engine: String,
    },
    /// A backend of another crate failed.
    #[error("{0}")]
    Other(String),
}

/// Returns true for an AlphaZero network of returns, which is evaluated as the prediction of a network of latent
/// states.
fn predicts_returns(manifest: &Manifest) -> bool {
    matches!(manifest.architecture.model, Model::AlphazeroReturns { .. })
}

/// The CPU kernel as a backend.
pub(crate) struct Cpu {
    kernel: Kernel,
    /// Instructions for getting a build that supports the networks that the kernel does not; `None` if this build does.
    remedy: Option<&'static str>,
    /// The variant that was logged last. It is determined by the first weights and may change with later ones.
    announced: Mutex<Option<ChosenVariant>>,
}

impl Cpu {
    pub(crate) fn new(kernel: Kernel, remedy: Option<&'static str>) -> Self {
        Self { kernel, remedy, announced: Mutex::default() }
    }

    /// The variant of the last weights, of either kind of network.
    fn chosen(&self) -> Option<ChosenVariant> {
        self.kernel.chosen().or_else(|| self.kernel.chosen_latent())
    }

    /// Adds the remedy to the error of a network that only another engine supports.
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
            tracing::info!(evaluator = self.describe(), reason, "the weights are ready to use");
            *announced = chosen;
        }
    }
}

impl Backend for Cpu {
    fn describe(&self) -> String {
        match self.chosen() {
            // The reason is omitted because it may contain numbers of one version, and this text is the label of a
            // metric.
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

    fn model(&self) -> Option<String> {
        Self::model(self)
    }
}
