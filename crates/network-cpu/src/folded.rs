//! Reads a published network. Folds every batch norm into the convolution before it, in float32, and the scale and
//! shift of layer norms into the matrix after them.

use network::{AttentionBlock, Error, Layer, LayerKind, Layers, NORM_EPSILON, NormKind, Reader, Role};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weights::Architecture;

/// A convolution with bias: weights `[outputs, inputs, taps]`, 9 taps row by row or 1.
#[derive(Debug, Clone, Default)]
pub(crate) struct Affine {
    pub(crate) inputs: usize,
    pub(crate) taps: usize,
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
    /// Norm of single positions after the convolution; the bias is then 0.
    pub(crate) norm: Option<PositionNorm>,
}

/// Norm of single positions after one convolution, or after several of equal size side by side.
#[derive(Debug, Clone)]
pub(crate) struct PositionNorm {
    /// Whether the norm is over groups of channels and all cells, rather than over all channels of a cell.
    pub(crate) is_grouped: bool,
    /// Number of convolutions.
    pub(crate) convolutions: usize,
    /// Scale γ.
    pub(crate) scale: Vec<f32>,
    /// Shift β.
    pub(crate) shift: Vec<f32>,
}

/// An attention block. Scale and shift of the input norms are folded into the matrices after them.
#[derive(Debug, Clone)]
pub(crate) struct Attention {
    pub(crate) heads: usize,
    /// Normed cells `[C]` to queries, keys and values `[3C]`.
    pub(crate) qkv: Dense,
    /// Position biases of pairs of cells, `[heads, cells, cells]`.
    pub(crate) pairs: Vec<f32>,
    /// Value sums `[C]` to the residual.
    pub(crate) output: Dense,
    /// Normed cells `[C]` to hidden units.
    pub(crate) hidden: Dense,
    /// Hidden units to the residual, `[C]`.
    pub(crate) feed_forward: Dense,
}

/// A linear layer: weights `[outputs, inputs]`.
#[derive(Debug, Clone)]
pub(crate) struct Dense {
    pub(crate) inputs: usize,
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
}

/// A residual block, with batch norms folded.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// 1×1 convolution of a bottleneck, to half of the channels.
    pub(crate) down: Option<Affine>,
    pub(crate) first: Affine,
    pub(crate) second: Affine,
    /// 1×1 convolution of a bottleneck, to all channels.
    pub(crate) up: Option<Affine>,
    /// Mean and maximum of the first G channels to a bias for the remaining channels, `[C − G, 2G]` with the C
    /// channels of the 3×3 convolutions.
    pub(crate) pooling: Option<Dense>,
    pub(crate) excitation: Option<Excitation>,
}

/// Squeeze-and-excitation: means `[C]` to hidden units `[S]` to scales and biases `[2C]`.
#[derive(Debug, Clone)]
pub(crate) struct Excitation {
    pub(crate) hidden: Dense,
    pub(crate) output: Dense,
}

/// A network with batch norms folded.
#[derive(Debug, Clone)]
pub(crate) struct Folded {
    pub(crate) architecture: Architecture,
    /// Multiply-adds per position, as counted by [`Layers::multiply_adds`].
    pub(crate) multiply_adds: usize,
    pub(crate) stem: Affine,
    pub(crate) blocks: Vec<Block>,
    pub(crate) attention: Vec<Attention>,
    /// Convolutions of both heads, with the policy's channels first.
    pub(crate) heads: Affine,
    /// Features `[cells, 32]` to logits `[A]`; with pooled heads the features of a cell `[32]` to the cell's logits
    /// `[k]`.
    pub(crate) policy: Dense,
    /// Pooled features `[96]` to logits of actions that belong to no cell; only with pooled heads.
    pub(crate) rest: Option<Dense>,
    /// Features `[cells, 32]`, or pooled features `[96]`, to hidden units `[64]`.
    pub(crate) hidden: Dense,
    /// Hidden units `[64]` to logits of win, draw and loss.
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

    /// Creates a network with random weights, for checks; activations stay of the order of one.
    ///
    /// # Errors
    /// [`Error::Architecture`] for a size that is out of range.
    pub(crate) fn random(architecture: &Architecture, seed: u64) -> Result<Self, Error> {
        let layers = Layers::new(architecture)?;
        Self::build(architecture, &layers, &mut Source::Random(Box::new(ChaCha8Rng::seed_from_u64(seed))))
    }

    fn build(architecture: &Architecture, layers: &Layers, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        let stem = source.convolution(&layers.stem)?;
        let blocks = layers.blocks.iter().map(|block| Block::new(block, source)).collect::<Result<_, _>>()?;
        let board = [architecture.height, architecture.width];
        let attention = layers.attention.iter().map(|block| Attention::new(block, board, source));
        let attention = attention.collect::<Result<_, _>>()?;
        let (policy, value) = (source.convolution(&layers.policy)?, source.convolution(&layers.value)?);
        Ok(Self {
            architecture: architecture.clone(),
            multiply_adds: layers.multiply_adds(),
            stem,
            blocks,
            attention,
            heads: Affine {
                inputs: policy.inputs,
                taps: policy.taps,
                weight: [policy.weight, value.weight].concat(),
                bias: [policy.bias, value.bias].concat(),
                norm: policy.norm.zip(value.norm).map(|(policy, value)| PositionNorm {
                    is_grouped: policy.is_grouped,
                    convolutions: 2,
                    scale: [policy.scale, value.scale].concat(),
                    shift: [policy.shift, value.shift].concat(),
                }),
            },
            policy: source.dense(&layers.policy_output)?,
            rest: layers.policy_rest.as_ref().map(|layer| source.dense(layer)).transpose()?,
            hidden: source.dense(&layers.value_hidden)?,
            value: source.dense(&layers.value_output)?,
        })
    }
}

