use network::{Activation, Layer, NormKind, Role};
use tch::{Kind, Tensor};

use crate::{
    Error, MemoryFormat, Network,
    folded::{arrange, fold},
    fusing::Fusing,
    layers::{self, Affine, Change, PositionNorm},
};

/// A convolution with norm.
#[derive(Debug)]
pub(crate) struct Convolution {
    /// Convolution with a batch norm folded in; without bias if there is another norm.
    pub(crate) affine: Affine,
    /// Norm of single positions after the convolution.
    norm: Option<PositionNorm>,
    format: MemoryFormat,
}

impl Convolution {
    /// Copies convolutions of the same input as one, with numbers in `kind`; `change` is applied to the weights.
    pub(crate) fn new(
        network: &Network,
        layers: &[&Layer],
        kind: Kind,
        format: MemoryFormat,
        change: impl FnOnce(Affine) -> Result<Affine, Error>,
    ) -> Result<Self, Error> {
        let folded = layers.iter().map(|layer| fold(network, layer)).collect::<Result<Vec<_>, _>>()?;
        let join = |part: fn(&Affine) -> &Tensor| Tensor::f_cat(&folded.iter().map(part).collect::<Vec<_>>(), 0);
        let affine = Affine::new(join(|affine| &affine.weight)?, join(|affine| &affine.bias)?);
        let of_norm = |role| -> Result<Tensor, Error> {
            let parts: Vec<&Tensor> = layers.iter().map(|layer| network.of(layer, role)).collect();
            Ok(Tensor::f_cat(&parts, 0)?.f_to_kind(kind)?.f_detach_copy()?)
        };
        let norm = match network.architecture().design.norm {
            NormKind::Batch => None,
            kind => Some(PositionNorm {
                kind,
                convolutions: i64::try_from(layers.len()).expect("convolutions are few"),
                scale: of_norm(Role::NormScale)?,
                shift: of_norm(Role::NormShift)?,
            }),
        };
        Ok(Self { affine: arrange(change(affine)?, format)?.cast(kind)?, norm, format })
    }

    /// Returns the convolution with every tensor replaced.
    pub(crate) fn each(&self, change: Change<'_>) -> Result<Self, Error> {
        let norm = match &self.norm {
            None => None,
            Some(PositionNorm { kind, convolutions, scale, shift }) => {
                let (scale, shift) = (change(scale)?, change(shift)?);
                Some(PositionNorm { kind: *kind, convolutions: *convolutions, scale, shift })
            }
        };
        Ok(Self { affine: self.affine.each(change)?, norm, format: self.format })
    }

    /// Applies the convolution and the norm: `[B, in, H, W]` to `[B, out, H, W]`.
    pub(crate) fn normed(&self, x: &Tensor) -> Result<Tensor, Error> {
        match &self.norm {
            None => self.affine.convolve(x),
            Some(norm) => norm.normalise(&layers::convolve(x, &self.affine.weight, None)?, self.format),
        }
    }

    /// Applies the convolution, the norm and an activation: `[B, in, H, W]` to `[B, out, H, W]`.
    pub(crate) fn activated(&self, x: &Tensor, fusing: Fusing, activation: Activation) -> Result<Tensor, Error> {
        match self.norm {
            None => fusing.convolve(&self.affine, x, activation),
            Some(_) => layers::activate(self.normed(x)?, activation),
        }
    }

    /// Applies the convolution and the norm, adds `skip`, and applies an activation: x `[B, in, H, W]` and skip
    /// `[B, out, H, W]` to `[B, out, H, W]`.
    pub(crate) fn added_activated(
        &self,
        x: &Tensor,
        skip: &Tensor,
        fusing: Fusing,
        activation: Activation,
    ) -> Result<Tensor, Error> {
        if self.norm.is_none() {
            return fusing.convolve_add(&self.affine, x, skip, activation);
        }
        let mut y = self.normed(x)?;
        let _ = y.f_add_(skip)?;
        layers::activate(y, activation)
    }
}
