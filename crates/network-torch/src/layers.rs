//! Layers shared by training and the folded form of a network.
//!
//! Global pooling and squeeze-and-excitation let a block see the whole board: both squeeze feature maps to numbers
//! per channel and turn these into terms that are the same in every cell.

use ::network::{Activation, GROUP_CHANNELS, NORM_EPSILON, NormKind};
use tch::{Kind, Tensor};

#[cfg(test)]
use crate::tests::recorder::{self, Operation};
use crate::{Error, MemoryFormat};

/// Share of the latest batch in the running statistics.
pub(crate) const NORM_MOMENTUM: f64 = 0.1;

/// Returns a size as libtorch takes it.
pub(crate) fn size(n: usize) -> i64 {
    i64::try_from(n).expect("dimensions were checked, and parameters and batches fit memory")
}

/// Replaces a tensor of a network.
pub(crate) type Change<'a> = &'a dyn Fn(&Tensor) -> Result<Tensor, Error>;

/// Statistics that batch norms use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Batch statistics, which also update the running statistics.
    Training,
    /// Batch statistics in a repeated pass, after the first pass has updated the running statistics.
    TrainingAgain,
    /// The running statistics.
    Evaluation,
}

/// A weight with bias.
#[derive(Debug)]
pub(crate) struct Affine {
    /// `[out, in, height, width]` of a convolution, `[out, in]` of a matrix.
    pub(crate) weight: Tensor,
    /// `[out]`.
    pub(crate) bias: Tensor,
    /// The weight in a lower precision, for a parallel product in a layer check (see [`beside`]).
    pub(crate) shadow: Option<Tensor>,
}

impl Affine {
    /// Creates an affine layer without a shadow.
    pub(crate) fn new(weight: Tensor, bias: Tensor) -> Self {
        Self { weight, bias, shadow: None }
    }

    /// Converts weight and bias to `kind`; gradients flow back through the cast.
    pub(crate) fn cast(self, kind: Kind) -> Result<Self, Error> {
        let Self { weight, bias, shadow } = self;
        Ok(Self { weight: weight.f_to_kind(kind)?, bias: bias.f_to_kind(kind)?, shadow })
    }

    /// Returns the layer with weight and bias replaced, without the shadow.
    pub(crate) fn each(&self, change: Change<'_>) -> Result<Self, Error> {
        Ok(Self::new(change(&self.weight)?, change(&self.bias)?))
    }

    /// Applies a convolution that keeps height and width: `[B, in, H, W]` to `[B, out, H, W]`.
    pub(crate) fn convolve(&self, x: &Tensor) -> Result<Tensor, Error> {
        convolve(x, &self.weight, Some(&self.bias))
    }

    /// Applies a matrix to the last dimension: `[…, in]` to `[…, out]` in the kind of x, with the product in the
    /// weight's kind.
    pub(crate) fn linear(&self, x: &Tensor) -> Result<Tensor, Error> {
        let of_product = x.f_to_kind(self.weight.f_kind()?)?;
        let y = of_product.f_linear(&self.weight, Some(&self.bias))?;
        #[cfg(test)]
        recorder::record(Operation::Matrix, [&of_product, &self.weight, &y]);
        let y = match &self.shadow {
            Some(shadow) => {
                let low = x.f_detach()?.f_to_kind(shadow.f_kind()?)?;
                beside(&y, &low.f_linear(shadow, None::<&Tensor>)?)?
            }
            None => y,
        };
        Ok(y.f_to_kind(x.f_kind()?)?)
    }
}

/// Adds the product `low`, in a lower precision, to `y` as 0 but with the gradient of `low`: the backward pass then
/// computes both weight gradients from the same inputs and the same output gradient.
///
/// A product that exceeds the range of its kind gets no gradient.
pub(crate) fn beside(y: &Tensor, low: &Tensor) -> Result<Tensor, Error> {
    let zero = low.f_sub(&low.f_detach()?)?.f_nan_to_num(0.0, 0.0, 0.0)?;
    Ok(y.f_add(&zero.f_to_kind(y.f_kind()?)?)?)
}

