//! Attention blocks, as declared by [`AttentionBlock`](::network::AttentionBlock), for training and for evaluation.

use ::network::{Activation, AttentionBlock, Layer, Role};
use tch::{Kind, Tensor};

use crate::{
    Error, MemoryFormat, Network,
    layers::{self, Affine, Change},
};

/// A block, with matrices in the kind of the computation.
#[derive(Debug)]
pub(crate) struct Attention {
    activation: Activation,
    heads: i64,
    qkv: PreNormed,
    /// Position biases of pairs of cells, `[A, cells, cells]`.
    position: Tensor,
    output: Affine,
    hidden: PreNormed,
    feed_forward: Affine,
}

/// Layer norm over the channels of each cell, then a matrix.
#[derive(Debug)]
struct PreNormed {
    /// γ and β, `[C]` each, in the kind of the norm.
    scale: Tensor,
    shift: Tensor,
    matrix: Affine,
}

/// Implementation of the attention shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// One operation after the other, with gradients for every input in every kind.
    Differentiable,
    /// libtorch's fused operator, which chooses the kernel of the device.
    Fused,
}

impl Attention {
    /// Creates a block for training, through which gradients flow back: matrices from `matrix`, position biases in
    /// `kind`, norms in the kind of the norm parameters. `offsets` comes from [`offsets`].
    pub(crate) fn to_train(
        network: &Network,
        block: &AttentionBlock,
        offsets: &Tensor,
        kind: Kind,
        matrix: &dyn Fn(&Layer) -> Result<Affine, Error>,
    ) -> Result<Self, Error> {
        let wide = network.of(&block.qkv, Role::NormScale).f_kind()?;
        Self::new(network, block, offsets, [kind, wide], matrix)
    }

    /// Copies a block for evaluation, all in `kind`; training of `network` may continue.
    pub(crate) fn to_evaluate(network: &Network, block: &AttentionBlock, kind: Kind) -> Result<Self, Error> {
        let offsets = offsets(network)?;
        let matrix = |layer: &Layer| {
            let part = |role| network.of(layer, role).shallow_clone();
            Affine::new(part(Role::Linear), part(Role::Bias)).cast(kind)
        };
        Self::new(network, block, &offsets, [kind; 2], &matrix)?.each(&|tensor| Ok(tensor.f_detach_copy()?))
    }

    fn new(
        network: &Network,
        block: &AttentionBlock,
        offsets: &Tensor,
        [kind, of_norms]: [Kind; 2],
        matrix: &dyn Fn(&Layer) -> Result<Affine, Error>,
    ) -> Result<Self, Error> {
        let normed = |layer| -> Result<PreNormed, Error> {
            let part = |role| network.of(layer, role).f_to_kind(of_norms);
            Ok(PreNormed { scale: part(Role::NormScale)?, shift: part(Role::NormShift)?, matrix: matrix(layer)? })
        };
        let table = network.of(&block.position, Role::Offsets);
        let cells = f64::from(i32::try_from(offsets.numel()).expect("a board has few cells")).sqrt() as i64;
        let heads = table.size()[0];
        Ok(Self {
            activation: network.architecture().design.activation,
            heads,
            qkv: normed(&block.qkv)?,
            position: table.f_index_select(1, offsets)?.f_view([heads, cells, cells])?.f_to_kind(kind)?,
            output: matrix(&block.output)?,
            hidden: normed(&block.hidden)?,
            feed_forward: matrix(&block.feed_forward)?,
        })
    }

    /// Returns the block with every tensor replaced.
    pub(crate) fn each(&self, change: Change<'_>) -> Result<Self, Error> {
        let normed = |PreNormed { scale, shift, matrix }: &PreNormed| -> Result<PreNormed, Error> {
            Ok(PreNormed { scale: change(scale)?, shift: change(shift)?, matrix: matrix.each(change)? })
        };
        Ok(Self {
            activation: self.activation,
            heads: self.heads,
            qkv: normed(&self.qkv)?,
            position: change(&self.position)?,
            output: self.output.each(change)?,
            hidden: normed(&self.hidden)?,
            feed_forward: self.feed_forward.each(change)?,
        })
    }

