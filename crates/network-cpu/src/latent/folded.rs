//! Reads a published MuZero network, with batch norms folded into the convolutions before them.

use network::{ChanceLayers, Error, Head, LatentLayers, Layer, Reader, Trunk};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use weights::Architecture;

use crate::folded::{Affine, Block, Dense, Normed, Source};

/// A MuZero network.
#[derive(Debug, Clone)]
pub(crate) struct FoldedLatent {
    pub(crate) architecture: Architecture,
    /// n: values and rewards have 2n + 1 atoms.
    pub(crate) support: usize,
    /// The gates of the memory, of a network that predicts value prefixes: hidden units of the reward head and of the
    /// memory, `[64 + 64]`, to `[4 · 64]`.
    pub(crate) memory: Option<Dense>,
    pub(crate) layers: FoldedLayers,
}

/// The layers of either kind of network.
#[derive(Debug, Clone)]
pub(crate) enum FoldedLayers {
    Dense(DenseLayers),
    Residual(ResidualLayers),
}

/// A network of vectors.
#[derive(Debug, Clone)]
pub(crate) struct DenseLayers {
    pub(crate) representation: DenseTrunk,
    /// Of latent states `[H]` and one-hot actions `[A]` behind them.
    pub(crate) dynamics: DenseTrunk,
    pub(crate) policy: DenseHead,
    pub(crate) value: DenseHead,
    pub(crate) reward: DenseHead,
    /// Of Stochastic MuZero; the dynamics then take an afterstate and a one-hot chance code `[M]`.
    pub(crate) chance: Option<Box<DenseChance>>,
}

/// The layers of Stochastic MuZero that a search needs.
#[derive(Debug, Clone)]
pub(crate) struct DenseChance {
    /// Of latent states `[H]` and one-hot actions `[A]` behind them.
    pub(crate) afterstate: DenseTrunk,
    pub(crate) value: DenseHead,
    /// To logits of the chance codes `[M]`.
    pub(crate) code: DenseHead,
}

/// The dense layers before a latent state is rescaled.
#[derive(Debug, Clone)]
pub(crate) struct DenseTrunk {
    pub(crate) input: Normed,
    pub(crate) blocks: Vec<[Normed; 2]>,
}

/// A head of a network of vectors.
#[derive(Debug, Clone)]
pub(crate) struct DenseHead {
    pub(crate) hidden: Normed,
    pub(crate) output: Dense,
}

/// A network of planes.
#[derive(Debug, Clone)]
pub(crate) struct ResidualLayers {
    pub(crate) representation: ResidualTrunk,
    /// One-hot actions `[A]` to planes `[4 · H · W]`.
    pub(crate) action: Dense,
    /// Of latent states `[C, H, W]` and the action's planes behind them.
    pub(crate) dynamics: ResidualTrunk,
    /// To 32 channels.
    pub(crate) policy: Affine,
    /// Features `[cells, 32]` to logits `[A]`.
    pub(crate) policy_output: Dense,
    pub(crate) value: ResidualHead,
    pub(crate) reward: ResidualHead,
    /// Of Stochastic MuZero; `action` then maps one-hot chance codes `[M]`, and the dynamics take an afterstate.
    pub(crate) chance: Option<Box<ResidualChance>>,
}

/// The layers of Stochastic MuZero that a search needs.
#[derive(Debug, Clone)]
pub(crate) struct ResidualChance {
    /// One-hot actions `[A]` to planes `[4 · H · W]`.
    pub(crate) action: Dense,
    /// Of latent states `[C, H, W]` and the action's planes behind them.
    pub(crate) afterstate: ResidualTrunk,
    pub(crate) value: ResidualHead,
    /// To logits of the chance codes `[M]`.
    pub(crate) code: ResidualHead,
}

/// The convolutions before a latent state is rescaled.
#[derive(Debug, Clone)]
pub(crate) struct ResidualTrunk {
    pub(crate) stem: Affine,
    pub(crate) blocks: Vec<Block>,
}

/// A head of a network of planes with hidden units: any but the policy.
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

    /// A network of random weights, for checks: activations stay of the order of one.
    ///
    /// # Errors
    /// [`Error::Architecture`] for a size out of range, [`Error::Model`] for another model.
    pub(crate) fn random(architecture: &Architecture, seed: u64) -> Result<Self, Error> {
        Self::build(architecture, &mut Source::Random(Box::new(ChaCha8Rng::seed_from_u64(seed))))
    }

    fn build(architecture: &Architecture, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        let layers = LatentLayers::new(architecture)?;
        let Some(support) = architecture.model.support() else { return Err(Error::Model { expected: "muzero" }) };
        let folded = match (&layers.representation, &layers.dynamics, &layers.action) {
            (Trunk::Residual { .. }, Trunk::Residual { .. }, Some(action)) => {
                FoldedLayers::Residual(ResidualLayers::build(&layers, action, source)?)
            }
            _ => FoldedLayers::Dense(DenseLayers {
                representation: DenseTrunk::build(&layers.representation, source)?,
                dynamics: DenseTrunk::build(&layers.dynamics, source)?,
                policy: DenseHead::build(&layers.policy, source)?,
                value: DenseHead::build(&layers.value, source)?,
                reward: DenseHead::build(&layers.reward, source)?,
                chance: layers
                    .chance
                    .as_ref()
                    .map(|chance| DenseChance::build(chance, source).map(Box::new))
                    .transpose()?,
            }),
        };
        let memory = layers.memory.as_ref().map(|memory| source.dense(memory)).transpose()?;
        Ok(Self { architecture: architecture.clone(), support, memory, layers: folded })
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
        // The file holds the encoder as well, which only training uses.
        DenseTrunk::build(&layers.encoder, source)?;
        DenseHead::build(&layers.encoding, source)?;
        Ok(chance)
    }
}

impl ResidualLayers {
    fn build(layers: &LatentLayers, action: &Layer, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        Ok(Self {
            representation: ResidualTrunk::build(&layers.representation, source)?,
            action: source.dense(action)?,
            dynamics: ResidualTrunk::build(&layers.dynamics, source)?,
            policy: source.convolution(convolution(&layers.policy))?,
            policy_output: source.dense(&layers.policy.output)?,
            value: ResidualHead::build(&layers.value, source)?,
            reward: ResidualHead::build(&layers.reward, source)?,
            chance: layers
                .chance
                .as_ref()
                .map(|chance| ResidualChance::build(chance, source).map(Box::new))
                .transpose()?,
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
        // The file holds the encoder as well, which only training uses.
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
