mod heads;

use std::cell::RefCell;

use network::{Activation, Layer, NORM_EPSILON, NormKind, Role};
use tch::{Device, Kind, Tensor};
use weights::Architecture;

use crate::{
    DeviceRules, Error, MemoryFormat, Network,
    attention::{self, Attention, Pass},
    convolution::Convolution,
    dispatcher,
    fusing::{self, Fusing, Sample},
    layers::{self, Affine, Change, Excitation, size},
};
use heads::Heads;
use inference::Precision;

/// A network for inference: every batch norm folded into the preceding convolution, the two heads joined as
/// [`Heads`]. Norms of single positions stay separate.
///
/// On CUDA, bias, addition and ReLU are computed inside the convolutions: see [`Fusing`]. Rejected alternatives on
/// the CPU: weights packed beforehand for oneDNN force a blocked layout on the activations and halve the speed;
/// libtorch's fused add and ReLU does not support bf16.
#[derive(Debug)]
pub(crate) struct Folded {
    architecture: Architecture,
    device: Device,
    precision: Precision,
    rules: DeviceRules,
    fusing: Fusing,
    /// Takes the planes of an observation, and zero planes up to the multiple that the device prefers.
    stem: Convolution,
    blocks: Vec<Block>,
    attention: Vec<Attention>,
    /// 1×1 convolution of both heads.
    head: Convolution,
    heads: Heads,
    value: Affine,
}

/// A residual block, with batch norms folded.
#[derive(Debug)]
pub(crate) struct Block {
    activation: Activation,
    /// In a bottleneck only.
    down: Option<Convolution>,
    first: Convolution,
    pooling: Option<Affine>,
    second: Convolution,
    /// In a bottleneck only.
    up: Option<Convolution>,
    excitation: Option<Excitation>,
}

impl Folded {
    /// Folds `network` on the network's device.
    pub(crate) fn new(network: &Network, precision: Precision) -> Result<Self, Error> {
        Self::on_host(network, precision, network.device())?.moved_to(network.device())
    }

    /// Folds `network` in place, in the formats of `device`; [`moved_to`](Self::moved_to) transfers the result there.
    pub(crate) fn on_host(network: &Network, precision: Precision, device: Device) -> Result<Self, Error> {
        let rules = if device == network.device() { network.rules } else { DeviceRules::of(device) };
        let _guard = tch::no_grad_guard();
        let (layers, kind, format) = (network.layers.alphazero()?, crate::rules::kind(precision), rules.memory_format);
        let block = |block: &::network::Block| Block::new(network, block, kind, format);
        Ok(Self {
            device: network.device(),
            precision,
            rules,
            fusing: Fusing::Separate,
            stem: Convolution::new(network, &[&layers.stem], kind, format, |affine| pad_inputs(affine, rules))?,
            blocks: layers.blocks.iter().map(block).collect::<Result<_, _>>()?,
            attention: layers
                .attention
                .iter()
                .map(|block| Attention::to_evaluate(network, block, kind))
                .collect::<Result<_, _>>()?,
            head: Convolution::new(network, &[&layers.policy, &layers.value], kind, format, Ok)?,
            heads: Heads::new(network, kind, format)?,
            value: linear(network, &layers.value_output)?.cast(kind)?,
            architecture: network.architecture().clone(),
        })
    }

    /// Returns the same network with convolutions computed by `fusing`.
    #[cfg(test)]
    pub(crate) fn with_fusing(self, fusing: Fusing) -> Self {
        Self { fusing, ..self }
    }

    /// Returns the architecture of the network.
    pub(crate) fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// Returns the device of the weights.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Copies the weights to memory from which a device copies without waiting. Where the system cannot pin memory,
    /// copies are slower but equally correct.
    pub(crate) fn pinned(&self) -> Result<Self, Error> {
        let is_pinned = self.rules.pins_host_memory;
        let pinned = |tensor: &Tensor| if is_pinned { dispatcher::pinned(tensor).ok() } else { None };
        self.each(&|tensor| Ok(pinned(tensor).unwrap_or_else(|| tensor.shallow_clone())))
    }

    /// Moves the weights to the device for which they were folded, and determines which operators can be fused there.
    pub(crate) fn moved_to(&self, device: Device) -> Result<Self, Error> {
        let _guard = tch::no_grad_guard();
        let is_queued = self.rules.pins_host_memory;
        let moved = self.each(&|tensor| Ok(tensor.f_to_device_(device, tensor.f_kind()?, is_queued, false)?))?;
        let mut folded = Self { device, ..moved };
        folded.fusing = fusing::on_device(&folded.architecture, device, folded.precision, || folded.samples())?;
        Ok(folded)
    }