/// Applies a convolution that keeps height and width: x `[B, in, H, W]`, weight `[out, in, K, K]` with odd K, bias
/// `[out]`.
pub(crate) fn convolve(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor, Error> {
    let padding = weight.size()[2] / 2;
    let y = x.f_conv2d(weight, bias, [1, 1], [padding, padding], [1, 1], 1)?;
    #[cfg(test)]
    recorder::record(Operation::Convolution, [x, weight, &y]);
    Ok(y)
}

/// Tensors of a batch norm, `[C]` each.
#[derive(Debug)]
pub(crate) struct Norm<'a> {
    pub(crate) scale: &'a Tensor,
    pub(crate) shift: &'a Tensor,
    pub(crate) mean: &'a Tensor,
    pub(crate) variance: &'a Tensor,
}

impl Norm<'_> {
    /// Returns whether each tensor starts at a multiple of 16 bytes, which the layout of the flat buffers ensures. The
    /// cuDNN kernels for channels-last activations read four numbers at a time, and fail with `misaligned address` at
    /// any other place (libtorch 2.11, float32, seen on an H200).
    fn is_aligned(&self) -> bool {
        let Self { scale, shift, mean, variance } = self;
        [scale, shift, mean, variance].iter().all(|tensor| tensor.data_ptr().addr().is_multiple_of(16))
    }
}

/// Applies batch norm to x `[B, C, H, W]`, with the statistics of `mode`.
pub(crate) fn normalise(x: &Tensor, norm: &Norm<'_>, mode: Mode) -> Result<Tensor, Error> {
    debug_assert!(norm.is_aligned(), "a norm starts at an odd place of a buffer");
    let Norm { scale, shift, mean, variance } = norm;
    let is_training = mode != Mode::Evaluation;
    let running = (mode != Mode::TrainingAgain).then_some([*mean, *variance]);
    let y = x.f_batch_norm(
        Some(*scale),
        Some(*shift),
        running.map(|[mean, _]| mean),
        running.map(|[_, variance]| variance),
        is_training,
        NORM_MOMENTUM,
        NORM_EPSILON,
        true,
    )?;
    #[cfg(test)]
    recorder::record(Operation::BatchNorm, [x, scale, &y]);
    Ok(y)
}

/// A norm of single positions after one convolution, or after several of equal size side by side.
#[derive(Debug)]
pub(crate) struct PositionNorm {
    /// [`NormKind::Layer`] or [`NormKind::Group`].
    pub(crate) kind: NormKind,
    /// Number of convolutions.
    pub(crate) convolutions: i64,
    /// `[C]`.
    pub(crate) scale: Tensor,
    /// `[C]`.
    pub(crate) shift: Tensor,
}

impl PositionNorm {
    /// Norms x `[B, C, H, W]` in the kind of the parameters; the result has the kind of x and this format.
    ///
    /// CUDA supports no norm with two kinds, so x is converted.
    pub(crate) fn normalise(&self, x: &Tensor, format: MemoryFormat) -> Result<Tensor, Error> {
        let Self { kind, convolutions, scale, shift } = self;
        let wide = x.f_to_kind(scale.f_kind()?)?;
        let (positions, channels, height, width) = x.size4()?;
        let y = match kind {
            NormKind::Group => {
                let groups = channels / i64::try_from(GROUP_CHANNELS).expect("groups are small");
                wide.f_group_norm(groups, Some(scale), Some(shift), NORM_EPSILON, true)?
            }
            _ => {
                let cells = wide.f_permute([0, 2, 3, 1])?;
                let normed = if *convolutions == 1 {
                    layer_norm(&cells, scale, shift)?
                } else {
                    let of_one = channels / convolutions;
                    let apart = cells.f_reshape([positions, height, width, *convolutions, of_one])?;
                    let normed = apart.f_layer_norm([of_one], None::<&Tensor>, None::<&Tensor>, NORM_EPSILON, true)?;
                    normed.f_view([positions, height, width, channels])?.f_mul(scale)?.f_add(shift)?
                };
                normed.f_permute([0, 3, 1, 2])?
            }
        };
        format.arrange(&y.f_to_kind(x.f_kind()?)?)
    }
}

