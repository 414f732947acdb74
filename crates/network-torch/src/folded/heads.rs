use network::{HEAD_CHANNELS, HeadKind, Layer, Layers, VALUE_HIDDEN, mean_scale};
use tch::{Kind, Tensor};

use super::{linear, size};
use crate::{
    Error, MemoryFormat, Network, attention,
    layers::{Affine, Change},
    pooled,
};

/// Joined matrices after the 1×1 convolution to the 64 channels of both heads, with zeros for the other head's
/// channels. The time for small batches depends on the number of operations, not multiplications.
#[derive(Debug)]
pub(super) enum Heads {
    /// `[A + 64, cells · 64]`: features to policy logits and hidden units of the value.
    Flattened(Affine),
    /// Matrices of pooled heads; weights for means include the multiplier of scaled means.
    Pooled {
        /// `[k, 64]`: features of a cell to the cell's logits.
        of_cells: Affine,
        /// `[m + 64, 2 · 64]`: means and maxima to the remaining logits and the hidden units of the value.
        joined: Affine,
    },
}

impl Heads {
    /// Copies the matrices of `network`, with numbers in `kind`.
    pub(super) fn new(network: &Network, kind: Kind, format: MemoryFormat) -> Result<Self, Error> {
        let layers = network.layers.alphazero()?;
        match network.architecture().design.heads {
            HeadKind::Flattened => {
                let by_cell = |layer| by_part(linear(network, layer)?);
                let Affine { weight, bias, .. } =
                    join(&by_cell(&layers.policy_output)?, &by_cell(&layers.value_hidden)?)?;
                Ok(Self::Flattened(Affine::new(format.columns(&weight, 2 * HEAD_CHANNELS)?, bias).cast(kind)?))
            }
            HeadKind::Pooled => Self::pooled(network, layers, kind),
        }
    }

    fn pooled(network: &Network, layers: &Layers, kind: Kind) -> Result<Self, Error> {
        let nothing = |parts: i64| -> Result<Affine, Error> {
            let options = (Kind::Float, network.device());
            let weight = Tensor::f_zeros([0, parts, size(HEAD_CHANNELS)], options)?;
            Ok(Affine::new(weight, Tensor::f_zeros([0_i64], options)?))
        };
        let of_means_and_maxima = |layer: &Layer| of_means_and_maxima(network, layer);
        let others = layers.policy_rest.as_ref().map_or_else(|| nothing(2), of_means_and_maxima)?;
        let of_cells = by_part(linear(network, &layers.policy_output)?)?;
        Ok(Self::Pooled {
            of_cells: join(&of_cells, &nothing(1)?)?.cast(kind)?,
            joined: join(&others, &of_means_and_maxima(&layers.value_hidden)?)?.cast(kind)?,
        })
    }

    /// Returns the heads with every matrix replaced.
    pub(super) fn each(&self, change: Change<'_>) -> Result<Self, Error> {
        Ok(match self {
            Self::Flattened(joined) => Self::Flattened(joined.each(change)?),
            Self::Pooled { of_cells, joined } => {
                Self::Pooled { of_cells: of_cells.each(change)?, joined: joined.each(change)? }
            }
        })
    }

    /// Returns policy logits in parts, together `[B, A]`, and hidden value units `[B, 64]` before the activation,
    /// given features `[B, 64, H, W]`.
    pub(super) fn forward(&self, features: &Tensor, format: MemoryFormat) -> Result<(Vec<Tensor>, Tensor), Error> {
        let (joined, of_cells) = match self {
            Self::Flattened(joined) => (joined.linear(&format.flatten(features)?)?, None),
            Self::Pooled { of_cells, joined } => {
                let cells = attention::to_cells(features)?;
                let pooled = Tensor::f_cat(&pooled::means_and_maxima(&cells)?, 1)?;
                (joined.linear(&pooled)?, Some(pooled::of_cells(of_cells, &cells)?))
            }
        };
        let logits = joined.size()[1] - size(VALUE_HIDDEN);
        let hidden = joined.f_narrow(1, logits, size(VALUE_HIDDEN))?;
        let policy = of_cells.into_iter().chain([joined.f_narrow(1, 0, logits)?]);
        Ok((policy.collect(), hidden))
    }
}

/// Views a matrix `[rows, parts · 32]` as `[rows, parts, 32]`.
fn by_part(Affine { weight, bias, .. }: Affine) -> Result<Affine, Error> {
    Ok(Affine::new(weight.f_unflatten(1, [-1, size(HEAD_CHANNELS)])?, bias))
}

/// Converts a pooled head's matrix `[rows, 3 · 32]` to one over means and maxima, `[rows, 2, 32]`.
fn of_means_and_maxima(network: &Network, layer: &Layer) -> Result<Affine, Error> {
    let Affine { weight, bias, .. } = by_part(linear(network, layer)?)?;
    let part = |index| weight.f_select(1, index);
    let architecture = network.architecture();
    let scaled = part(1)?.f_mul_scalar(mean_scale(architecture.height * architecture.width))?;
    Ok(Affine::new(Tensor::f_stack(&[part(0)?.f_add(&scaled)?, part(2)?], 1)?, bias))
}

/// Joins matrices over the channels of either head, `[rows, parts, 32]`, to one over both, `[rows, parts · 64]`.
/// Policy channels come first in each part.
fn join(policy: &Affine, value: &Affine) -> Result<Affine, Error> {
    let others = size(HEAD_CHANNELS);
    let weights = [policy.weight.f_constant_pad_nd([0, others])?, value.weight.f_constant_pad_nd([others, 0])?];
    Ok(Affine::new(Tensor::f_cat(&weights, 0)?.f_flatten(1, 2)?, Tensor::f_cat(&[&policy.bias, &value.bias], 0)?))
}
