use network::{ACTION_PLANES, DynamicsLayers, HEAD_CHANNELS, Head, Layer, Trunk, VALUE_HIDDEN};
use tch::Tensor;
use weights::Architecture;

use super::heads::{self, Batched, Remember};
use super::size;
use crate::{
    DeviceRules, Error, MemoryFormat, Network, Precision,
    folded::{self, Block, fold},
    fusing::{self, Fusing},
    layers::{self, Affine},
};

/// A residual MuZero network, or AlphaZero network of returns, for inference: every batch norm folded into the
/// convolution before it. Latent states are `[B, H · W · C]`, or `[B, C · H · W]` where the device takes channels
/// first.
#[derive(Debug)]
pub(super) struct Residual {
    architecture: Architecture,
    rules: DeviceRules,
    fusing: Fusing,
    /// Takes the planes of an observation, and planes of zeros up to a multiple that the device prefers.
    representation_stem: Affine,
    representation: Vec<Block>,
    dynamics: Option<Dynamics>,
    /// The 1×1 convolutions of the heads as one.
    head: Affine,
    /// Features to policy logits and to the hidden units of value and reward.
    features: Batched,
    /// Hidden units to the logits of value and reward.
    outputs: Batched,
}

/// The layers of a step.
#[derive(Debug)]
struct Dynamics {
    /// The planes of each action, `[A, 4 · H · W]` in the format of the device, and planes of zeros as above.
    by_action: Tensor,
    /// The part of the first convolution that reads the planes of actions, without bias.
    action_stem: Tensor,
    /// The part that reads latent states, with the bias: the sum of both is that convolution.
    stem: Affine,
    blocks: Vec<Block>,
}

impl Residual {
    /// Folds a residual network.
    pub(super) fn new(network: &Network, precision: Precision) -> Result<Self, Error> {
        let (layers, kind, rules) = (network.layers.muzero()?, precision.kind(), network.rules);
        let (architecture, format) = (network.architecture().clone(), rules.memory_format);
        let block = |block: &::network::Block| Block::new(network, block, kind, format);

        let (first, representation) = parts(&layers.representation);
        let representation_stem = padded_stem(fold(network, first)?, precision, rules)?;
        let representation = representation.iter().map(block).collect::<Result<_, _>>()?;
        let dynamics = layers.dynamics.as_ref().map(|dynamics| Dynamics::new(network, dynamics, precision));

        let heads = heads::all(layers);
        let of_features: Vec<&Layer> = heads.iter().map(|head| head.hidden.as_ref().unwrap_or(&head.output)).collect();
        let scalars: Vec<&Layer> = heads[1..].iter().map(|head| &head.output).collect();
        let columns = |weight: &Tensor| format.columns(weight, HEAD_CHANNELS);
        let mut residual = Self {
            representation_stem,
            representation,
            dynamics: dynamics.transpose()?,
            head: folded::arrange(joined(network, &heads)?, format)?.cast(kind)?,
            features: Batched::new(network, &of_features, kind, columns)?,
            outputs: Batched::new(network, &scalars, kind, |weight| Ok(weight.shallow_clone()))?,
            fusing: Fusing::Separate,
            architecture,
            rules,
        };
        residual.fusing = residual.measured_fusing(precision)?;
        Ok(residual)
    }

    /// Compares fused convolutions of every size with separate ones, where the device has them.
    fn measured_fusing(&self, precision: Precision) -> Result<Fusing, Error> {
        let device = self.head.weight.device();
        let samples = || {
            let dynamics = self.dynamics.as_ref().map(|dynamics| &dynamics.stem);
            let layers = [&self.representation_stem, &self.head].into_iter().chain(dynamics);
            let pairs = layers.flat_map(|layer| [16, 256].map(|positions| (layer, positions)));
            let format = self.rules.memory_format;
            pairs.map(|(layer, positions)| folded::sample(layer, &self.architecture, positions, format)).collect()
        };
        fusing::on_device(&self.architecture, device, precision, samples)
    }

    pub(super) fn state_size(&self) -> usize {
        let &Architecture { height, width, channels, .. } = &self.architecture;
        channels * height * width
    }

    /// Observations `[B, P, H, W]` to states before they are rescaled.
    pub(super) fn represent(&self, observations: &Tensor) -> Result<Tensor, Error> {
        let missing = folded::padding(self.architecture.planes, self.rules);
        let padded = (missing > 0).then(|| observations.f_constant_pad_nd([0, 0, 0, 0, 0, missing])).transpose()?;
        let observations = self.format().arrange(padded.as_ref().unwrap_or(observations))?;
        let x = self.fusing.convolve_relu(&self.representation_stem, &observations)?;
        self.trunk(x, &self.representation)
    }

    /// States and actions `[B]` to the next states before they are rescaled.
    pub(super) fn next(&self, states: &Tensor, actions: &Tensor) -> Result<Tensor, Error> {
        let Dynamics { by_action, action_stem, stem, blocks } = self.dynamics.as_ref().ok_or(heads::NO_DYNAMICS)?;
        let planes = self.planes(&by_action.f_index_select(0, actions)?)?;
        let of_actions = layers::convolve(&planes, action_stem, None)?;
        let x = self.fusing.convolve_add_relu(stem, &self.planes(states)?, &of_actions)?;
        self.trunk(x, blocks)
    }