    /// Returns the same network in new memory, with each tensor in the same format.
    pub(crate) fn copied(&self) -> Result<Self, Error> {
        self.each(&|tensor| {
            let copy = tensor.f_empty_like()?;
            dispatcher::copy(&copy, tensor)?;
            Ok(copy)
        })
    }

    /// Replaces the weights by the weights of a network with the same architecture, in the same memory.
    pub(crate) fn copy_from(&mut self, other: &Self) -> Result<(), Error> {
        let mut pairs = self.tensors()?.into_iter().zip(other.tensors()?);
        pairs.try_for_each(|(to, from)| dispatcher::copy(&to, &from))
    }

    /// Returns every tensor, in a fixed order.
    fn tensors(&self) -> Result<Vec<Tensor>, Error> {
        let tensors = RefCell::new(Vec::new());
        self.each(&|tensor| {
            tensors.borrow_mut().push(tensor.shallow_clone());
            Ok(tensor.shallow_clone())
        })?;
        Ok(tensors.into_inner())
    }

    /// Returns the network with every tensor replaced.
    fn each(&self, change: Change<'_>) -> Result<Self, Error> {
        let convolution = |layer: &Option<Convolution>| layer.as_ref().map(|layer| layer.each(change)).transpose();
        let block = |block: &Block| -> Result<Block, Error> {
            let excitation = |Excitation { hidden, output }: &Excitation| {
                Ok::<_, Error>(Excitation { hidden: hidden.each(change)?, output: output.each(change)? })
            };
            Ok(Block {
                activation: block.activation,
                down: convolution(&block.down)?,
                first: block.first.each(change)?,
                pooling: block.pooling.as_ref().map(|affine| affine.each(change)).transpose()?,
                second: block.second.each(change)?,
                up: convolution(&block.up)?,
                excitation: block.excitation.as_ref().map(excitation).transpose()?,
            })
        };
        Ok(Self {
            architecture: self.architecture.clone(),
            device: self.device,
            precision: self.precision,
            rules: self.rules,
            fusing: self.fusing,
            stem: self.stem.each(change)?,
            blocks: self.blocks.iter().map(block).collect::<Result<_, _>>()?,
            attention: self.attention.iter().map(|block| block.each(change)).collect::<Result<_, _>>()?,
            head: self.head.each(change)?,
            heads: self.heads.each(change)?,
            value: self.value.each(change)?,
        })
    }

    /// Returns every size of convolution in the network, with inputs of a few batch sizes.
    fn samples(&self) -> Result<Vec<Sample<'_>>, Error> {
        let layers =
            std::iter::once(&self.stem).chain(self.blocks.first().map(|block| &block.first)).chain([&self.head]);
        let pairs = layers.flat_map(|layer| [16, 256].map(|positions| (&layer.affine, positions)));
        pairs.map(|(layer, positions)| self.sample(layer, positions)).collect()
    }

    fn sample<'a>(&self, layer: &'a Affine, positions: i64) -> Result<Sample<'a>, Error> {
        sample(layer, &self.architecture, positions, self.rules.memory_format)
    }

    /// Evaluates observations `[B, H, W, C]` in memory order, float32, on the CPU, to logits `[B, A + 3]`, float32,
    /// on the device.
    ///
    /// With CUDA this does not wait: observations in pinned memory must not change until the logits are read.
    pub(crate) fn forward(&self, observations: &Tensor, positions: usize) -> Result<Tensor, Error> {
        let Architecture { planes, height, width, .. } = self.architecture;
        let format = self.rules.memory_format;
        let mut input = observations
            .f_view([size(positions), size(height), size(width), size(planes)])?
            .f_to_device_(self.device, Kind::Float, self.rules.pins_host_memory, false)?
            .f_to_kind(crate::rules::kind(self.precision))?;
        let missing = padding(planes, self.rules);
        if missing > 0 {
            input = input.f_constant_pad_nd([0, missing])?;
        }
        let input = format.arrange(&input.f_permute([0, 3, 1, 2])?)?;

        let activation = self.architecture.design.activation;
        let mut x = self.stem.activated(&input, self.fusing, activation)?;
        for block in &self.blocks {
            x = block.forward(&x, self.fusing)?;
        }
        if !self.attention.is_empty() {
            let cells = attention::to_cells(&x)?;
            let cells = self.attention.iter().try_fold(cells, |cells, block| block.forward(&cells, Pass::Fused))?;
            x = attention::to_maps(&cells, &x, format)?;
        }
        let features = self.head.activated(&x, self.fusing, activation)?;
        let (mut logits, hidden) = self.heads.forward(&features, format)?;
        logits.push(self.value.linear(&layers::activated(&hidden, activation)?)?);
        Ok(Tensor::f_cat(&logits, 1)?.f_to_kind(Kind::Float)?)
    }
}

