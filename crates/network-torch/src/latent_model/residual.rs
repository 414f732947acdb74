use network::{ACTION_PLANES, ChanceLayers, HEAD_CHANNELS, Head, Layer, Trunk, VALUE_HIDDEN};
use tch::{Kind, Tensor};
use weights::Architecture;

use super::heads::{self, Batched, Layers};
use super::size;
use crate::{
    DeviceRules, Error, MemoryFormat, Network, categorical,
    folded::{self, Block, fold},
    fusing::{self, Fusing},
    layers::{self, Affine},
    muzero::rescale,
};
use inference::Precision;

/// A residual MuZero network, with chance or without, or an AlphaZero network of returns, for inference: every batch
/// norm folded into the preceding convolution. Latent states and afterstates are `[B, H · W · C]`, or
/// `[B, C · H · W]` if the device takes channels first.
#[derive(Debug)]
pub(super) struct Residual {
    architecture: Architecture,
    rules: DeviceRules,
    fusing: Fusing,
    /// Takes the planes of an observation, and zero planes up to the multiple that the device prefers.
    representation_stem: Affine,
    representation: Vec<Block>,
    /// Takes actions; with chance, chance codes in afterstates. `None` in an AlphaZero network.
    dynamics: Option<Transition>,
    /// Features of the policy, value and, with dynamics, reward heads to policy logits and to hidden units of the
    /// other heads.
    heads: Heads,
    chance: Option<Chance>,
}

/// Layers that lead to afterstates.
#[derive(Debug)]
struct Chance {
    /// Takes actions in states.
    dynamics: Transition,
    /// Features of code and value heads to the hidden units of both.
    heads: Heads,
    /// 2n + 1.
    atoms: usize,
}

/// Layers from latent states and choices, which are actions or chance codes, to latent states.
#[derive(Debug)]
struct Transition {
    /// Planes of each choice, `[A, 4 · H · W]` in the format of the device, with zero planes up to the multiple that
    /// the device prefers.
    by_choice: Tensor,
    /// Part of the first convolution that reads the planes of choices, without bias.
    choice_stem: Tensor,
    /// Part that reads latent states, with bias: the sum of both parts is that convolution.
    stem: Affine,
    blocks: Vec<Block>,
}

/// Heads that read the same states.
#[derive(Debug)]
struct Heads {
    count: usize,
    /// 1×1 convolutions of all heads as one.
    convolution: Affine,
    /// Features to hidden units, or to logits of a head without hidden units.
    features: Batched,
    /// Hidden units to logits, for heads with hidden units.
    outputs: Batched,
}

impl Residual {
    /// Folds a residual network.
    pub(super) fn new(network: &Network, precision: Precision) -> Result<Self, Error> {
        let (layers, kind, rules) = (network.layers.muzero()?, crate::rules::kind(precision), network.rules);
        let (architecture, format) = (network.architecture().clone(), rules.memory_format);
        let block = |block: &::network::Block| Block::new(network, block, kind, format);

        let (first, representation) = parts(&layers.representation);
        let stem = folded::pad_inputs(fold(network, first)?, rules)?;
        let representation = representation.iter().map(block).collect::<Result<_, _>>()?;
        let of_step = layers.dynamics.as_ref().map(|layers| Transition::new(network, &layers.transition, kind));
        let chance = layers.chance.as_ref().map(|chance| Chance::new(network, chance, kind));
        let mut residual = Self {
            representation_stem: folded::arrange(stem, format)?.cast(kind)?,
            representation,
            dynamics: of_step.transpose()?,
            heads: Heads::new(network, &heads::all(layers), kind)?,
            chance: chance.transpose()?,
            fusing: Fusing::Separate,
            architecture,
            rules,
        };
        residual.fusing = residual.measured_fusing(precision)?;
        Ok(residual)
    }

    /// Compares fused convolutions of every size with separate operations, where the device has fused operators.
    fn measured_fusing(&self, precision: Precision) -> Result<Fusing, Error> {
        let device = self.heads.convolution.weight.device();
        let samples = || {
            let of_step = self.dynamics.as_ref().map(|dynamics| &dynamics.stem);
            let of_chance = self.chance.as_ref().map(|chance| &chance.heads.convolution);
            let layers =
                [&self.representation_stem, &self.heads.convolution].into_iter().chain(of_step).chain(of_chance);
            let pairs = layers.flat_map(|layer| [16, 256].map(|positions| (layer, positions)));
            let format = self.rules.memory_format;
            pairs.map(|(layer, positions)| folded::sample(layer, &self.architecture, positions, format)).collect()
        };
        fusing::on_device(&self.architecture, device, precision, samples)
    }

