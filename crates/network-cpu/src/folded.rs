//! A published network, read and folded: every batch norm in the convolution before it, float32.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weights::Architecture;

use crate::Error;
use crate::file::Reader;

/// Channels of the 1×1 convolution in front of each head.
pub(crate) const HEAD_CHANNELS: usize = 32;
/// Units of the hidden layer of the value head.
pub(crate) const VALUE_HIDDEN: usize = 64;
/// What batch norm adds to variances.
const NORM_EPSILON: f32 = 1e-5;

/// A convolution with a bias: weights `[outputs, inputs, taps]`, 9 taps row by row or 1.
#[derive(Debug, Clone)]
pub(crate) struct Affine {
    pub(crate) inputs: usize,
    pub(crate) taps: usize,
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
}

/// A layer: weights `[outputs, inputs]`.
#[derive(Debug, Clone)]
pub(crate) struct Dense {
    pub(crate) inputs: usize,
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
}

/// A residual block.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) first: Affine,
    pub(crate) second: Affine,
    /// Mean and maximum of the first G channels to a bias of the others, `[C − G, 2G]`.
    pub(crate) pooling: Option<Dense>,
    pub(crate) excitation: Option<Excitation>,
}

/// Squeeze-and-excitation: means `[C]` to hidden units `[S]` to scales and biases `[2C]`.
#[derive(Debug, Clone)]
pub(crate) struct Excitation {
    pub(crate) hidden: Dense,
    pub(crate) output: Dense,
}

/// A network as it is computed.
#[derive(Debug, Clone)]
pub(crate) struct Folded {
    pub(crate) architecture: Architecture,
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
    /// Anything but exactly the tensors of `architecture`, finite and of the right shape, is named and refused.
    pub(crate) fn from_safetensors(architecture: &Architecture, bytes: &[u8]) -> Result<Self, Error> {
        check(architecture)?;
        let mut reader = Reader::new(bytes)?;
        let folded = Self::build(architecture, &mut Source::File(&mut reader))?;
        reader.finish()?;
        Ok(folded)
    }

    /// A network of random weights, for checks: activations stay of the order of one.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub(crate) fn random(architecture: &Architecture, seed: u64) -> Result<Self, Error> {
        check(architecture)?;
        Self::build(architecture, &mut Source::Random(Box::new(ChaCha8Rng::seed_from_u64(seed))))
    }

    fn build(architecture: &Architecture, source: &mut Source<'_, '_>) -> Result<Self, Error> {
        let &Architecture { planes, height, width, actions, channels, blocks, .. } = architecture;
        let features = height * width * HEAD_CHANNELS;
        let stem = source.convolution("stem", channels, planes, 9)?;
        let blocks = (0..blocks).map(|index| block(architecture, index, source)).collect::<Result<_, _>>()?;
        let policy = source.convolution("policy", HEAD_CHANNELS, channels, 1)?;
        let value = source.convolution("value", HEAD_CHANNELS, channels, 1)?;
        Ok(Self {
            architecture: architecture.clone(),
            stem,
            blocks,
            heads: Affine {
                inputs: channels,
                taps: 1,
                weight: [policy.weight, value.weight].concat(),
                bias: [policy.bias, value.bias].concat(),
            },
            policy: source.dense("policy.output", actions, features)?,
            hidden: source.dense("value.hidden", VALUE_HIDDEN, features)?,
            value: source.dense("value.output", 3, VALUE_HIDDEN)?,
        })
    }

    /// Multiply-adds of one position that matter to its answer: those of cells with cells, not with the border.
    pub(crate) fn multiply_adds(&self) -> usize {
        let Architecture { height, width, .. } = self.architecture;
        let of = |affine: &Affine| {
            // Along a side of n cells, a tap of three reaches 3n - 2 of them.
            let pairs = if affine.taps == 9 { (3 * height - 2) * (3 * width - 2) } else { height * width };
            affine.weight.len() / affine.taps * pairs
        };
        let blocks = self.blocks.iter().map(|block| of(&block.first) + of(&block.second)).sum::<usize>();
        let layers = self.policy.weight.len() + self.hidden.weight.len() + self.value.weight.len();
        of(&self.stem) + blocks + of(&self.heads) + layers
    }
}

