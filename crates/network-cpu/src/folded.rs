//! Reads a published network and folds every batch norm into the convolution before it, in float32.

use network::{Error, Layer, LayerKind, Layers, NORM_EPSILON, Reader, Role};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weights::Architecture;

/// A convolution with a bias: weights `[outputs, inputs, taps]`, 9 taps row by row or 1.
#[derive(Debug, Clone)]
pub(crate) struct Affine {
    pub(crate) inputs: usize,
    pub(crate) taps: usize,
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
}

/// A linear layer: weights `[outputs, inputs]`.
#[derive(Debug, Clone)]
pub(crate) struct Dense {
    pub(crate) inputs: usize,
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
}

/// A residual block.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// The 1×1 convolution of a bottleneck to half of the channels.
    pub(crate) down: Option<Affine>,
    pub(crate) first: Affine,
    pub(crate) second: Affine,
    /// The 1×1 convolution of a bottleneck to all channels.
    pub(crate) up: Option<Affine>,
    /// Mean and maximum of the first G channels to a bias of the others, `[C − G, 2G]` with the C of the 3×3
    /// convolutions.
    pub(crate) pooling: Option<Dense>,
    pub(crate) excitation: Option<Excitation>,
}

/// Squeeze-and-excitation: means `[C]` to hidden units `[S]` to scales and biases `[2C]`.
#[derive(Debug, Clone)]
pub(crate) struct Excitation {
    pub(crate) hidden: Dense,
    pub(crate) output: Dense,
}

/// A network with its batch norms folded.
#[derive(Debug, Clone)]
pub(crate) struct Folded {
    pub(crate) architecture: Architecture,
    /// Multiply-adds of one position, as [`Layers::multiply_adds`] counts them.
    pub(crate) multiply_adds: usize,
    pub(crate) stem: Affine,
    pub(crate) blocks: Vec<Block>,
    /// Both heads' convolutions, the policy's channels first.
    pub(crate) heads: Affine,
    /// Features `[cells, 32]` to logits `[A]`.
    pub(crate) policy: Dense,
    /// Features `[cells, 32]` to hidden units `[64]`.
    pub(crate) hidden: Dense,
    /// Hidden units `[64]` to logits of a win, a draw and a loss.
    pub(crate) value: Dense,
}

impl Folded {
    /// Reads a published version.
    ///
    /// # Errors
    /// Fails unless the file holds exactly the tensors of `architecture`, finite and of the right shape; the error
    /// names the tensor.
    pub(crate) fn from_safetensors(architecture: &Architecture, bytes: &[u8]) -> Result<Self, Error> {
        let layers = Layers::new(architecture)?;
        let mut reader = Reader::new(bytes)?;
        let folded = Self::build(architecture, &layers, &mut Source::File(&mut reader))?;
        reader.finish()?;
        Ok(folded)
    }

    /// A network of random weights, for checks: activations stay of the order of one.
    ///
    /// # Errors
    /// [`Error::Architecture`] for a size out of range.
    pub(crate) fn random(architecture: &Architecture, seed: u64) -> Result<Self, Error> {
        let layers = Layers::new(architecture)?;
        Self::build(architecture, &layers, &mut Source::Random(Box::new(ChaCha8Rng::seed_from_u64(seed))))
    }

    fn build(architecture: &Architecture, layers: &Layers, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        let stem = source.convolution(&layers.stem)?;
        let blocks = layers.blocks.iter().map(|block| Block::new(block, source)).collect::<Result<_, _>>()?;
        let (policy, value) = (source.convolution(&layers.policy)?, source.convolution(&layers.value)?);
        Ok(Self {
            architecture: architecture.clone(),
            multiply_adds: layers.multiply_adds(),
            stem,
            blocks,
            heads: Affine {
                inputs: policy.inputs,
                taps: policy.taps,
                weight: [policy.weight, value.weight].concat(),
                bias: [policy.bias, value.bias].concat(),
            },
            policy: source.dense(&layers.policy_output)?,
            hidden: source.dense(&layers.value_hidden)?,
            value: source.dense(&layers.value_output)?,
        })
    }
}