    pub(super) fn predict(&self, states: &Tensor, remember: Option<&mut Remember<'_>>) -> Result<Tensor, Error> {
        let features = self.by_head(&self.fusing.convolve_relu(&self.head, &self.planes(states)?)?)?;
        let features = self.features.apply(&features)?;
        let policy = features.f_select(0, 0)?.f_narrow(1, 0, size(self.architecture.actions))?;
        let scalars = features.size()[0] - 1;
        let mut hidden = features.f_narrow(0, 1, scalars)?.f_narrow(2, 0, size(VALUE_HIDDEN))?.f_relu()?;
        if let Some(remember) = remember {
            let of_reward = remember(&hidden.f_select(0, 1)?)?;
            hidden = Tensor::f_stack(&[hidden.f_select(0, 0)?, of_reward], 0)?;
        }
        heads::answers(&policy, &self.outputs.apply(&hidden)?)
    }

    /// Residual blocks: `[B, C, H, W]` to rows.
    fn trunk(&self, mut x: Tensor, blocks: &[Block]) -> Result<Tensor, Error> {
        for block in blocks {
            x = block.forward(&x, self.fusing)?;
        }
        self.format().flatten(&x)
    }

    /// Rows `[B, H · W · C]` or `[B, C · H · W]` as `[B, C, H, W]` in the format of the device.
    fn planes(&self, rows: &Tensor) -> Result<Tensor, Error> {
        let &Architecture { height, width, .. } = &self.architecture;
        let [height, width] = [height, width].map(size);
        let (count, numbers) = rows.size2()?;
        let channels = numbers / (height * width);
        Ok(match self.format() {
            MemoryFormat::ChannelsLast => rows.f_view([count, height, width, channels])?.f_permute([0, 3, 1, 2])?,
            MemoryFormat::ChannelsFirst => rows.f_view([count, channels, height, width])?,
        })
    }

    /// The features of all heads `[B, heads · 32, H, W]` as `[heads, B, H · W · 32]`, or `[heads, B, 32 · H · W]`.
    fn by_head(&self, features: &Tensor) -> Result<Tensor, Error> {
        let (count, channels, ..) = features.size4()?;
        let heads = channels / size(HEAD_CHANNELS);
        let flat = self.format().flatten(features)?;
        Ok(match self.format() {
            MemoryFormat::ChannelsLast => {
                let by_cell = flat.f_view([count, -1, heads, size(HEAD_CHANNELS)])?;
                by_cell.f_permute([2, 0, 1, 3])?.f_reshape([heads, count, -1])?
            }
            MemoryFormat::ChannelsFirst => flat.f_view([count, heads, -1])?.f_transpose(0, 1)?,
        })
    }

    fn format(&self) -> MemoryFormat {
        self.rules.memory_format
    }
}

impl Dynamics {
    /// Folds the layers of a step.
    fn new(network: &Network, layers: &DynamicsLayers, precision: Precision) -> Result<Self, Error> {
        let (architecture, rules, kind) = (network.architecture(), network.rules, precision.kind());
        let format = rules.memory_format;
        let (first, blocks) = parts(&layers.trunk);
        let first = fold(network, first)?;
        let channels = size(architecture.channels);
        let of_states = Affine { weight: first.weight.f_narrow(1, 0, channels)?, bias: first.bias.shallow_clone() };
        let of_actions = first.weight.f_narrow(1, channels, size(ACTION_PLANES))?;
        let planes = layers.action.as_ref().expect("residual networks map actions to planes");
        let by_action = action_planes(&folded::linear(network, planes)?, architecture, rules)?.f_to_kind(kind)?;
        let blocks = blocks.iter().map(|block| Block::new(network, block, kind, format));
        Ok(Self {
            by_action,
            action_stem: padded_stem(Affine { weight: of_actions, bias: first.bias }, precision, rules)?.weight,
            stem: folded::arrange(of_states, format)?.cast(kind)?,
            blocks: blocks.collect::<Result<_, _>>()?,
        })
    }
}

/// A first convolution with inputs of zeros up to a multiple that the device prefers.
fn padded_stem(stem: Affine, precision: Precision, rules: DeviceRules) -> Result<Affine, Error> {
    folded::arrange(folded::pad_inputs(stem, rules)?, rules.memory_format)?.cast(precision.kind())
}

/// The stem and the blocks of a trunk.
fn parts(trunk: &Trunk) -> (&Layer, &[::network::Block]) {
    match trunk {
        Trunk::Residual { stem, blocks } => (stem, blocks),
        Trunk::Dense { .. } => unreachable!("networks of planes are residual"),
    }
}

/// The planes of each action in the format of the device, `[A, H · W · 4]` or `[A, 4 · H · W]`, with planes of zeros up
/// to a multiple that the device prefers.
fn action_planes(matrix: &Affine, architecture: &Architecture, rules: DeviceRules) -> Result<Tensor, Error> {
    let &Architecture { height, width, actions, .. } = architecture;
    // A one-hot vector selects a column.
    let planes = matrix.weight.f_transpose(0, 1)?.f_add(&matrix.bias)?;
    let planes = planes.f_reshape([actions, ACTION_PLANES, height, width].map(size))?;
    let padded = planes.f_constant_pad_nd([0, 0, 0, 0, 0, folded::padding(ACTION_PLANES, rules)])?;
    Ok(rules.memory_format.flatten(&padded)?.f_contiguous()?)
}

/// The convolutions in front of the heads as one.
fn joined(network: &Network, heads: &[&Head]) -> Result<Affine, Error> {
    let convolution =
        |head: &Head| fold(network, head.convolution.as_ref().expect("residual heads have a convolution"));
    let parts = heads.iter().copied().map(convolution).collect::<Result<Vec<_>, _>>()?;
    let join = |part: fn(&Affine) -> &Tensor| Tensor::f_cat(&parts.iter().map(part).collect::<Vec<_>>(), 0);
    Ok(Affine { weight: join(|part| &part.weight)?, bias: join(|part| &part.bias)? })
}
