//! Layers that training and the folded form of a network share.
//!
//! Two of them let a block see the whole board, global pooling and squeeze-and-excitation: both squeeze feature maps to
//! numbers per channel and turn these into terms that are the same in every cell.

use ::network::{Activation, NORM_EPSILON};
use tch::{Kind, Tensor};

use crate::Error;
#[cfg(test)]
use crate::tests::recorder::{self, Operation};

/// Share of the newest batch in the running statistics.
pub(crate) const NORM_MOMENTUM: f64 = 0.1;

/// The statistics that batch norms use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The statistics of the batch, which also update the running ones.
    Training,
    /// The statistics of the batch, whose first pass has updated the running ones.
    TrainingAgain,
    /// The running statistics.
    Evaluation,
}

/// A weight and its bias.
#[derive(Debug)]
pub(crate) struct Affine {
    /// `[out, in, height, width]` of a convolution, `[out, in]` of a matrix.
    pub(crate) weight: Tensor,
    /// `[out]`.
    pub(crate) bias: Tensor,
    /// The weight in a lower precision, beside which a check computes (see [`beside`]).
    pub(crate) shadow: Option<Tensor>,
}

impl Affine {
    /// A weight and its bias.
    pub(crate) fn new(weight: Tensor, bias: Tensor) -> Self {
        Self { weight, bias, shadow: None }
    }

    /// Converts both to `kind`; gradients flow back through the cast.
    pub(crate) fn cast(self, kind: Kind) -> Result<Self, Error> {
        let Self { weight, bias, shadow } = self;
        Ok(Self { weight: weight.f_to_kind(kind)?, bias: bias.f_to_kind(kind)?, shadow })
    }

    /// A convolution that keeps height and width: `[B, in, H, W]` to `[B, out, H, W]`.
    pub(crate) fn convolve(&self, x: &Tensor) -> Result<Tensor, Error> {
        convolve(x, &self.weight, Some(&self.bias))
    }

    /// A matrix: `[B, in]` to `[B, out]` in the kind of x, with the product in that of the weight.
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

/// Adds to `y` a product of a lower precision as 0 that has its gradient: the backward pass then computes the gradient
/// of the weights of both from the same inputs and the same gradient of the output.
///
/// A product out of the range of its kind gets no gradient.
pub(crate) fn beside(y: &Tensor, low: &Tensor) -> Result<Tensor, Error> {
    let zero = low.f_sub(&low.f_detach()?)?.f_nan_to_num(0.0, 0.0, 0.0)?;
    Ok(y.f_add(&zero.f_to_kind(y.f_kind()?)?)?)
}

/// A convolution that keeps height and width: x `[B, in, H, W]`, weight `[out, in, K, K]` with odd K, bias `[out]`.
pub(crate) fn convolve(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor, Error> {
    let padding = weight.size()[2] / 2;
    let y = x.f_conv2d(weight, bias, [1, 1], [padding, padding], [1, 1], 1)?;
    #[cfg(test)]
    recorder::record(Operation::Convolution, [x, weight, &y]);
    Ok(y)
}

/// The tensors of a batch norm, `[C]` each.
#[derive(Debug)]
pub(crate) struct Norm<'a> {
    pub(crate) scale: &'a Tensor,
    pub(crate) shift: &'a Tensor,
    pub(crate) mean: &'a Tensor,
    pub(crate) variance: &'a Tensor,
}

impl Norm<'_> {
    /// Whether each tensor begins at a multiple of 16 bytes.
    fn is_aligned(&self) -> bool {
        let Self { scale, shift, mean, variance } = self;
        [scale, shift, mean, variance].iter().all(|tensor| tensor.data_ptr().addr().is_multiple_of(16))
    }
}

/// Batch norm of x `[B, C, H, W]` with the statistics that `mode` names.
pub(crate) fn normalise(x: &Tensor, norm: &Norm<'_>, mode: Mode) -> Result<Tensor, Error> {
    if x.device().is_cuda() && !norm.is_aligned() {
        normalise_aligned(x, norm, mode)
    } else {
        normalise_as_is(x, norm, mode)
    }
}