    fn chance(&self) -> Result<&Chance, Error> {
        self.chance.as_ref().ok_or(heads::NO_CHANCE)
    }

    fn transition(&self, transition: &Transition, states: &Tensor, choices: &Tensor) -> Result<Tensor, Error> {
        let planes = self.planes(&transition.by_choice.f_index_select(0, choices)?)?;
        let of_choices = layers::convolve(&planes, &transition.choice_stem, None)?;
        let x = self.fusing.convolve_add_relu(&transition.stem, &self.planes(states)?, &of_choices)?;
        self.trunk(x, &transition.blocks)
    }

    /// Maps states to the outputs of the first matrices of `heads`, `[heads, B, out]`.
    fn features(&self, heads: &Heads, states: &Tensor) -> Result<Tensor, Error> {
        let planes = self.fusing.convolve_relu(&heads.convolution, &self.planes(states)?)?;
        heads.features.apply(&self.by_head(&planes, heads.count)?)
    }

    /// Applies residual blocks, `[B, C, H, W]` to rows, and rescales the states.
    fn trunk(&self, mut x: Tensor, blocks: &[Block]) -> Result<Tensor, Error> {
        for block in blocks {
            x = block.forward(&x, self.fusing)?;
        }
        rescale(&self.format().flatten(&x)?)
    }

    /// Converts rows `[B, H · W · C]` or `[B, C · H · W]` to `[B, C, H, W]` in the format of the device.
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

