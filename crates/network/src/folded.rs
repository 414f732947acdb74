use tch::{Device, Kind, Tensor};
use weights::Architecture;

use crate::{
    Error, Network, Precision,
    layout::{HEAD_CHANNELS, VALUE_HIDDEN},
    tower::NORM_EPSILON,
};

/// A network for inference: every batch norm folded into the convolution before it, the two heads joined.
///
/// The joined head is one 1×1 convolution to 64 channels and one matrix to `[A + 64]`: logits of the policy and hidden
/// units of the value, with zeros where the other head's channels are. Small batches pay for operations, not for
/// multiplications.
///
/// Roads not taken: weights packed beforehand for oneDNN force a blocked layout on the activations and halve the speed;
/// libtorch's fused add and ReLU does not know bf16.
#[derive(Debug)]
pub(crate) struct Folded {
    architecture: Architecture,
    device: Device,
    kind: Kind,
    /// Stem, then two per block, then the joined head.
    convolutions: Vec<Affine>,
    joined: Affine,
    value: Affine,
}

/// A weight and its bias.
#[derive(Debug)]
struct Affine {
    weight: Tensor,
    bias: Tensor,
}

impl Folded {
    pub(crate) fn new(network: &Network, precision: Precision) -> Result<Self, Error> {
        let _guard = tch::no_grad_guard();
        let architecture = network.architecture().clone();
        let mut convolutions = vec![fold(network, "stem")?];
        for block in 0..architecture.blocks {
            convolutions.push(fold(network, &format!("block.{block}.first"))?);
            convolutions.push(fold(network, &format!("block.{block}.second"))?);
        }
        let (policy, value) = (fold(network, "policy")?, fold(network, "value")?);
        convolutions.push(Affine {
            weight: Tensor::f_cat(&[policy.weight, value.weight], 0)?,
            bias: Tensor::f_cat(&[policy.bias, value.bias], 0)?,
        });
        let (joined, value) = (join(network)?, linear(network, "value.output")?);
        let kind = precision.kind();
        let cast = |affine: Affine| -> Result<Affine, Error> {
            Ok(Affine { weight: affine.weight.f_to_kind(kind)?, bias: affine.bias.f_to_kind(kind)? })
        };
        let convolutions =
            convolutions.into_iter().map(|affine| cast(channels_last(affine)?)).collect::<Result<_, _>>()?;
        Ok(Self {
            device: network.device(),
            kind,
            convolutions,
            joined: cast(joined)?,
            value: cast(value)?,
            architecture,
        })
    }

    /// Observations `[B, H, W, C]` in memory order to logits `[B, A + 3]`, float32, on the CPU.
    pub(crate) fn forward(&self, observations: &[f32], positions: usize) -> Result<Tensor, Error> {
        let Architecture { planes, height, width, actions, .. } = self.architecture;
        let size = |n: usize| i64::try_from(n).expect("a batch fits memory");
        let input = Tensor::f_from_slice(observations)?
            .f_view([size(positions), size(height), size(width), size(planes)])?
            .f_permute([0, 3, 1, 2])?
            .f_to_device(self.device)?
            .f_to_kind(self.kind)?;

        let [stem, blocks @ .., head] = self.convolutions.as_slice() else { unreachable!("a stem and a head") };
        let mut x = convolve(&input, stem)?;
        let _ = x.f_relu_()?;
        for block in blocks.chunks_exact(2) {
            let mut y = convolve(&x, &block[0])?;
            let _ = y.f_relu_()?;
            let mut y = convolve(&y, &block[1])?;
            let _ = y.f_add_(&x)?.f_relu_()?;
            x = y;
        }
        let mut features = convolve(&x, head)?;
        let _ = features.f_relu_()?;
        let features = features.f_permute([0, 2, 3, 1])?.f_reshape([size(positions), -1])?;
        let both = features.f_linear(&self.joined.weight, Some(&self.joined.bias))?;
        let policy = both.f_narrow(1, 0, size(actions))?;
        let hidden = both.f_narrow(1, size(actions), VALUE_HIDDEN)?.f_relu()?;
        let value = hidden.f_linear(&self.value.weight, Some(&self.value.bias))?;
        Ok(Tensor::f_cat(&[policy, value], 1)?.f_to_kind(Kind::Float)?.f_to_device(Device::Cpu)?)
    }
}

fn convolve(x: &Tensor, affine: &Affine) -> Result<Tensor, Error> {
    let padding = if affine.weight.size()[2] == 3 { 1 } else { 0 };
    Ok(x.f_conv2d(&affine.weight, Some(&affine.bias), [1, 1], [padding, padding], [1, 1], 1)?)
}

/// `w' = w · γ / √(σ² + ε)`, `b' = β − μ · γ / √(σ² + ε)`.
fn fold(network: &Network, name: &str) -> Result<Affine, Error> {
    let variance = network.statistic(&format!("{name}.norm.variance"));
    let gamma = network.parameter(&format!("{name}.norm.weight"));
    let beta = network.parameter(&format!("{name}.norm.bias"));
    let mean = network.statistic(&format!("{name}.norm.mean"));
    let scale = gamma.f_div(&variance.f_add_scalar(NORM_EPSILON)?.f_sqrt()?)?;
    let weight = network.parameter(&format!("{name}.convolution.weight"));
    Ok(Affine {
        weight: weight.f_mul(&scale.f_view([-1, 1, 1, 1])?)?,
        bias: beta.f_sub(&mean.f_mul(&scale)?)?.f_detach()?,
    })
}

fn linear(network: &Network, name: &str) -> Result<Affine, Error> {
    Ok(Affine {
        weight: network.parameter(&format!("{name}.weight")).f_detach()?,
        bias: network.parameter(&format!("{name}.bias")).f_detach()?,
    })
}

/// The two matrices over `[cells, 32]` features as one over `[cells, 64]`: the policy's channels first in each cell.
fn join(network: &Network) -> Result<Affine, Error> {
    let (policy, value) = (linear(network, "policy.output")?, linear(network, "value.hidden")?);
    let by_cell = |weight: &Tensor| weight.f_view([weight.size()[0], -1, HEAD_CHANNELS]);
    let (policy_weight, value_weight) = (by_cell(&policy.weight)?, by_cell(&value.weight)?);
    let policy_rows = Tensor::f_cat(&[&policy_weight, &policy_weight.f_zeros_like()?], 2)?;
    let value_rows = Tensor::f_cat(&[&value_weight.f_zeros_like()?, &value_weight], 2)?;
    let rows = policy_weight.size()[0] + VALUE_HIDDEN;
    Ok(Affine {
        weight: Tensor::f_cat(&[policy_rows, value_rows], 0)?.f_view([rows, -1])?,
        bias: Tensor::f_cat(&[policy.bias, value.bias], 0)?,
    })
}

/// The same numbers, the input channel varying fastest in memory.
fn channels_last(affine: Affine) -> Result<Affine, Error> {
    let weight = affine.weight.f_permute([0, 2, 3, 1])?.f_contiguous()?.f_permute([0, 3, 1, 2])?;
    Ok(Affine { weight, bias: affine.bias })
}

#[cfg(test)]
mod tests;
