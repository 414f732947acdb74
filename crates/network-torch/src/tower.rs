//! Forward pass with norms in place: for training, and as the reference of the folded form.

use network::{Activation, AttentionBlock, Block, HEAD_CHANNELS, HeadKind, Layer, Layers, NormKind, Role};
use tch::{Kind, Tensor};

use crate::{
    Error, MemoryFormat, Network,
    attention::{self, Attention, Pass},
    layers::{self, Affine, Excitation, Norm, PositionNorm},
    pooled,
};

pub(crate) use layers::Mode;

/// Logits in float32 or the kind of the parameters, whichever is wider.
#[derive(Debug)]
pub(crate) struct Logits {
    /// `[B, A]`, illegal actions included.
    pub(crate) policy: Tensor,
    /// `[B, 3]`: win, draw, loss of the player to move.
    pub(crate) value: Tensor,
}

/// Runs `network` on observations `[B, C, H, W]` in any format: convolutions and matrices in `kind`, batch norms in
/// the kind of the norm parameters and statistics.
pub(crate) fn forward(network: &Network, observations: &Tensor, kind: Kind, mode: Mode) -> Result<Logits, Error> {
    let tower = Tower { network, kind, mode };
    let layers = network.layers.alphazero()?;
    let x = tower.trunk(&layers.stem, &layers.blocks, observations)?;
    heads(network, &tower.attention(&layers.attention, x)?, kind, mode)
}

/// Runs the heads of `network` on `x`, the output of stem and all blocks: `[B, F, H, W]`.
pub(crate) fn heads(network: &Network, x: &Tensor, kind: Kind, mode: Mode) -> Result<Logits, Error> {
    let tower = Tower { network, kind, mode };
    let layers = network.layers.alphazero()?;
    let (policy, hidden) = match network.architecture().design.heads {
        HeadKind::Flattened => {
            let head = |layer, output| tower.head(layer, output, x);
            (head(&layers.policy, &layers.policy_output)?, head(&layers.value, &layers.value_hidden)?)
        }
        HeadKind::Pooled => {
            let pooled = pooled::pool(&tower.cells(&layers.value, x)?)?;
            (tower.pooled_policy(layers, x)?, tower.affine(&layers.value_hidden)?.linear(&pooled)?)
        }
    };
    let hidden = layers::activate(hidden, tower.activation())?;
    let value = tower.affine(&layers.value_output)?.linear(&hidden)?;
    Ok(Logits { policy: tower.widened(&policy)?, value: tower.widened(&value)? })
}

/// A network with the mode of running it: see [`forward`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tower<'a> {
    pub(crate) network: &'a Network,
    pub(crate) kind: Kind,
    pub(crate) mode: Mode,
}