impl Block {
    /// Folds a block of `network`, with numbers in `kind` and convolutions in `format`.
    pub(crate) fn new(
        network: &Network,
        block: &::network::Block,
        kind: Kind,
        format: MemoryFormat,
    ) -> Result<Self, Error> {
        let fold = |layer: &Layer| Convolution::new(network, &[layer], kind, format, Ok);
        let matrix = |layer: &Layer| linear(network, layer)?.cast(kind);
        let excitation = |::network::Excitation { hidden, output }: &::network::Excitation| {
            Ok::<_, Error>(Excitation { hidden: matrix(hidden)?, output: matrix(output)? })
        };
        Ok(Self {
            activation: network.architecture().design.activation,
            down: block.down.as_ref().map(fold).transpose()?,
            first: fold(&block.first)?,
            pooling: block.pooling.as_ref().map(matrix).transpose()?,
            second: fold(&block.second)?,
            up: block.up.as_ref().map(fold).transpose()?,
            excitation: block.excitation.as_ref().map(excitation).transpose()?,
        })
    }

    /// Applies the block, `[B, F, H, W]` to `[B, F, H, W]`. Global pooling comes before the first activation and
    /// excitation before the addition, so that the convolution before either is not fused.
    pub(crate) fn forward(&self, x: &Tensor, fusing: Fusing) -> Result<Tensor, Error> {
        let activated = |convolution: &Convolution, x: &Tensor| convolution.activated(x, fusing, self.activation);
        let narrow = self.down.as_ref().map(|down| activated(down, x)).transpose()?;
        let input = narrow.as_ref().unwrap_or(x);
        let y = match &self.pooling {
            None => activated(&self.first, input)?,
            Some(pooling) => {
                let y = layers::pool(self.first.normed(input)?, pooling, self.activation)?;
                layers::activate(y, self.activation)?
            }
        };
        let (last, y) = match &self.up {
            Some(up) => (up, activated(&self.second, &y)?),
            None => (&self.second, y),
        };
        match &self.excitation {
            None => last.added_activated(&y, x, fusing, self.activation),
            Some(excitation) => {
                let mut z = excitation.excite(&last.normed(&y)?)?;
                let _ = z.f_add_(x)?;
                layers::activate(z, self.activation)
            }
        }
    }
}

/// Returns a convolution with inputs of `positions` positions, for comparing fused operators with separate
/// operations.
pub(crate) fn sample<'a>(
    layer: &'a Affine,
    architecture: &Architecture,
    positions: i64,
    format: MemoryFormat,
) -> Result<Sample<'a>, Error> {
    let &Architecture { height, width, .. } = architecture;
    let (outputs, inputs, ..) = layer.weight.size4()?;
    let (kind, device) = (layer.weight.f_kind()?, layer.weight.device());
    let numbers = |channels: i64| -> Result<Tensor, Error> {
        let shape = [positions, channels, size(height), size(width)];
        let angles = Tensor::f_arange(shape.iter().product::<i64>(), (Kind::Float, device))?;
        format.arrange(&angles.f_sin()?.f_view(shape)?.f_to_kind(kind)?)
    };
    Ok(Sample { layer, x: numbers(inputs)?, skip: numbers(outputs)? })
}

/// Folds a batch norm into the convolution as described in [`network::LayerKind::Convolution`]. With another norm the
/// bias is 0.
pub(crate) fn fold(network: &Network, layer: &Layer) -> Result<Affine, Error> {
    if network.architecture().design.norm != NormKind::Batch {
        let weight = network.of(layer, Role::Convolution).f_detach_copy()?;
        return Ok(Affine::new(weight, network.of(layer, Role::NormShift).f_zeros_like()?));
    }
    let variance = network.of(layer, Role::NormVariance);
    let gamma = network.of(layer, Role::NormScale);
    let beta = network.of(layer, Role::NormShift);
    let mean = network.of(layer, Role::NormMean);
    let scale = gamma.f_div(&variance.f_add_scalar(NORM_EPSILON)?.f_sqrt()?)?;
    let weight = network.of(layer, Role::Convolution);
    Ok(Affine::new(weight.f_mul(&scale.f_view([-1, 1, 1, 1])?)?, beta.f_sub(&mean.f_mul(&scale)?)?.f_detach()?))
}

/// Copies a linear layer, since training may continue with `network`.
pub(crate) fn linear(network: &Network, layer: &Layer) -> Result<Affine, Error> {
    Ok(Affine::new(network.of(layer, Role::Linear).f_detach_copy()?, network.of(layer, Role::Bias).f_detach_copy()?))
}

