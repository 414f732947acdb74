use network::{HEAD_CHANNELS, Layer, NORM_EPSILON, Role, VALUE_HIDDEN};
use tch::{Device, Kind, Tensor};
use weights::Architecture;

use crate::{
    Error, Network, Precision,
    layers::{self, Affine, Excitation},
};

/// A network for inference: every batch norm folded into the convolution before it, the two heads joined.
///
/// The joined head is one 1×1 convolution to 64 channels and one matrix to `[A + 64]`: logits of the policy and hidden
/// units of the value, with zeros where the other head's channels are. The time of small batches depends on the number
/// of operations, not of multiplications.
///
/// Rejected alternatives: weights packed beforehand for oneDNN force a blocked layout on the activations and halve the
/// speed; libtorch's fused add and ReLU does not support bf16.
#[derive(Debug)]
pub(crate) struct Folded {
    architecture: Architecture,
    device: Device,
    kind: Kind,
    stem: Affine,
    blocks: Vec<Block>,
    /// The 1×1 convolution of both heads.
    head: Affine,
    joined: Affine,
    value: Affine,
}

/// A residual block.
#[derive(Debug)]
struct Block {
    first: Affine,
    pooling: Option<Affine>,
    second: Affine,
    excitation: Option<Excitation>,
}

impl Folded {
    pub(crate) fn new(network: &Network, precision: Precision) -> Result<Self, Error> {
        let _guard = tch::no_grad_guard();
        let (layers, kind) = (&network.layers, precision.kind());
        Ok(Self {
            device: network.device(),
            kind,
            stem: convolution(network, &layers.stem, kind)?,
            blocks: layers.blocks.iter().map(|block| Block::new(network, block, kind)).collect::<Result<_, _>>()?,
            head: channels_last(heads(network)?)?.cast(kind)?,
            joined: join(network)?.cast(kind)?,
            value: linear(network, &layers.value_output)?.cast(kind)?,
            architecture: network.architecture().clone(),
        })
    }

    /// Folds `network`, which is on the CPU, for evaluation on another device; [`to_device`](Self::to_device) moves it there.
    pub(crate) fn on_host(network: &Network, precision: Precision, _device: Device) -> Result<Self, Error> {
        Self::new(network, precision)
    }

    /// The architecture of the network.
    pub(crate) fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// Moves the weights to `device`.
    pub(crate) fn to_device(self, device: Device) -> Result<Self, Error> {
        let _guard = tch::no_grad_guard();
        let moved = |affine: Affine| -> Result<Affine, Error> {
            Ok(Affine { weight: affine.weight.f_to_device(device)?, bias: affine.bias.f_to_device(device)? })
        };
        let block = |block: Block| -> Result<Block, Error> {
            let excitation = |Excitation { hidden, output }| {
                Ok::<_, Error>(Excitation { hidden: moved(hidden)?, output: moved(output)? })
            };
            Ok(Block {
                first: moved(block.first)?,
                pooling: block.pooling.map(moved).transpose()?,
                second: moved(block.second)?,
                excitation: block.excitation.map(excitation).transpose()?,
            })
        };
        Ok(Self {
            device,
            stem: moved(self.stem)?,
            blocks: self.blocks.into_iter().map(block).collect::<Result<_, _>>()?,
            head: moved(self.head)?,
            joined: moved(self.joined)?,
            value: moved(self.value)?,
            ..self
        })
    }

    /// Evaluates observations `[B, H, W, C]` in memory order, float32, on the CPU, to logits `[B, A + 3]`, float32, on
    /// the device.
    ///
    /// With CUDA this does not wait: observations in pinned memory must not change until the logits are read.
    pub(crate) fn forward(&self, observations: &Tensor, positions: usize) -> Result<Tensor, Error> {
        let Architecture { planes, height, width, actions, .. } = self.architecture;
        let size = |n: usize| i64::try_from(n).expect("a batch fits memory");
        let input = observations
            .f_view([size(positions), size(height), size(width), size(planes)])?
            .f_to_device_(self.device, Kind::Float, self.device.is_cuda(), false)?
            .f_permute([0, 3, 1, 2])?
            .f_to_kind(self.kind)?;

        let mut x = self.stem.convolve(&input)?;
        let _ = x.f_relu_()?;
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        let mut features = self.head.convolve(&x)?;
        let _ = features.f_relu_()?;
        let features = features.f_permute([0, 2, 3, 1])?.f_reshape([size(positions), -1])?;
        let both = self.joined.linear(&features)?;
        let policy = both.f_narrow(1, 0, size(actions))?;
        let hidden = both.f_narrow(1, size(actions), size(VALUE_HIDDEN))?.f_relu()?;
        let value = self.value.linear(&hidden)?;
        Ok(Tensor::f_cat(&[policy, value], 1)?.f_to_kind(Kind::Float)?)
    }
}