fn block(architecture: &Architecture, index: usize, source: &mut Source<'_, '_>) -> Result<Block, Error> {
    let &Architecture { channels, squeeze_excitation: units, global_pooling: pooled, .. } = architecture;
    let name = |part: &str| format!("block.{index}.{part}");
    Ok(Block {
        first: source.convolution(&name("first"), channels, channels, 9)?,
        second: source.convolution(&name("second"), channels, channels, 9)?,
        pooling: match architecture.pools(index) {
            true => Some(source.dense(&name("pooling"), channels - pooled, 2 * pooled)?),
            false => None,
        },
        excitation: match units > 0 {
            true => Some(Excitation {
                hidden: source.dense(&name("excitation.hidden"), units, channels)?,
                output: source.dense(&name("excitation.output"), 2 * channels, units)?,
            }),
            false => None,
        },
    })
}

/// Where numbers come from.
enum Source<'a, 'b> {
    File(&'a mut Reader<'b>),
    Random(Box<ChaCha8Rng>),
}

impl Source<'_, '_> {
    /// A convolution without bias and the batch norm after it: `w' = w · γ / √(σ² + ε)`,
    /// `b' = β − μ · γ / √(σ² + ε)`.
    fn convolution(&mut self, name: &str, outputs: usize, inputs: usize, taps: usize) -> Result<Affine, Error> {
        let side = if taps == 9 { 3 } else { 1 };
        let reader = match self {
            Self::Random(rng) => {
                let (weight, bias) = (random(rng, outputs * inputs * taps, inputs * taps), random(rng, outputs, 100));
                return Ok(Affine { inputs, taps, weight, bias });
            }
            Self::File(reader) => reader,
        };
        let mut weight = reader.take(&format!("{name}.convolution.weight"), &[outputs, inputs, side, side])?;
        let mut part = |part: &str| reader.take(&format!("{name}.norm.{part}"), &[outputs]);
        let (gamma, beta, mean, variance) = (part("weight")?, part("bias")?, part("mean")?, part("variance")?);
        if let Some(&value) = variance.iter().find(|variance| **variance < 0.0) {
            return Err(Error::BadNumber { name: format!("{name}.norm.variance"), value });
        }
        let scale: Vec<f32> =
            gamma.iter().zip(&variance).map(|(gamma, variance)| gamma / (variance + NORM_EPSILON).sqrt()).collect();
        for (weights, scale) in weight.chunks_exact_mut(inputs * taps).zip(&scale) {
            weights.iter_mut().for_each(|weight| *weight *= scale);
        }
        let bias = (0..outputs).map(|output| beta[output] - mean[output] * scale[output]).collect();
        Ok(Affine { inputs, taps, weight, bias })
    }

    fn dense(&mut self, name: &str, outputs: usize, inputs: usize) -> Result<Dense, Error> {
        let (weight, bias) = match self {
            Self::Random(rng) => (random(rng, outputs * inputs, inputs), random(rng, outputs, 100)),
            Self::File(reader) => (
                reader.take(&format!("{name}.weight"), &[outputs, inputs])?,
                reader.take(&format!("{name}.bias"), &[outputs])?,
            ),
        };
        Ok(Dense { inputs, weight, bias })
    }
}

/// Uniform within `√(3 / fan-in)`: the variance that a residual tower keeps.
fn random(rng: &mut ChaCha8Rng, len: usize, fan_in: usize) -> Vec<f32> {
    let bound = (3.0 / fan_in as f32).sqrt();
    (0..len).map(|_| rng.random_range(-bound..bound)).collect()
}

/// What the kernel takes. The limits keep sizes far from overflow.
pub(crate) fn check(architecture: &Architecture) -> Result<(), Error> {
    let Architecture { planes, height, width, actions, channels, blocks, squeeze_excitation, global_pooling, .. } =
        architecture;
    let refuse = |what, got: usize, expected| Err(Error::Unsupported { what, got, expected });
    match () {
        () if *planes == 0 || *planes > 1024 => refuse("planes", *planes, "1 to 1024"),
        // The rows of a run are bits of a word.
        () if *height == 0 || *height > 32 => refuse("height", *height, "1 to 32"),
        () if *width == 0 || *width > 32 => refuse("width", *width, "1 to 32"),
        () if *actions == 0 || *actions > 65_535 => refuse("actions", *actions, "1 to 65535"),
        () if *channels == 0 || *channels > 2048 || channels % 16 != 0 => {
            refuse("channels", *channels, "a multiple of 16 up to 2048")
        }
        () if *blocks > 256 => refuse("blocks", *blocks, "up to 256"),
        () if *squeeze_excitation > 2048 => refuse("squeeze_excitation", *squeeze_excitation, "up to 2048"),
        () if *global_pooling >= *channels => refuse("global_pooling", *global_pooling, "fewer than the channels"),
        () => Ok(()),
    }
}
