//! Reads a published MuZero network, or an AlphaZero network of returns, with batch norms folded into the preceding
//! convolutions.

use network::{ChanceLayers, DynamicsLayers, Error, Head, LatentLayers, Layer, Reader, Trunk, is_vector};
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
    pub(crate) layers: FoldedLayers,
}

/// Layers of either kind of network.
#[derive(Debug, Clone)]
pub(crate) enum FoldedLayers {
    Dense(DenseLayers),
    Residual(ResidualLayers),
}

/// Layers of a network for vectors.
#[derive(Debug, Clone)]
pub(crate) struct DenseLayers {
    pub(crate) representation: DenseTrunk,
    pub(crate) policy: DenseHead,
    pub(crate) value: DenseHead,
    /// `None` in an AlphaZero network.
    pub(crate) dynamics: Option<Box<DenseDynamics>>,
    /// Stochastic MuZero only; the dynamics then take an afterstate and a one-hot chance code `[M]`.
    pub(crate) chance: Option<Box<DenseChance>>,
}

/// Layers of a step.
#[derive(Debug, Clone)]
pub(crate) struct DenseDynamics {
    /// From latent states `[H]` followed by one-hot actions `[A]`.
    pub(crate) trunk: DenseTrunk,
    pub(crate) reward: DenseHead,
}

/// Layers of Stochastic MuZero that a search needs.
#[derive(Debug, Clone)]
pub(crate) struct DenseChance {
    /// From latent states `[H]` followed by one-hot actions `[A]`.
    pub(crate) afterstate: DenseTrunk,
    pub(crate) value: DenseHead,
    /// To logits of the chance codes `[M]`.
    pub(crate) code: DenseHead,
}

/// Dense layers before the rescaling of a latent state.
#[derive(Debug, Clone)]
pub(crate) struct DenseTrunk {
    pub(crate) input: Normed,
    pub(crate) blocks: Vec<[Normed; 2]>,
}

/// Head of a network for vectors.
#[derive(Debug, Clone)]
pub(crate) struct DenseHead {
    pub(crate) hidden: Normed,
    pub(crate) output: Dense,
}

/// Layers of a network for planes.
#[derive(Debug, Clone)]
pub(crate) struct ResidualLayers {
    pub(crate) representation: ResidualTrunk,
    /// To 32 channels.
    pub(crate) policy: Affine,
    /// Features `[cells, 32]` to logits `[A]`.
    pub(crate) policy_output: Dense,
    pub(crate) value: ResidualHead,
    /// `None` in an AlphaZero network.
    pub(crate) dynamics: Option<Box<ResidualDynamics>>,
    /// Stochastic MuZero only; the dynamics then take an afterstate and a one-hot chance code `[M]`.
    pub(crate) chance: Option<Box<ResidualChance>>,
}

/// Layers of a step.
#[derive(Debug, Clone)]
pub(crate) struct ResidualDynamics {
    /// One-hot actions `[A]` to planes `[4 · H · W]`.
    pub(crate) action: Dense,
    /// From latent states `[C, H, W]` followed by the planes of the action.
    pub(crate) trunk: ResidualTrunk,
    pub(crate) reward: ResidualHead,
}

/// Layers of Stochastic MuZero that a search needs.
#[derive(Debug, Clone)]
pub(crate) struct ResidualChance {
    /// One-hot actions `[A]` to planes `[4 · H · W]`.
    pub(crate) action: Dense,
    /// From latent states `[C, H, W]` followed by the planes of the action.
    pub(crate) afterstate: ResidualTrunk,
    pub(crate) value: ResidualHead,
    /// To logits of the chance codes `[M]`.
    pub(crate) code: ResidualHead,
}

/// Convolutions before the rescaling of a latent state.
#[derive(Debug, Clone)]
pub(crate) struct ResidualTrunk {
    pub(crate) stem: Affine,
    pub(crate) blocks: Vec<Block>,
}

/// Head with hidden units in a network for planes: any head but the policy.
#[derive(Debug, Clone)]
pub(crate) struct ResidualHead {
    /// To 32 channels.
    pub(crate) convolution: Affine,
    /// Features `[cells, 32]` to hidden units `[64]`.
    pub(crate) hidden: Dense,
    /// Hidden units to logits: `[2n + 1]` of a number, `[M]` of the chance codes.
    pub(crate) output: Dense,
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
        let layers = LatentLayers::new(architecture)?;
        let Some(support) = architecture.model.support() else { return Err(Error::Model { expected: "muzero" }) };
        let folded = match is_vector(architecture) {
            false => FoldedLayers::Residual(ResidualLayers::build(&layers, source)?),
            true => FoldedLayers::Dense(DenseLayers::build(&layers, source)?),
        };
        Ok(Self { architecture: architecture.clone(), support, layers: folded })
    }
}

