use tch::{Kind, Tensor};

use crate::Error;

/// A weight and its bias.
#[derive(Debug)]
pub(crate) struct Affine {
    /// `[out, in, height, width]` of a convolution, `[out, in]` of a matrix.
    pub(crate) weight: Tensor,
    /// `[out]`.
    pub(crate) bias: Tensor,
}

impl Affine {
    /// The same in `kind`; gradients flow back through the cast.
    pub(crate) fn cast(&self, kind: Kind) -> Result<Self, Error> {
        Ok(Self { weight: self.weight.f_to_kind(kind)?, bias: self.bias.f_to_kind(kind)? })
    }

    /// A convolution that keeps height and width: `[B, in, H, W]` to `[B, out, H, W]`.
    pub(crate) fn convolve(&self, x: &Tensor) -> Result<Tensor, Error> {
        let padding = self.weight.size()[2] / 2;
        Ok(x.f_conv2d(&self.weight, Some(&self.bias), [1, 1], [padding, padding], [1, 1], 1)?)
    }

    /// A matrix: `[B, in]` to `[B, out]`.
    pub(crate) fn linear(&self, x: &Tensor) -> Result<Tensor, Error> {
        Ok(x.f_linear(&self.weight, Some(&self.bias))?)
    }
}