    /// Returns the cells `[B, H · W, C]` after the block, given the cells before it.
    pub(crate) fn forward(&self, x: &Tensor, pass: Pass) -> Result<Tensor, Error> {
        let (positions, cells, channels) = x.size3()?;
        let of_head = channels / self.heads;
        let qkv =
            self.qkv.forward(x)?.f_view([positions, cells, 3, self.heads, of_head])?.f_permute([2, 0, 3, 1, 4])?;
        // `[B, A, cells, D]` each.
        let [q, k, v] = [qkv.f_select(0, 0)?, qkv.f_select(0, 1)?, qkv.f_select(0, 2)?];
        let position = self.position.f_unsqueeze(0)?;
        let sums = match pass {
            Pass::Fused => {
                Tensor::f_scaled_dot_product_attention(&q, &k, &v, Some(&position), 0.0, false, None, false)?
            }
            Pass::Differentiable => {
                let scale = (of_head as f64).sqrt().recip();
                let scores = q.f_mul_scalar(scale)?.f_matmul(&k.f_transpose(2, 3)?)?.f_add(&position)?;
                let wide = if scores.f_kind()? == Kind::Double { Kind::Double } else { Kind::Float };
                scores.f_softmax(-1, wide)?.f_to_kind(v.f_kind()?)?.f_matmul(&v)?
            }
        };
        let sums = sums.f_permute([0, 2, 1, 3])?.f_reshape([positions, cells, channels])?;
        let x = x.f_add(&self.output.linear(&sums)?)?;
        let hidden = layers::activated(&self.hidden.forward(&x)?, self.activation)?;
        Ok(x.f_add(&self.feed_forward.linear(&hidden)?)?)
    }
}

impl PreNormed {
    /// `[B, cells, C]` to `[B, cells, out]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let normed = layers::layer_norm(x, &self.scale, &self.shift)?;
        self.matrix.linear(&normed.f_to_kind(self.matrix.weight.f_kind()?)?)
    }
}

/// Returns the offset indices of all pairs of cells, `[cells · cells]`, as [`AttentionBlock::offsets`] does. They are
/// computed on the device of `network`, which then does not wait for a copy.
pub(crate) fn offsets(network: &Network) -> Result<Tensor, Error> {
    let architecture = network.architecture();
    let [height, width] = [architecture.height, architecture.width].map(|side| side as i64);
    let kind = (Kind::Int64, network.device());
    let along = |side: i64| -> Result<Tensor, Error> {
        let cells = Tensor::f_arange(side, kind)?;
        Ok(cells.f_unsqueeze(0)?.f_sub(&cells.f_unsqueeze(1)?)?.f_add_scalar(side - 1)?)
    };
    // `[row, column, row, column]`: from a cell to a cell.
    let down = along(height)?.f_view([height, 1, height, 1])?;
    let right = along(width)?.f_view([1, width, 1, width])?;
    Ok(down.f_mul_scalar(2 * width - 1)?.f_add(&right)?.f_reshape([-1])?)
}

/// Converts maps `[B, C, H, W]` to cells `[B, H · W, C]`.
pub(crate) fn to_cells(x: &Tensor) -> Result<Tensor, Error> {
    let (positions, channels, height, width) = x.size4()?;
    Ok(x.f_permute([0, 2, 3, 1])?.f_reshape([positions, height * width, channels])?)
}

/// Converts cells `[B, H · W, C]` to maps with the sizes of `like`.
pub(crate) fn to_maps(cells: &Tensor, like: &Tensor, format: MemoryFormat) -> Result<Tensor, Error> {
    let (positions, channels, height, width) = like.size4()?;
    format.arrange(&cells.f_view([positions, height, width, channels])?.f_permute([0, 3, 1, 2])?)
}

#[cfg(test)]
mod tests {
    use ::network::AttentionBlock;
    use tch::Device;
    use weights::Architecture;

    use super::offsets;
    use crate::{Network, tests::networks::attentive};

    #[test]
    fn offsets_are_those_of_the_declaration() {
        for (height, width) in [(1, 1), (3, 4), (5, 2)] {
            let architecture = Architecture { height, width, ..attentive() };
            let network = Network::new(&architecture, Device::Cpu, 1).unwrap();
            let got = Vec::<i64>::try_from(offsets(&network).unwrap()).unwrap();
            let expected = AttentionBlock::offsets([height, width]);
            assert_eq!(got, expected.into_iter().map(|offset| offset as i64).collect::<Vec<_>>());
        }
    }
}