fn normalise_as_is(x: &Tensor, norm: &Norm<'_>, mode: Mode) -> Result<Tensor, Error> {
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

/// [`normalise`] from copies of the tensors of the norm, which begin where libtorch allocates.
///
/// The tensors are parts of flat buffers. The kernels of cuDNN for channels-last activations read four of their numbers
/// at a time and fail with `misaligned address` at any other place (libtorch 2.11, float32, seen on an H200).
fn normalise_aligned(x: &Tensor, norm: &Norm<'_>, mode: Mode) -> Result<Tensor, Error> {
    // Gradients flow back through the copies of scale and shift.
    let (scale, shift) = (norm.scale.f_alias_copy()?, norm.shift.f_alias_copy()?);
    let (mean, variance) = (norm.mean.f_detach_copy()?, norm.variance.f_detach_copy()?);
    let copies = Norm { scale: &scale, shift: &shift, mean: &mean, variance: &variance };
    let y = normalise_as_is(x, &copies, mode)?;
    if mode == Mode::Training {
        let _guard = tch::no_grad_guard();
        norm.mean.shallow_clone().f_copy_(&mean)?;
        norm.variance.shallow_clone().f_copy_(&variance)?;
    }
    Ok(y)
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

/// An activation of every number of `x`.
pub(crate) fn activated(x: &Tensor, activation: Activation) -> Result<Tensor, Error> {
    Ok(match activation {
        Activation::Relu => x.f_relu()?,
        Activation::Mish => x.f_mish()?,
        Activation::Silu => x.f_silu()?,
        Activation::Gelu => x.f_gelu("tanh")?,
    })
}

/// The spatial dimensions of `[B, C, H, W]`.
const CELLS: &[i64] = &[2, 3];

/// Global pooling (Wu 2019, section 3.3) between the first convolution of a block and its activation f.
///
/// Of `y` `[B, C, H, W]` the first G channels are pooled, `p = f(y[:G])`, and the others are shifted by the result:
/// `y[G:] + W v + b` in every cell, where `v = [mean of p, max of p]` over the cells. `pooling` holds W `[C − G, 2G]`
/// and b `[C − G]`.
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
    // The gradient of any other activation reads its input, which must not change.
    Ok(Tensor::f_cat(&[first, others.f_add(&in_every_cell(&shift)?)?], 1)?)
}

/// The matrices of a squeeze-and-excitation.
#[derive(Debug)]
pub(crate) struct Excitation {
    /// W₁ `[S, C]` and b₁ `[S]`.
    pub(crate) hidden: Affine,
    /// W₂ `[2C, S]` and b₂ `[2C]`.
    pub(crate) output: Affine,
}

impl Excitation {
    /// Squeeze-and-excitation (Hu et al. 2018), with the additional bias of Leela Chess Zero, after the second
    /// convolution of a block: `[B, C, H, W]` to `[B, C, H, W]`.
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

/// `[B, C]` as `[B, C, 1, 1]`, which broadcasts over the board.
fn in_every_cell(by_channel: &Tensor) -> Result<Tensor, Error> {
    Ok(by_channel.f_unsqueeze(-1)?.f_unsqueeze(-1)?)
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    /// Output, running statistics and the gradients of scale and shift after a batch norm of tensors that begin at the
    /// second number of a buffer.
    fn normalised(normalise: fn(&Tensor, &Norm<'_>, Mode) -> Result<Tensor, Error>, mode: Mode) -> [Tensor; 5] {
        tch::manual_seed(5);
        let x = Tensor::randn([3, 4, 2, 5], (Kind::Float, Device::Cpu));
        let buffer = Tensor::rand([17], (Kind::Float, Device::Cpu)) + 0.5;
        let part = |index: i64| buffer.narrow(0, 1 + 4 * index, 4).detach();
        let [scale, shift] = [0, 1].map(|index| part(index).set_requires_grad(true));
        let [mean, variance] = [2, 3].map(part);
        let norm = Norm { scale: &scale, shift: &shift, mean: &mean, variance: &variance };
        assert!(!norm.is_aligned());
        let y = normalise(&x, &norm, mode).unwrap();
        (&y * &y * &x).sum(Kind::Float).backward();
        // The running statistics must have changed in the buffer.
        [y.detach(), part(2), part(3), scale.grad(), shift.grad()]
    }

    #[test]
    fn a_batch_norm_of_aligned_copies_equals_that_of_the_tensors() {
        for mode in [Mode::Training, Mode::TrainingAgain, Mode::Evaluation] {
            let (expected, got) = (normalised(normalise_as_is, mode), normalised(normalise_aligned, mode));
            for (expected, got) in expected.iter().zip(&got) {
                assert!(expected.equal(got) && expected.numel() > 0, "{mode:?}: {expected} and {got}");
            }
        }
    }
}