impl Block {
    pub(crate) fn new(block: &network::Block, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        Ok(Self {
            down: block.down.as_ref().map(|layer| source.convolution(layer)).transpose()?,
            first: source.convolution(&block.first)?,
            second: source.convolution(&block.second)?,
            up: block.up.as_ref().map(|layer| source.convolution(layer)).transpose()?,
            pooling: block.pooling.as_ref().map(|layer| source.dense(layer)).transpose()?,
            excitation: match &block.excitation {
                Some(layers) => {
                    Some(Excitation { hidden: source.dense(&layers.hidden)?, output: source.dense(&layers.output)? })
                }
                None => None,
            },
        })
    }
}

/// A matrix without bias and the layer norm after it: weights `[outputs, inputs]`, γ and β `[outputs]`.
#[derive(Debug, Clone)]
pub(crate) struct Normed {
    pub(crate) inputs: usize,
    pub(crate) weight: Vec<f32>,
    pub(crate) scale: Vec<f32>,
    pub(crate) shift: Vec<f32>,
}

/// The source of weights.
pub(crate) enum Source<'a, 'b> {
    File(&'a mut Reader<'b>),
    Random(Box<ChaCha8Rng>),
}

impl Source<'_, '_> {
    /// A convolution with its batch norm folded in, by the rule of [`LayerKind::Convolution`].
    pub(crate) fn convolution(&mut self, layer: &Layer) -> Result<Affine, Error> {
        let &Layer { inputs, outputs, kind, .. } = layer;
        let taps = if kind == (LayerKind::Convolution { side: 3 }) { 9 } else { 1 };
        let reader = match self {
            Self::Random(rng) => {
                let (weight, bias) = (random(rng, outputs * inputs * taps, inputs * taps), random(rng, outputs, 100));
                return Ok(Affine { inputs, taps, weight, bias });
            }
            Self::File(reader) => reader,
        };
        let mut part = |role| reader.tensor("", &layer.tensor(role));
        let (mut weight, gamma, beta) = (part(Role::Convolution)?, part(Role::NormScale)?, part(Role::NormShift)?);
        let (mean, variance) = (part(Role::NormMean)?, part(Role::NormVariance)?);
        let epsilon = NORM_EPSILON as f32;
        let scale: Vec<f32> =
            gamma.iter().zip(&variance).map(|(gamma, variance)| gamma / (variance + epsilon).sqrt()).collect();
        for (weights, scale) in weight.chunks_exact_mut(inputs * taps).zip(&scale) {
            weights.iter_mut().for_each(|weight| *weight *= scale);
        }
        let bias = (0..outputs).map(|output| beta[output] - mean[output] * scale[output]).collect();
        Ok(Affine { inputs, taps, weight, bias })
    }

    pub(crate) fn dense(&mut self, layer: &Layer) -> Result<Dense, Error> {
        let &Layer { inputs, outputs, .. } = layer;
        let (weight, bias) = match self {
            Self::Random(rng) => (random(rng, outputs * inputs, inputs), random(rng, outputs, 100)),
            Self::File(reader) => {
                (reader.tensor("", &layer.tensor(Role::Linear))?, reader.tensor("", &layer.tensor(Role::Bias))?)
            }
        };
        Ok(Dense { inputs, weight, bias })
    }

    /// A layer of [`LayerKind::Dense`].
    pub(crate) fn normed(&mut self, layer: &Layer) -> Result<Normed, Error> {
        let &Layer { inputs, outputs, .. } = layer;
        let reader = match self {
            Self::Random(rng) => {
                let scale = random(rng, outputs, 300).into_iter().map(|offset| 1.0 + offset).collect();
                return Ok(Normed {
                    inputs,
                    weight: random(rng, outputs * inputs, inputs),
                    scale,
                    shift: random(rng, outputs, 100),
                });
            }
            Self::File(reader) => reader,
        };
        let mut part = |role| reader.tensor("", &layer.tensor(role));
        let (weight, scale, shift) = (part(Role::Linear)?, part(Role::NormScale)?, part(Role::NormShift)?);
        Ok(Normed { inputs, weight, scale, shift })
    }
}

/// Draws numbers uniformly within `√(3 / fan-in)`: a residual tower preserves their variance.
fn random(rng: &mut ChaCha8Rng, len: usize, fan_in: usize) -> Vec<f32> {
    let bound = (3.0 / fan_in as f32).sqrt();
    (0..len).map(|_| rng.random_range(-bound..bound)).collect()
}
