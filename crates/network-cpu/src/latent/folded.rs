//! Reads a published MuZero network, or an AlphaZero network of returns, with batch norms folded into the preceding
//! convolutions.

use network::{ChanceLayers, DynamicsLayers, Error, LatentLayers, Layer, Reader};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use weights::Architecture;

use crate::folded::{Affine, Block, Dense, Normed, Source};

/// A MuZero network, or an AlphaZero network of returns.
#[derive(Debug, Clone)]
pub(crate) struct FoldedLatent {
    pub(crate) architecture: Architecture,
    /// n: values and rewards have 2n + 1 atoms.
    pub(crate) support: usize,
    pub(crate) representation: Trunk,
    pub(crate) policy: Head,
    pub(crate) value: Head,
    /// `None` in an AlphaZero network.
    pub(crate) dynamics: Option<Dynamics>,
    /// Stochastic MuZero only; the dynamics then take an afterstate and a one-hot chance code `[M]`.
    pub(crate) chance: Option<Chance>,
}

/// Layers of a step.
#[derive(Debug, Clone)]
pub(crate) struct Dynamics {
    pub(crate) transition: Transition,
    pub(crate) reward: Head,
}

/// Layers from a latent state and an action, or a chance code, to a latent state.
#[derive(Debug, Clone)]
pub(crate) struct Transition {
    /// One-hot actions `[A]` to planes `[4 · H · W]`, in a network for planes.
    pub(crate) action: Option<Dense>,
    /// From latent states followed by one-hot actions `[A]`, or by the planes of the action.
    pub(crate) trunk: Trunk,
}

/// Layers of Stochastic MuZero that a search needs.
#[derive(Debug, Clone)]
pub(crate) struct Chance {
    pub(crate) afterstate: Transition,
    pub(crate) value: Head,
    /// To logits of the chance codes `[M]`.
    pub(crate) code: Head,
}

/// Layers before the rescaling of a latent state.
#[derive(Debug, Clone)]
pub(crate) enum Trunk {
    /// Trunk of a network for vectors.
    Dense { input: Normed, blocks: Vec<[Normed; 2]> },
    /// Trunk of a network for planes.
    Residual { stem: Affine, blocks: Vec<Block> },
}

/// Layers from a latent state to logits.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) features: Features,
    /// Features or hidden units to logits: `[A]` for a policy, `[2n + 1]` for a number, `[M]` for the chance codes.
    pub(crate) output: Dense,
}

/// Layers of a head before the logits.
#[derive(Debug, Clone)]
pub(crate) enum Features {
    /// Hidden units of a network for vectors.
    Dense(Normed),
    /// Layers of a network for planes.
    Residual {
        /// To 32 channels.
        convolution: Affine,
        /// Features `[cells, 32]` to hidden units `[64]`, in any head but the policy.
        hidden: Option<Dense>,
    },
}

impl FoldedLatent {
    /// Reads a published version.
    ///
    /// # Errors
    /// Fails unless the file holds exactly the tensors of `architecture`, finite and of the right shape; the error
    /// names the tensor.
    pub(crate) fn from_safetensors(architecture: &Architecture, bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes)?;
        let folded = Self::build(architecture, &mut Source::File(&mut reader))?;
        reader.finish()?;
        Ok(folded)
    }

    /// Creates a network with random weights, for checks; activations stay of the order of one.
    ///
    /// # Errors
    /// [`Error::Architecture`] for a size that is out of range, [`Error::Model`] for another model.
    pub(crate) fn random(architecture: &Architecture, seed: u64) -> Result<Self, Error> {
        Self::build(architecture, &mut Source::Random(Box::new(ChaCha8Rng::seed_from_u64(seed))))
    }

    fn build(architecture: &Architecture, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        let LatentLayers { representation, policy, value, dynamics, chance } = LatentLayers::new(architecture)?;
        let Some(support) = architecture.model.support() else { return Err(Error::Model { expected: "muzero" }) };
        Ok(Self {
            architecture: architecture.clone(),
            support,
            representation: Trunk::build(&representation, source)?,
            policy: Head::build(&policy, source)?,
            value: Head::build(&value, source)?,
            dynamics: dynamics.map(|layers| Dynamics::build(&layers, source)).transpose()?,
            chance: chance.map(|layers| Chance::build(&layers, source)).transpose()?,
        })
    }
}

impl Dynamics {
    fn build(layers: &DynamicsLayers, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        Ok(Self {
            transition: Transition::build(&layers.transition, source)?,
            reward: Head::build(&layers.reward, source)?,
        })
    }
}

impl Transition {
    fn build(layers: &network::Transition, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        Ok(Self {
            action: layers.action.as_ref().map(|layer| source.dense(layer)).transpose()?,
            trunk: Trunk::build(&layers.trunk, source)?,
        })
    }
}

impl Chance {
    fn build(layers: &ChanceLayers, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        let chance = Self {
            afterstate: Transition::build(&layers.afterstate, source)?,
            value: Head::build(&layers.value, source)?,
            code: Head::build(&layers.code, source)?,
        };
        // The file also holds the encoder, which only training uses.
        Trunk::build(&layers.encoder, source)?;
        Head::build(&layers.encoding, source)?;
        Ok(chance)
    }
}

impl Trunk {
    fn build(trunk: &network::Trunk, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        Ok(match trunk {
            network::Trunk::Dense { input, blocks } => {
                let mut block = |[first, second]: &[Layer; 2]| Ok([source.normed(first)?, source.normed(second)?]);
                let blocks = blocks.iter().map(&mut block).collect::<Result<_, Error>>()?;
                Self::Dense { input: source.normed(input)?, blocks }
            }
            network::Trunk::Residual { stem, blocks } => Self::Residual {
                stem: source.convolution(stem)?,
                blocks: blocks.iter().map(|block| Block::new(block, source)).collect::<Result<_, _>>()?,
            },
        })
    }

    /// Returns the first layer and the blocks in a network for vectors.
    pub(crate) fn dense(&self) -> (&Normed, &[[Normed; 2]]) {
        let Self::Dense { input, blocks } = self else { unreachable!("a network for vectors has dense trunks") };
        (input, blocks)
    }
}

impl Head {
    fn build(head: &network::Head, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        let network::Head { convolution, hidden, output } = head;
        let features = match (convolution, hidden) {
            (Some(convolution), hidden) => Features::Residual {
                convolution: source.convolution(convolution)?,
                hidden: hidden.as_ref().map(|layer| source.dense(layer)).transpose()?,
            },
            (None, Some(hidden)) => Features::Dense(source.normed(hidden)?),
            (None, None) => unreachable!("a head has layers before the logits"),
        };
        Ok(Self { features, output: source.dense(output)? })
    }

    /// Returns the convolution in a network for planes.
    pub(crate) fn convolution(&self) -> &Affine {
        match &self.features {
            Features::Residual { convolution, .. } => convolution,
            Features::Dense(_) => unreachable!("a head of a network for planes begins with a convolution"),
        }
    }
}
