use weights::Architecture;

use crate::{Layer, LayerKind};

/// Hidden units of the feed-forward per channel. Vaswani et al. (2017) have 4: on a board, which has few cells, the
/// feed-forward would then be two thirds of a block's multiply-adds.
const FEED_FORWARD: usize = 2;

/// Layers of an attention block: a transformer layer (Vaswani et al. 2017) over the cells of a position, with norms
/// before both halves (Xiong et al. 2020).
///
/// With x `[H · W, C]`, the cells row by row, the norm n over the channels of a cell, and A heads of D = C / A
/// channels:
///
/// - `[q, k, v] = W n(x) + b` per cell, W `[3C, C]`, q, k and v each head by head.
/// - Head a, cell i: `y[i] = Σⱼ softmaxⱼ(q[i] · k[j] / √D + p[a, j − i]) v[j]`, over all cells j. The learned biases
///   p depend on the offset from i to j alone: `(2H − 1) · (2W − 1)` per head, ordered from the most upward and
///   within a row from the most leftward (Liu et al. 2021, section 3.2). So a pattern learned on one part of the
///   board applies to all.
/// - `x ← x + W y + b`, W `[C, C]`.
/// - `x ← x + W₂ f(W₁ n(x) + b₁) + b₂`, W₁ `[2C, C]`, W₂ `[C, 2C]`, with the activation f of the network.
///
/// Cells have no other position encoding: the zero padding of convolutions and the matrices of the heads distinguish
/// them.
///
/// Layers are called `attention.I.qkv`, `attention.I.position`, `attention.I.output`, `attention.I.hidden` and
/// `attention.I.feed_forward.output`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttentionBlock {
    /// Layer norm and the matrix to queries, keys and values, `[3C, C]`.
    pub qkv: Layer,
    /// Learned biases p by head and offset.
    pub position: Layer,
    /// Matrix from the sums of all heads to the residual, `[C, C]`.
    pub output: Layer,
    /// Layer norm and the matrix to the hidden units of the feed-forward, `[2C, C]`.
    pub hidden: Layer,
    /// Matrix from hidden units to the residual, `[C, 2C]`.
    pub feed_forward: Layer,
}

impl AttentionBlock {
    /// Creates the block with this index.
    pub(crate) fn new(architecture: &Architecture, index: usize) -> Self {
        let &Architecture { height, width, channels, design, .. } = architecture;
        let layer = |part: &str, kind, inputs, outputs| Layer {
            name: format!("attention.{index}.{part}"),
            kind,
            inputs,
            outputs,
        };
        let units = FEED_FORWARD * channels;
        let offsets = (2 * height - 1) * (2 * width - 1);
        Self {
            qkv: layer("qkv", LayerKind::PreNormed, channels, 3 * channels),
            position: layer("position", LayerKind::Offsets, offsets, design.attention_heads),
            output: layer("output", LayerKind::Pointwise, channels, channels),
            hidden: layer("hidden", LayerKind::PreNormed, channels, units),
            feed_forward: layer("feed_forward.output", LayerKind::Pointwise, units, channels),
        }
    }

    /// Iterates over the layers in order of computation.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        [&self.qkv, &self.position, &self.output, &self.hidden, &self.feed_forward].into_iter()
    }

    /// Returns the two layers with outputs that are added to the input.
    #[must_use]
    pub fn added(&self) -> [&Layer; 2] {
        [&self.output, &self.feed_forward]
    }

    /// Returns A, the number of heads.
    #[must_use]
    pub fn heads(&self) -> usize {
        self.position.outputs
    }

    /// Returns the offset index of each pair of cells, `[cells, cells]`: the offset from cell i to cell j is at
    /// `i · cells + j`.
    #[must_use]
    pub fn offsets([height, width]: [usize; 2]) -> Vec<usize> {
        let cells = height * width;
        let of_pair = |from: usize, to: usize| {
            let (down, right) = (to / width + height - 1 - from / width, to % width + width - 1 - from % width);
            down * (2 * width - 1) + right
        };
        (0..cells).flat_map(|from| (0..cells).map(move |to| of_pair(from, to))).collect()
    }

    /// Counts the multiply-adds of scores and value sums over all pairs of cells.
    pub(crate) fn pair_multiply_adds(&self, cells: usize) -> usize {
        2 * cells * cells * self.output.inputs
    }
}

#[cfg(test)]
mod tests {
    use super::AttentionBlock;

    #[test]
    fn pairs_of_cells_share_a_number_exactly_if_their_offsets_are_equal() {
        for board in [[1, 1], [2, 3], [4, 1], [3, 3]] {
            let [height, width] = board;
            let (cells, offsets) = (height * width, AttentionBlock::offsets(board));
            let of_pair = |pair: usize| {
                let [from, to] = [pair / cells, pair % cells].map(|cell| [cell / width, cell % width]);
                [0, 1].map(|axis| to[axis] as isize - from[axis] as isize)
            };
            assert!(offsets.iter().all(|&offset| offset < (2 * height - 1) * (2 * width - 1)));
            for (first, second) in (0..cells * cells).flat_map(|a| (0..cells * cells).map(move |b| (a, b))) {
                let is_same = of_pair(first) == of_pair(second);
                assert_eq!(offsets[first] == offsets[second], is_same, "{board:?}: pairs {first} and {second}");
            }
        }
    }
}