impl Tower<'_> {
    /// Applies a stem and residual blocks: `[B, C, H, W]` in any format to `[B, F, H, W]`.
    pub(crate) fn trunk(&self, stem: &Layer, blocks: &[Block], x: &Tensor) -> Result<Tensor, Error> {
        let x = layers::activate(self.normed(stem, &self.format().arrange(x)?)?, self.activation())?;
        self.blocks(blocks, x)
    }

    /// Applies consecutive residual blocks: `[B, F, H, W]` to `[B, F, H, W]`.
    pub(crate) fn blocks(&self, blocks: &[Block], x: Tensor) -> Result<Tensor, Error> {
        blocks.iter().try_fold(x, |x, block| self.block(block, &x))
    }

    /// Applies consecutive attention blocks: `[B, F, H, W]` to `[B, F, H, W]`.
    pub(crate) fn attention(&self, blocks: &[AttentionBlock], x: Tensor) -> Result<Tensor, Error> {
        if blocks.is_empty() {
            return Ok(x);
        }
        let offsets = attention::offsets(self.network)?;
        let block = |cells: Tensor, block| {
            let matrix = |layer: &Layer| self.affine(layer);
            Attention::to_train(self.network, block, &offsets, self.activation_kind(), &matrix)?
                .forward(&cells, Pass::Differentiable)
        };
        let cells = blocks.iter().try_fold(attention::to_cells(&x)?, block)?;
        attention::to_maps(&cells, &x, self.format())
    }

    /// Converts logits to float32 or the kind of the parameters, whichever is wider.
    pub(crate) fn widened(&self, logits: &Tensor) -> Result<Tensor, Error> {
        let wide = if self.network.flat_parameters.kind() == Kind::Double { Kind::Double } else { Kind::Float };
        Ok(logits.f_to_kind(wide)?)
    }

    /// Applies a residual block: `[B, F, H, W]` to `[B, F, H, W]`.
    fn block(&self, block: &Block, x: &Tensor) -> Result<Tensor, Error> {
        let mut y = x.shallow_clone();
        for convolution in block.convolutions().filter(|layer| *layer != block.last()) {
            y = self.normed(convolution, &y)?;
            if let Some(pooling) = block.pooling.as_ref().filter(|_| *convolution == block.first) {
                y = layers::pool(y, &self.affine(pooling)?, self.activation())?;
            }
            y = layers::activate(y, self.activation())?;
        }
        let mut z = self.normed(block.last(), &y)?;
        if let Some(::network::Excitation { hidden, output }) = &block.excitation {
            z = Excitation { hidden: self.affine(hidden)?, output: self.affine(output)? }.excite(&z)?;
        }
        let _ = z.f_add_(x)?;
        layers::activate(z, self.activation())
    }

    /// Applies a convolution that keeps height and width, then the norm: `[B, C, H, W]` to `[B, F, H, W]`.
    fn normed(&self, layer: &Layer, x: &Tensor) -> Result<Tensor, Error> {
        let part = |role| self.network.of(layer, role);
        let kind = self.network.product_kind(layer, self.kind);
        let weight = self.format().arrange(&part(Role::Convolution).f_to_kind(kind)?)?;
        let mut y = layers::convolve(&x.f_to_kind(kind)?, &weight, None)?;
        if let Some(shadow) = self.network.shadow(layer, Role::Convolution) {
            let low = x.f_detach()?.f_to_kind(shadow.f_kind()?)?;
            y = layers::beside(&y, &layers::convolve(&low, &self.format().arrange(shadow)?, None)?)?;
        }
        let y = y.f_to_kind(self.activation_kind())?;
        let kind = self.network.architecture().design.norm;
        if kind != NormKind::Batch {
            let [scale, shift] = [Role::NormScale, Role::NormShift].map(|role| part(role).shallow_clone());
            return PositionNorm { kind, convolutions: 1, scale, shift }.normalise(&y, self.format());
        }
        let norm = Norm {
            scale: part(Role::NormScale),
            shift: part(Role::NormShift),
            mean: part(Role::NormMean),
            variance: part(Role::NormVariance),
        };
        layers::normalise(&y, &norm, self.mode)
    }

    /// Returns the kind of activations between products.
    pub(crate) fn activation_kind(&self) -> Kind {
        self.network.activation_kind(self.kind)
    }

    /// Applies the convolution of a head, the activation, and the matrix `output` over the features: `[B, F, H, W]`
    /// to `[B, out]`.
    pub(crate) fn head(&self, layer: &Layer, output: &Layer, x: &Tensor) -> Result<Tensor, Error> {
        let x = self.features(layer, x)?;
        let mut output = self.affine(output)?;
        output.weight = self.format().columns(&output.weight, HEAD_CHANNELS)?;
        output.shadow = output.shadow.map(|shadow| self.format().columns(&shadow, HEAD_CHANNELS)).transpose()?;
        output.linear(&self.format().flatten(&x)?)
    }

    /// Applies the convolution of a head and the activation: `[B, F, H, W]` to `[B, 32, H, W]`.
    fn features(&self, layer: &Layer, x: &Tensor) -> Result<Tensor, Error> {
        layers::activate(self.normed(layer, x)?, self.activation())
    }

    /// Returns the features of a head by cell: `[B, F, H, W]` to `[B, H · W, 32]`.
    fn cells(&self, layer: &Layer, x: &Tensor) -> Result<Tensor, Error> {
        // The gradients before this point are in the format of the device, too.
        attention::to_cells(&self.format().arrange(&self.features(layer, x)?)?)
    }

    /// Returns the logits of a pooled policy head: `[B, F, H, W]` to `[B, A]`.
    fn pooled_policy(&self, layers: &Layers, x: &Tensor) -> Result<Tensor, Error> {
        let cells = self.cells(&layers.policy, x)?;
        let of_cells = pooled::of_cells(&self.affine(&layers.policy_output)?, &cells)?;
        let Some(rest) = &layers.policy_rest else { return Ok(of_cells) };
        let others = self.affine(rest)?.linear(&pooled::pool(&cells)?)?;
        Ok(Tensor::f_cat(&[of_cells, others], 1)?)
    }

    /// Returns the activation function after norms.
    fn activation(&self) -> Activation {
        self.network.architecture().design.activation
    }

    fn format(&self) -> MemoryFormat {
        self.network.rules.memory_format
    }

    /// Returns a matrix with bias.
    pub(crate) fn affine(&self, layer: &Layer) -> Result<Affine, Error> {
        let part = |role| self.network.of(layer, role).shallow_clone();
        let affine = Affine::new(part(Role::Linear), part(Role::Bias));
        let shadow = self.network.shadow(layer, Role::Linear).map(Tensor::shallow_clone);
        Affine { shadow, ..affine }.cast(self.network.product_kind(layer, self.kind))
    }
}

#[cfg(test)]
mod tests;