impl Block {
    fn new(network: &Network, block: &::network::Block, kind: Kind) -> Result<Self, Error> {
        let matrix = |layer: &Layer| linear(network, layer)?.cast(kind);
        let excitation =
            |::network::Excitation { hidden, output }: &::network::Excitation| -> Result<Excitation, Error> {
                Ok(Excitation { hidden: matrix(hidden)?, output: matrix(output)? })
            };
        Ok(Self {
            first: convolution(network, &block.first, kind)?,
            pooling: block.pooling.as_ref().map(matrix).transpose()?,
            second: convolution(network, &block.second, kind)?,
            excitation: block.excitation.as_ref().map(excitation).transpose()?,
        })
    }

    /// `[B, F, H, W]` to `[B, F, H, W]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let mut y = self.first.convolve(x)?;
        if let Some(pooling) = &self.pooling {
            layers::pool(&mut y, pooling)?;
        }
        let _ = y.f_relu_()?;
        let mut z = self.second.convolve(&y)?;
        if let Some(excitation) = &self.excitation {
            z = excitation.excite(&z)?;
        }
        let _ = z.f_add_(x)?.f_relu_()?;
        Ok(z)
    }
}

/// A convolution with its batch norm folded in, channels last.
fn convolution(network: &Network, layer: &Layer, kind: Kind) -> Result<Affine, Error> {
    channels_last(fold(network, layer)?)?.cast(kind)
}

/// The convolutions in front of the two heads as one, the policy's channels first.
fn heads(network: &Network) -> Result<Affine, Error> {
    let (policy, value) = (fold(network, &network.layers.policy)?, fold(network, &network.layers.value)?);
    Ok(Affine {
        weight: Tensor::f_cat(&[policy.weight, value.weight], 0)?,
        bias: Tensor::f_cat(&[policy.bias, value.bias], 0)?,
    })
}

/// Folds a batch norm into its convolution by the rule of [`network::LayerKind::Convolution`].
fn fold(network: &Network, layer: &Layer) -> Result<Affine, Error> {
    let variance = network.of(layer, Role::NormVariance);
    let gamma = network.of(layer, Role::NormScale);
    let beta = network.of(layer, Role::NormShift);
    let mean = network.of(layer, Role::NormMean);
    let scale = gamma.f_div(&variance.f_add_scalar(NORM_EPSILON)?.f_sqrt()?)?;
    let weight = network.of(layer, Role::Convolution);
    Ok(Affine {
        weight: weight.f_mul(&scale.f_view([-1, 1, 1, 1])?)?,
        bias: beta.f_sub(&mean.f_mul(&scale)?)?.f_detach()?,
    })
}

/// Copies a linear layer, since training may continue with `network`.
fn linear(network: &Network, layer: &Layer) -> Result<Affine, Error> {
    Ok(Affine {
        weight: network.of(layer, Role::Linear).f_detach_copy()?,
        bias: network.of(layer, Role::Bias).f_detach_copy()?,
    })
}

/// The two matrices over `[cells, 32]` features as one over `[cells, 64]`: the policy's channels first in each cell.
fn join(network: &Network) -> Result<Affine, Error> {
    let size = |n: usize| i64::try_from(n).expect("dimensions were checked");
    let layers = &network.layers;
    let (policy, value) = (linear(network, &layers.policy_output)?, linear(network, &layers.value_hidden)?);
    let by_cell = |weight: &Tensor| weight.f_view([weight.size()[0], -1, size(HEAD_CHANNELS)]);
    let (policy_weight, value_weight) = (by_cell(&policy.weight)?, by_cell(&value.weight)?);
    let policy_rows = Tensor::f_cat(&[&policy_weight, &policy_weight.f_zeros_like()?], 2)?;
    let value_rows = Tensor::f_cat(&[&value_weight.f_zeros_like()?, &value_weight], 2)?;
    let rows = policy_weight.size()[0] + size(VALUE_HIDDEN);
    Ok(Affine {
        weight: Tensor::f_cat(&[policy_rows, value_rows], 0)?.f_view([rows, -1])?,
        bias: Tensor::f_cat(&[policy.bias, value.bias], 0)?,
    })
}

/// Reorders the weights in memory so that the input channel varies fastest.
fn channels_last(affine: Affine) -> Result<Affine, Error> {
    let weight = affine.weight.f_permute([0, 2, 3, 1])?.f_contiguous()?.f_permute([0, 3, 1, 2])?;
    Ok(Affine { weight, bias: affine.bias })
}

#[cfg(test)]
mod tests {
    use tch::{Kind, Tensor};

    use super::Folded;
    use crate::{
        Precision, layout,
        tests::networks::{assert_close, batch, complete, numbers, observations, seasoned, small, tiny},
        tower::{Mode, forward},
    };

    fn differs_from_the_tower_by_at_most(precision: Precision, tolerance: f64) {
        for architecture in [tiny(), small(), complete()] {
            let network = seasoned(&architecture, 21);
            let batch = batch(&architecture, 6, 22);
            let whole = forward(&network, &observations(&architecture, &batch), Kind::Float, Mode::Evaluation).unwrap();

            let mut staged = vec![0.0; batch.observations.len()];
            let cells = architecture.height * architecture.width;
            layout::channels_last(&batch.observations, architecture.planes, cells, &mut staged);
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
    fn the_folded_network_in_bf16_stays_near_float32() {
        differs_from_the_tower_by_at_most(Precision::Bf16, 0.05);
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