/// Applies layer norm to the last dimension of x `[…, C]`, in the kind of `scale` and `shift`, `[C]` each.
pub(crate) fn layer_norm(x: &Tensor, scale: &Tensor, shift: &Tensor) -> Result<Tensor, Error> {
    let x = x.f_to_kind(scale.f_kind()?)?;
    Ok(x.f_layer_norm(scale.size().as_slice(), Some(scale), Some(shift), NORM_EPSILON, true)?)
}

/// Applies an activation to every number of `x`, in place where autograd allows it.
pub(crate) fn activate(mut x: Tensor, activation: Activation) -> Result<Tensor, Error> {
    match activation {
        Activation::Relu => {
            let _ = x.f_relu_()?;
            Ok(x)
        }
        other => activated(&x, other),
    }
}

/// Returns an activation of every number of `x`.
pub(crate) fn activated(x: &Tensor, activation: Activation) -> Result<Tensor, Error> {
    Ok(match activation {
        Activation::Relu => x.f_relu()?,
        Activation::Mish => x.f_mish()?,
        Activation::Silu => x.f_silu()?,
        Activation::Gelu => x.f_gelu("tanh")?,
    })
}

/// Spatial dimensions of `[B, C, H, W]`.
const CELLS: &[i64] = &[2, 3];

/// Applies global pooling (Wu 2019, section 3.3) between the first convolution of a block and the activation f.
///
/// The first G channels of `y` `[B, C, H, W]` are pooled, `p = f(y[:G])`, and the remaining channels are shifted by
/// the result: `y[G:] + W v + b` in every cell, where `v = [mean of p, max of p]` over the cells. `pooling` holds W
/// `[C − G, 2G]` and b `[C − G]`.
pub(crate) fn pool(y: Tensor, pooling: &Affine, activation: Activation) -> Result<Tensor, Error> {
    let (shifted, features) = pooling.weight.size2()?;
    let pooled = features / 2;
    let first = y.f_narrow(1, 0, pooled)?;
    let p = activated(&first, activation)?;
    let v = Tensor::f_cat(&[p.f_mean_dim(CELLS, false, None::<Kind>)?, p.f_amax(CELLS, false)?], 1)?;
    let shift = pooling.linear(&v)?;
    let mut others = y.f_narrow(1, pooled, shifted)?;
    if activation == Activation::Relu {
        let _ = others.f_add_(&in_every_cell(&shift)?)?;
        return Ok(y);
    }
    // The gradient of any other activation reads the input, which must not change.
    Ok(Tensor::f_cat(&[first, others.f_add(&in_every_cell(&shift)?)?], 1)?)
}

/// Matrices of a squeeze-and-excitation.
#[derive(Debug)]
pub(crate) struct Excitation {
    /// W₁ `[S, C]` and b₁ `[S]`.
    pub(crate) hidden: Affine,
    /// W₂ `[2C, S]` and b₂ `[2C]`.
    pub(crate) output: Affine,
}

impl Excitation {
    /// Applies squeeze-and-excitation (Hu et al. 2018), with the additional bias of Leela Chess Zero, after the
    /// second convolution of a block: `[B, C, H, W]` to `[B, C, H, W]`.
    ///
    /// `s = mean of z over the cells`, `t = W₂ relu(W₁ s + b₁) + b₂`, `sigmoid(t[:C]) · z + t[C:]` in every cell.
    pub(crate) fn excite(&self, z: &Tensor) -> Result<Tensor, Error> {
        let channels = z.size()[1];
        let mut hidden = self.hidden.linear(&z.f_mean_dim(CELLS, false, None::<Kind>)?)?;
        let _ = hidden.f_relu_()?;
        let t = self.output.linear(&hidden)?;
        let scale = in_every_cell(&t.f_narrow(1, 0, channels)?.f_sigmoid()?)?;
        let shift = in_every_cell(&t.f_narrow(1, channels, channels)?)?;
        let mut excited = z.f_mul(&scale)?;
        let _ = excited.f_add_(&shift)?;
        Ok(excited)
    }
}

/// Views `[B, C]` as `[B, C, 1, 1]`, which broadcasts over the board.
fn in_every_cell(by_channel: &Tensor) -> Result<Tensor, Error> {
    Ok(by_channel.f_unsqueeze(-1)?.f_unsqueeze(-1)?)
}