/// Reorders the weights of a convolution in memory.
pub(crate) fn arrange(affine: Affine, format: MemoryFormat) -> Result<Affine, Error> {
    Ok(Affine::new(format.arrange(&affine.weight)?, affine.bias))
}

/// Extends a convolution by inputs without effect, up to the number of planes that the device prefers.
pub(crate) fn pad_inputs(affine: Affine, rules: DeviceRules) -> Result<Affine, Error> {
    let (_, planes, ..) = affine.weight.size4()?;
    match padding(usize::try_from(planes).expect("sizes are not negative"), rules) {
        0 => Ok(affine),
        missing => Ok(Affine::new(affine.weight.f_constant_pad_nd([0, 0, 0, 0, 0, missing])?, affine.bias)),
    }
}

/// Returns the number of zero planes after `planes`.
pub(crate) fn padding(planes: usize, rules: DeviceRules) -> i64 {
    size(planes.next_multiple_of(rules.planes_multiple) - planes)
}

#[cfg(test)]
mod tests {
    use network::Activation;
    use tch::{Kind, Tensor};

    use super::Folded;
    use crate::{
        layout,
        tests::networks::{
            activated, assert_close, batch, bottleneck, complete, numbers, observations, of_positions, on, pooled,
            seasoned, small, tiny,
        },
        tower::{Mode, forward},
    };
    use inference::Precision;

    fn differs_from_the_tower_by_at_most(precision: Precision, tolerance: f64) {
        let others = Activation::ALL.map(activated);
        let plain = [tiny(), small(), complete()].into_iter().chain(others).chain([bottleneck()]);
        let with_pooled_heads = pooled().into_iter().chain([on(&pooled()[0], [2, 7])]);
        for architecture in plain.chain(of_positions()).chain(with_pooled_heads) {
            let network = seasoned(&architecture, 21);
            let batch = batch(&architecture, 6, 22);
            let whole = forward(&network, &observations(&architecture, &batch), Kind::Float, Mode::Evaluation).unwrap();

            let mut staged = vec![0.0; batch.observations.len()];
            let cells = architecture.height * architecture.width;
            layout::channels_last(&batch.observations.to_floats(), architecture.planes, cells, &mut staged);
            let folded = Folded::new(&network, precision).unwrap().forward(&Tensor::from_slice(&staged), 6).unwrap();
            let actions = i64::try_from(architecture.actions).unwrap();
            assert_close(&numbers(&folded.narrow(1, 0, actions)), &numbers(&whole.policy), tolerance);
            assert_close(&numbers(&folded.narrow(1, actions, 3)), &numbers(&whole.value), tolerance);
        }
    }

    #[test]
    fn the_folded_network_answers_as_the_unfolded_one() {
        differs_from_the_tower_by_at_most(Precision::F32, 1e-5);
    }

    #[test]
    fn the_folded_network_in_bf16_and_f16_stays_near_float32() {
        differs_from_the_tower_by_at_most(Precision::Bf16, 0.05);
        differs_from_the_tower_by_at_most(Precision::F16, 0.01);
    }

    #[test]
    fn a_copy_holds_other_weights_in_the_same_memory_and_answers_as_their_network() {
        for architecture in [complete(), bottleneck(), pooled()[0].clone()].into_iter().chain(of_positions()) {
            let [own, other] =
                [21, 22].map(|seed| Folded::new(&seasoned(&architecture, seed), Precision::F32).unwrap());
            let numbers_of_board = architecture.planes * architecture.height * architecture.width;
            let observations = Tensor::from_slice(&vec![0.5_f32; numbers_of_board]);
            let answers = |folded: &Folded| numbers(&folded.forward(&observations, 1).unwrap());
            let mut copy = own.copied().unwrap();
            let places = |folded: &Folded| folded.tensors().unwrap().iter().map(Tensor::data_ptr).collect::<Vec<_>>();
            let before = places(&copy);
            assert_eq!(answers(&copy), answers(&own));
            copy.copy_from(&other).unwrap();
            assert_eq!(answers(&copy), answers(&other));
            assert_ne!(answers(&copy), answers(&own), "the copy shares no memory with the network");
            assert_eq!(places(&copy), before);
        }
    }

    #[test]
    fn a_folded_network_does_not_change_with_later_training() {
        let network = seasoned(&complete(), 23);
        let folded = Folded::new(&network, Precision::F32).unwrap();
        let observations = Tensor::from_slice(&[1.0_f32; 2 * 3 * 4]);
        let before = numbers(&folded.forward(&observations, 1).unwrap());
        tch::no_grad(|| network.flat_parameters.shallow_clone().f_add_scalar_(0.1).map(drop)).unwrap();
        assert_eq!(numbers(&folded.forward(&observations, 1).unwrap()), before);
    }
}