impl DenseLayers {
    fn build(layers: &LatentLayers, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        let LatentLayers { representation, policy, value, dynamics, chance } = layers;
        Ok(Self {
            representation: DenseTrunk::build(representation, source)?,
            policy: DenseHead::build(policy, source)?,
            value: DenseHead::build(value, source)?,
            dynamics: match dynamics {
                Some(DynamicsLayers { trunk, reward, .. }) => Some(Box::new(DenseDynamics {
                    trunk: DenseTrunk::build(trunk, source)?,
                    reward: DenseHead::build(reward, source)?,
                })),
                None => None,
            },
            chance: chance.as_ref().map(|chance| DenseChance::build(chance, source).map(Box::new)).transpose()?,
        })
    }
}

impl DenseTrunk {
    fn build(trunk: &Trunk, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        let Trunk::Dense { input, blocks } = trunk else { unreachable!("a network of vectors has dense trunks") };
        let mut block = |[first, second]: &[Layer; 2]| Ok([source.normed(first)?, source.normed(second)?]);
        let blocks = blocks.iter().map(&mut block).collect::<Result<_, Error>>()?;
        Ok(Self { input: source.normed(input)?, blocks })
    }
}

impl DenseHead {
    fn build(head: &Head, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        Ok(Self { hidden: source.normed(hidden(head))?, output: source.dense(&head.output)? })
    }
}

impl DenseChance {
    fn build(layers: &ChanceLayers, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        let chance = Self {
            afterstate: DenseTrunk::build(&layers.afterstate, source)?,
            value: DenseHead::build(&layers.value, source)?,
            code: DenseHead::build(&layers.code, source)?,
        };
        // The file also holds the encoder, which only training uses.
        DenseTrunk::build(&layers.encoder, source)?;
        DenseHead::build(&layers.encoding, source)?;
        Ok(chance)
    }
}

impl ResidualLayers {
    fn build(layers: &LatentLayers, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        Ok(Self {
            representation: ResidualTrunk::build(&layers.representation, source)?,
            policy: source.convolution(convolution(&layers.policy))?,
            policy_output: source.dense(&layers.policy.output)?,
            value: ResidualHead::build(&layers.value, source)?,
            dynamics: match &layers.dynamics {
                Some(dynamics) => Some(Box::new(ResidualDynamics::build(dynamics, source)?)),
                None => None,
            },
            chance: match &layers.chance {
                Some(chance) => Some(Box::new(ResidualChance::build(chance, source)?)),
                None => None,
            },
        })
    }
}

impl ResidualDynamics {
    fn build(layers: &DynamicsLayers, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        let action = layers.action.as_ref().expect("a network of planes maps actions to planes");
        Ok(Self {
            action: source.dense(action)?,
            trunk: ResidualTrunk::build(&layers.trunk, source)?,
            reward: ResidualHead::build(&layers.reward, source)?,
        })
    }
}

impl ResidualChance {
    fn build(layers: &ChanceLayers, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        let action = layers.action.as_ref().expect("a network of planes maps actions to planes");
        let chance = Self {
            action: source.dense(action)?,
            afterstate: ResidualTrunk::build(&layers.afterstate, source)?,
            value: ResidualHead::build(&layers.value, source)?,
            code: ResidualHead::build(&layers.code, source)?,
        };
        // The file also holds the encoder, which only training uses.
        ResidualTrunk::build(&layers.encoder, source)?;
        ResidualHead::build(&layers.encoding, source)?;
        Ok(chance)
    }
}

impl ResidualTrunk {
    fn build(trunk: &Trunk, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        let Trunk::Residual { stem, blocks } = trunk else { unreachable!("a network of planes has residual trunks") };
        Ok(Self {
            stem: source.convolution(stem)?,
            blocks: blocks.iter().map(|block| Block::new(block, source)).collect::<Result<_, _>>()?,
        })
    }
}

impl ResidualHead {
    fn build(head: &Head, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        Ok(Self {
            convolution: source.convolution(convolution(head))?,
            hidden: source.dense(hidden(head))?,
            output: source.dense(&head.output)?,
        })
    }
}

fn convolution(head: &Head) -> &Layer {
    head.convolution.as_ref().expect("a head of a network of planes begins with a convolution")
}

fn hidden(head: &Head) -> &Layer {
    head.hidden.as_ref().expect("a head that is not a residual policy has hidden units")
}