    /// Splits the features of all heads `[B, heads · 32, H, W]` into `[heads, B, H · W · 32]`, or
    /// `[heads, B, 32 · H · W]`.
    fn by_head(&self, features: &Tensor, heads: usize) -> Result<Tensor, Error> {
        let ((count, ..), heads) = (features.size4()?, size(heads));
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

impl Layers for Residual {
    fn represent(&self, observations: &Tensor) -> Result<Tensor, Error> {
        let missing = folded::padding(self.architecture.planes, self.rules);
        let padded = (missing > 0).then(|| observations.f_constant_pad_nd([0, 0, 0, 0, 0, missing])).transpose()?;
        let observations = self.format().arrange(padded.as_ref().unwrap_or(observations))?;
        let x = self.fusing.convolve_relu(&self.representation_stem, &observations)?;
        self.trunk(x, &self.representation)
    }

    fn next(&self, states: &Tensor, choices: &Tensor) -> Result<Tensor, Error> {
        self.transition(self.dynamics.as_ref().ok_or(heads::NO_DYNAMICS)?, states, choices)
    }

    fn act(&self, states: &Tensor, actions: &Tensor) -> Result<Tensor, Error> {
        self.transition(&self.chance()?.dynamics, states, actions)
    }

    fn predict(&self, states: &Tensor) -> Result<Tensor, Error> {
        let features = self.features(&self.heads, states)?;
        let policy = features.f_select(0, 0)?.f_narrow(1, 0, size(self.architecture.actions))?;
        let scalars = features.size()[0] - 1;
        let hidden = features.f_narrow(0, 1, scalars)?.f_narrow(2, 0, size(VALUE_HIDDEN))?.f_relu()?;
        heads::answers(&policy, &self.heads.outputs.apply(&hidden)?)
    }

    fn predict_afterstates(&self, afterstates: &Tensor) -> Result<Tensor, Error> {
        let Chance { heads, atoms, .. } = self.chance()?;
        let logits = heads.outputs.apply(&self.features(heads, afterstates)?.f_relu()?)?.f_to_kind(Kind::Float)?;
        let codes = logits.f_select(0, 0)?.f_narrow(1, 0, size(self.architecture.model.codes()))?;
        let values = categorical::value(&logits.f_select(0, 1)?.f_narrow(1, 0, size(*atoms))?)?;
        Ok(Tensor::f_cat(&[codes, values.f_unsqueeze(-1)?], 1)?)
    }
}

impl Transition {
    fn new(network: &Network, transition: &network::Transition, kind: Kind) -> Result<Self, Error> {
        let choices = transition.action.as_ref().expect("residual networks map actions to planes");
        let (architecture, rules) = (network.architecture(), network.rules);
        let format = rules.memory_format;
        let (first, blocks) = parts(&transition.trunk);
        let first = fold(network, first)?;
        let channels = size(architecture.channels);
        let of_states = Affine::new(first.weight.f_narrow(1, 0, channels)?, first.bias.shallow_clone());
        let of_choices = first.weight.f_narrow(1, channels, size(ACTION_PLANES))?;
        let of_choices = folded::pad_inputs(Affine::new(of_choices, first.bias), rules)?;
        Ok(Self {
            by_choice: choice_planes(&folded::linear(network, choices)?, architecture, rules)?.f_to_kind(kind)?,
            choice_stem: folded::arrange(of_choices, format)?.cast(kind)?.weight,
            stem: folded::arrange(of_states, format)?.cast(kind)?,
            blocks: blocks.iter().map(|block| Block::new(network, block, kind, format)).collect::<Result<_, _>>()?,
        })
    }
}

impl Heads {
    fn new(network: &Network, heads: &[&Head], kind: Kind) -> Result<Self, Error> {
        let format = network.rules.memory_format;
        let of_features: Vec<&Layer> = heads.iter().map(|head| head.hidden.as_ref().unwrap_or(&head.output)).collect();
        let of_units = heads.iter().filter(|head| head.hidden.is_some());
        let of_units: Vec<&Layer> = of_units.map(|head| &head.output).collect();
        Ok(Self {
            count: heads.len(),
            convolution: folded::arrange(joined(network, heads)?, format)?.cast(kind)?,
            features: Batched::new(network, &of_features, kind, |weight| format.columns(weight, HEAD_CHANNELS))?,
            outputs: Batched::new(network, &of_units, kind, |weight| Ok(weight.shallow_clone()))?,
        })
    }
}

impl Chance {
    fn new(network: &Network, layers: &ChanceLayers, kind: Kind) -> Result<Self, Error> {
        Ok(Self {
            dynamics: Transition::new(network, &layers.afterstate, kind)?,
            heads: Heads::new(network, &[&layers.code, &layers.value], kind)?,
            atoms: layers.value.output.outputs,
        })
    }
}

/// Returns the stem and the blocks of a trunk.
fn parts(trunk: &Trunk) -> (&Layer, &[::network::Block]) {
    match trunk {
        Trunk::Residual { stem, blocks } => (stem, blocks),
        Trunk::Dense { .. } => unreachable!("networks of planes are residual"),
    }
}

/// Returns the planes of each choice in the format of the device, `[A, H · W · 4]` or `[A, 4 · H · W]`, with zero
/// planes up to the multiple that the device prefers.
fn choice_planes(matrix: &Affine, architecture: &Architecture, rules: DeviceRules) -> Result<Tensor, Error> {
    let &Architecture { height, width, .. } = architecture;
    let [height, width] = [height, width].map(size);
    // A one-hot vector selects a column.
    let planes = matrix.weight.f_transpose(0, 1)?.f_add(&matrix.bias)?;
    let planes = planes.f_reshape([-1, size(ACTION_PLANES), height, width])?;
    let padded = planes.f_constant_pad_nd([0, 0, 0, 0, 0, folded::padding(ACTION_PLANES, rules)])?;
    Ok(rules.memory_format.flatten(&padded)?.f_contiguous()?)
}

/// Returns the convolutions before the heads as one.
fn joined(network: &Network, heads: &[&Head]) -> Result<Affine, Error> {
    let convolution =
        |head: &Head| fold(network, head.convolution.as_ref().expect("residual heads have a convolution"));
    let parts = heads.iter().map(|head| convolution(head)).collect::<Result<Vec<_>, _>>()?;
    let join = |part: fn(&Affine) -> &Tensor| Tensor::f_cat(&parts.iter().map(part).collect::<Vec<_>>(), 0);
    Ok(Affine::new(join(|part| &part.weight)?, join(|part| &part.bias)?))
}