impl Attention {
    fn new(block: &AttentionBlock, board: [usize; 2], source: &mut Source<'_, '_>) -> Result<Self, Error> {
        let qkv = source.pre_normed(&block.qkv)?;
        let table = source.offsets(&block.position)?;
        let offsets = AttentionBlock::offsets(board);
        let of_head = |table: &[f32]| offsets.iter().map(|&offset| table[offset]).collect::<Vec<_>>();
        Ok(Self {
            heads: block.heads(),
            qkv,
            pairs: table.chunks_exact(block.position.inputs).flat_map(of_head).collect(),
            output: source.dense(&block.output)?,
            hidden: source.pre_normed(&block.hidden)?,
            feed_forward: source.dense(&block.feed_forward)?,
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

/// A matrix without bias, followed by layer norm: weights `[outputs, inputs]`, γ and β `[outputs]`.
#[derive(Debug, Clone)]
pub(crate) struct Normed {
    pub(crate) inputs: usize,
    pub(crate) weight: Vec<f32>,
    pub(crate) scale: Vec<f32>,
    pub(crate) shift: Vec<f32>,
}

/// Source of weights.
pub(crate) enum Source<'a, 'b> {
    File(&'a mut Reader<'b>),
    Random(Box<ChaCha8Rng>),
}

impl Source<'_, '_> {
    /// Returns a convolution with the norm; a batch norm is folded in as described in [`LayerKind::Convolution`].
    pub(crate) fn convolution(&mut self, layer: &Layer) -> Result<Affine, Error> {
        let &Layer { inputs, outputs, kind, .. } = layer;
        let LayerKind::Convolution { side, norm } = kind else { unreachable!("the layer is a convolution") };
        let taps = side * side;
        if norm != NormKind::Batch {
            let (weight, bias) = (self.weights(layer, Role::Convolution, inputs * taps)?, vec![0.0; outputs]);
            let [scale, shift] = self.norm(layer, outputs)?;
            let is_grouped = norm == NormKind::Group;
            let norm = Some(PositionNorm { is_grouped, convolutions: 1, scale, shift });
            return Ok(Affine { inputs, taps, weight, bias, norm });
        }
        let reader = match self {
            Self::Random(rng) => {
                let (weight, bias) = (random(rng, outputs * inputs * taps, inputs * taps), random(rng, outputs, 100));
                return Ok(Affine { inputs, taps, weight, bias, norm: None });
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
        Ok(Affine { inputs, taps, weight, bias, norm: None })
    }

    /// Returns the weights of a layer.
    fn weights(&mut self, layer: &Layer, role: Role, fan_in: usize) -> Result<Vec<f32>, Error> {
        match self {
            Self::Random(rng) => Ok(random(rng, layer.outputs * fan_in, fan_in)),
            Self::File(reader) => reader.tensor("", &layer.tensor(role)),
        }
    }

    /// Returns γ and β of a norm over `channels`.
    fn norm(&mut self, layer: &Layer, channels: usize) -> Result<[Vec<f32>; 2], Error> {
        Ok(match self {
            Self::Random(rng) => {
                let scale = random(rng, channels, 300).into_iter().map(|offset| 1.0 + offset).collect();
                [scale, random(rng, channels, 100)]
            }
            Self::File(reader) => {
                let mut part = |role| reader.tensor("", &layer.tensor(role));
                [part(Role::NormScale)?, part(Role::NormShift)?]
            }
        })
    }

    /// Returns a layer of [`LayerKind::PreNormed`]: with matrix W, γ and β, `W' = W γ` and `b' = b + W β`.
    fn pre_normed(&mut self, layer: &Layer) -> Result<Dense, Error> {
        let mut dense = self.dense(layer)?;
        let [scale, shift] = self.norm(layer, layer.inputs)?;
        for (weights, bias) in dense.weight.chunks_exact_mut(layer.inputs).zip(&mut dense.bias) {
            *bias += weights.iter().zip(&shift).map(|(weight, shift)| weight * shift).sum::<f32>();
            weights.iter_mut().zip(&scale).for_each(|(weight, scale)| *weight *= scale);
        }
        Ok(dense)
    }

    /// Returns the position biases by head and offset.
    fn offsets(&mut self, layer: &Layer) -> Result<Vec<f32>, Error> {
        match self {
            Self::Random(rng) => Ok(random(rng, layer.outputs * layer.inputs, 3)),
            Self::File(reader) => reader.tensor("", &layer.tensor(Role::Offsets)),
        }
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

    /// Returns a layer of [`LayerKind::Dense`].
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

/// Draws numbers uniformly within `√(3 / fan-in)`, which preserves the variance through a residual tower.
fn random(rng: &mut ChaCha8Rng, len: usize, fan_in: usize) -> Vec<f32> {
    let bound = (3.0 / fan_in as f32).sqrt();
    (0..len).map(|_| rng.random_range(-bound..bound)).collect()
}
