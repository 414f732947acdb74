use weights::Architecture;

use super::answers::Answers;
use super::dense::{self, DenseNetwork};
use super::folded::FoldedLatent;
use super::pool::Pool;
use super::residual::{self, Input, ResidualNetwork};
use crate::{Error, KernelVariant};

/// A MuZero weights version packed for one kernel variant; threads share it.
#[derive(Debug)]
pub struct LatentNetwork {
    architecture: Architecture,
    path: KernelVariant,
    support: usize,
    layers: Layers,
}

#[derive(Debug)]
enum Layers {
    Dense(Box<DenseNetwork>),
    Residual(Box<ResidualNetwork>),
}

/// Buffers of a thread.
#[derive(Debug)]
pub(crate) struct Workspace {
    layers: LayerBuffers,
    answers: Answers,
    /// Answers for afterstates, in a network with chance.
    of_afterstates: Option<Answers>,
}

#[derive(Debug)]
enum LayerBuffers {
    Dense(dense::Buffers),
    Residual(residual::Buffers),
}

impl LatentNetwork {
    /// Reads and packs a published version. An integer path is replaced by the floating-point
    /// [base](KernelVariant::base).
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an architecture that the kernel does not support, [`Error::Unavailable`] for a path
    /// that this machine lacks. [`Error::Network`] for another model, and for bytes that do not match the
    /// architecture exactly; it names the tensor.
    pub fn new(architecture: &Architecture, bytes: &[u8], path: KernelVariant) -> Result<Self, Error> {
        Error::check_latent(architecture)?;
        Self::from_folded(&FoldedLatent::from_safetensors(architecture, bytes)?, path)
    }

    /// Packs a network with random weights, for benchmarks.
    ///
    /// # Errors
    /// The same as [`new`](Self::new).
    pub fn random(architecture: &Architecture, seed: u64, path: KernelVariant) -> Result<Self, Error> {
        Error::check_latent(architecture)?;
        Self::from_folded(&FoldedLatent::random(architecture, seed)?, path)
    }

    pub(crate) fn from_folded(folded: &FoldedLatent, path: KernelVariant) -> Result<Self, Error> {
        let path = path.base();
        if !path.is_available() {
            let reason = "not supported by this CPU or system".to_owned();
            return Err(Error::Unavailable { path, reason });
        }
        let layers = match network::is_vector(&folded.architecture) {
            true => Layers::Dense(Box::new(DenseNetwork::new(folded, path))),
            false => Layers::Residual(Box::new(ResidualNetwork::new(folded, path))),
        };
        Ok(Self { architecture: folded.architecture.clone(), path, support: folded.support, layers })
    }

    /// Returns the shape of the network.
    #[must_use]
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// Returns the path that computes the network.
    #[must_use]
    pub fn path(&self) -> KernelVariant {
        self.path
    }

    fn state_lines(&self) -> usize {
        match &self.layers {
            Layers::Dense(network) => network.state_lines(),
            Layers::Residual(network) => network.state_lines(),
        }
    }

    /// Returns an empty pool.
    pub(crate) fn pool(&self) -> Pool {
        Pool::new(self.state_lines())
    }

    pub(crate) fn workspace(&self) -> Workspace {
        let (layers, [policy, scalar]) = match &self.layers {
            Layers::Dense(network) => (LayerBuffers::Dense(network.buffers()), network.padded_outputs()),
            Layers::Residual(network) => (LayerBuffers::Residual(network.buffers()), network.padded_outputs()),
        };
        let padded_chance = match &self.layers {
            Layers::Dense(network) => network.padded_chance(),
            Layers::Residual(network) => network.padded_chance(),
        };
        let answers = |policy, scalar| Answers::new(self.support, self.pass(), policy, scalar);
        let of_afterstates = padded_chance.map(|[codes, scalar]| answers(codes, scalar));
        Workspace { layers, answers: answers(policy, scalar), of_afterstates }
    }

    /// Returns the maximum observations or steps of a pass.
    pub(crate) fn pass(&self) -> usize {
        match &self.layers {
            Layers::Dense(network) => network.pass(),
            Layers::Residual(network) => network.pass(),
        }
    }

    /// Computes the next states of an input, at most one [pass](Self::pass), with the predictions. The policy of
    /// afterstates is over chance codes.
    pub(crate) fn compute<'a>(&self, workspace: &'a mut Workspace, input: Input<'_>, pool: &mut Pool) -> &'a Answers {
        let Workspace { layers, answers, of_afterstates } = workspace;
        let answers = match input {
            Input::Acts(_) => of_afterstates.as_mut().expect("a network with afterstates"),
            Input::Observations(..) | Input::Steps(_) => answers,
        };
        match (&self.layers, layers) {
            (Layers::Dense(network), LayerBuffers::Dense(buffers)) => network.compute(buffers, input, pool, answers),
            (Layers::Residual(network), LayerBuffers::Residual(buffers)) => {
                network.compute(buffers, input, pool, answers);
            }
            _ => unreachable!("the workspace belongs to another network"),
        }
        answers
    }
}
