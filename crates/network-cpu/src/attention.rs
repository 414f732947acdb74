//! Attention blocks ([`AttentionBlock`](network::AttentionBlock)) after the convolutions of a tower.
//!
//! Matrix rows are the cells of a few positions, in float32 from the first block to the last; products take them in
//! the format of the path.

use network::Activation;

use crate::KernelVariant;
use crate::cells::{Shares, Sizes};
use crate::folded::{self, Affine, Dense};
use crate::latent::rows::take_rows;
use crate::multiplier::Multiplier;
use crate::planes::{Board, Layout, Planes};
use crate::product::{Output, Product, Run};

/// Minimum rows of a product, so that the weights are read once for several rows; positions with more cells are
/// computed one by one.
const ROWS_MIN: usize = 96;

/// Packed attention blocks of a network.
#[derive(Debug)]
pub(crate) struct Attention {
    path: KernelVariant,
    activation: Activation,
    sizes: Sizes,
    /// Positions computed together.
    positions: usize,
    blocks: Vec<Block>,
}

#[derive(Debug)]
struct Block {
    qkv: Product,
    /// `[heads, cells, cells]`.
    pairs: Vec<f32>,
    output: Product,
    hidden: Product,
    feed_forward: Product,
}

/// Buffers of a thread.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// Cells, `[rows, C]`.
    stream: Vec<f32>,
    /// Inputs of matrices over the channels.
    narrow: Planes,
    /// Hidden units of the feed-forward.
    wide: Planes,
    /// Outputs of a matrix, `[rows, padded outputs]`.
    sums: Vec<f32>,
    runs: Vec<Run>,
    shares: Shares,
}

/// A cell as a board of one cell.
const CELL: Board = Board::new(1, 1);

impl Attention {
    /// Packs the blocks of a network for boards with this many cells.
    pub(crate) fn new(path: KernelVariant, activation: Activation, cells: usize, blocks: &[folded::Attention]) -> Self {
        let product = |dense: &Dense| {
            let Dense { inputs, weight, bias } = dense.clone();
            Product::convolution(path.packing(), &Affine { inputs, taps: 1, weight, bias, norm: None }, CELL)
        };
        let of_block = |block: &folded::Attention| Block {
            qkv: product(&block.qkv),
            pairs: block.pairs.clone(),
            output: product(&block.output),
            hidden: product(&block.hidden),
            feed_forward: product(&block.feed_forward),
        };
        let [channels, heads] = blocks.first().map_or([1, 1], |block| [block.output.inputs, block.heads]);
        Self {
            path,
            activation,
            sizes: Sizes { cells, channels, heads },
            positions: (ROWS_MIN / cells).max(1),
            blocks: blocks.iter().map(of_block).collect(),
        }
    }

    /// Iterates over all products, in order of computation.
    pub(crate) fn products_mut(&mut self) -> impl Iterator<Item = &mut Product> {
        self.blocks
            .iter_mut()
            .flat_map(|block| [&mut block.qkv, &mut block.output, &mut block.hidden, &mut block.feed_forward])
    }

    pub(crate) fn buffers(&self) -> Option<Buffers> {
        let block = self.blocks.first()?;
        let rows = self.positions * self.sizes.cells;
        let layout = Layout::apart(Board::new(1, rows), 1);
        let planes = |channels| Planes::new(self.path.packing().format, layout, channels);
        let products = [&block.qkv, &block.output, &block.hidden, &block.feed_forward];
        let padded = products.map(Product::padded_outputs).into_iter().max().unwrap_or(0);
        Some(Buffers {
            stream: vec![0.0; rows * self.sizes.channels],
            narrow: planes(self.sizes.channels),
            wide: planes(block.hidden.padded_outputs()),
            sums: vec![0.0; rows * padded],
            runs: Vec::with_capacity(rows),
            shares: Shares::default(),
        })
    }

    /// Replaces the first positions' channels in `planes` with the output of the blocks.
    pub(crate) fn compute(
        &self,
        multiplier: &Multiplier,
        planes: &mut Planes,
        positions: usize,
        buffers: &mut Buffers,
    ) {
        let Sizes { cells, channels, .. } = self.sizes;
        for first in (0..positions).step_by(self.positions) {
            let group = first..positions.min(first + self.positions);
            let rows = group.len() * cells;
            take_rows(self.path, buffers.narrow.layout, rows, &mut buffers.runs);
            let stream = &mut buffers.stream[..rows * channels];
            multiplier.take_cells(planes, group.clone(), channels, stream);
            for block in &self.blocks {
                self.block(multiplier, block, group.len(), buffers);
            }
            multiplier.put_cells(&buffers.stream[..rows * channels], channels, group, planes);
        }
    }

    fn block(&self, multiplier: &Multiplier, block: &Block, positions: usize, buffers: &mut Buffers) {
        let Buffers { stream, narrow, wide, sums, runs, shares } = buffers;
        let Sizes { cells, channels, .. } = self.sizes;
        let rows = positions * cells;
        let stream = &mut stream[..rows * channels];
        let multiply = |product: &Product, input: &Planes, sums: &mut [f32]| {
            multiplier.multiply(product, input, runs, Output::Matrix { values: sums, relu: false }, None);
        };
        multiplier.standardise(stream, channels, narrow);
        multiply(&block.qkv, narrow, sums);
        let padded = block.qkv.padded_outputs();
        multiplier.attend(self.sizes, &block.pairs, &sums[..rows * padded], padded, shares, narrow);
        multiply(&block.output, narrow, sums);
        multiplier.add_rows(sums, block.output.padded_outputs(), channels, stream);
        multiplier.standardise(stream, channels, narrow);
        multiply(&block.hidden, narrow, sums);
        let padded = block.hidden.padded_outputs();
        multiplier.activate_rows(self.activation, &sums[..rows * padded], padded, wide);
        multiply(&block.feed_forward, wide, sums);
        multiplier.add_rows(sums, block.feed_forward.padded_outputs(), channels, stream);
    }
}
