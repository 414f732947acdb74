//! Attention blocks ([`AttentionBlock`](network::AttentionBlock)) behind the convolutions of a tower.
//!
//! The cells of some positions are the rows of matrices, in float32 from the first block to the last; products take
//! them in the format of the path. The functions at the end are plain Rust and are inlined into each path's own
//! functions, as those of `pooling`.

use network::activation::Function;
use network::shares::{ByCell, ByChannel, LANES, Lanes};
use network::{Activation, NORM_EPSILON};

use crate::KernelVariant;
use crate::folded::{self, Affine, Dense};
use crate::latent::rows::{read, take_rows, total, write};
use crate::multiplier::Multiplier;
use crate::planes::{Board, Layout, Planes};
use crate::product::{GROUP, Output, Product, Run};

/// The fewest rows of a product, so that its weights are read once for some of them; positions of more cells are
/// computed one by one.
const ROWS_MIN: usize = 96;

/// The attention blocks of a network, packed.
#[derive(Debug)]
pub(crate) struct Attention {
    path: KernelVariant,
    activation: Activation,
    sizes: Sizes,
    /// Positions that are computed together.
    positions: usize,
    blocks: Vec<Block>,
}

/// The sizes of attention.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    cells: usize,
    channels: usize,
    heads: usize,
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

/// The buffers of a thread.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// The cells, `[rows, C]`.
    stream: Vec<f32>,
    /// The inputs of matrices over the channels.
    narrow: Planes,
    /// The hidden units.
    wide: Planes,
    /// The outputs of a matrix, `[rows, padded outputs]`.
    sums: Vec<f32>,
    runs: Vec<Run>,
    shares: Shares,
}

/// The buffers of the arithmetic between products.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    keys: ByCell,
    values: ByChannel,
    shares: Vec<Lanes>,
    /// The sums of values of a cell.
    sums: Vec<f32>,
}

/// A cell as a board of one.
const CELL: Board = Board::new(1, 1);

impl Attention {
    /// Packs the blocks of a network on boards of this many cells.
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

    /// All products, in the order in which they are computed.
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

    /// Replaces the first channels of the first positions of `planes` by what the blocks compute from them.
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

/// Copies the first channels of the cells of some positions, `[positions, cells, C]`.
#[inline(always)]
pub(crate) fn take_cells(planes: &Planes, positions: std::ops::Range<usize>, channels: usize, to: &mut [f32]) {
    let (format, block_lines) = (planes.format, planes.layout.block_lines);
    let mut rows = to.chunks_exact_mut(channels);
    for position in positions {
        for (line, to) in planes.cells(0, position).zip(&mut rows) {
            for (group, to) in to.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
                *to = read(format, &planes.lines[line..], block_lines, group);
            }
        }
    }
}

/// Writes the first channels of the cells of some positions; the inverse of [`take_cells`].
#[inline(always)]
pub(crate) fn put_cells(from: &[f32], channels: usize, positions: std::ops::Range<usize>, planes: &mut Planes) {
    let (format, block_lines) = (planes.format, planes.layout.block_lines);
    let mut rows = from.chunks_exact(channels);
    for position in positions {
        for (line, from) in planes.cells(0, position).zip(&mut rows) {
            for (group, from) in from.as_chunks::<GROUP>().0.iter().enumerate() {
                write(format, &mut planes.lines[line..], block_lines, group, from);
            }
        }
    }
}

/// Writes rows `[N, C]` less their mean and divided by their deviation.
#[inline(always)]
pub(crate) fn standardise(from: &[f32], channels: usize, to: &mut Planes) {
    let (format, first, block_lines) = (to.format, to.index(0, 0, 0), to.layout.block_lines);
    for (row, from) in from.chunks_exact(channels).enumerate() {
        let groups = from.as_chunks::<GROUP>().0;
        let mut sums = [0.0; GROUP];
        groups.iter().for_each(|group| (0..GROUP).for_each(|lane| sums[lane] += group[lane]));
        let mean = total(sums) / channels as f32;
        let mut squares = [0.0; GROUP];
        for group in groups {
            (0..GROUP).for_each(|lane| squares[lane] += (group[lane] - mean) * (group[lane] - mean));
        }
        let inverse = 1.0 / (total(squares) / channels as f32 + NORM_EPSILON as f32).sqrt();
        for (index, group) in groups.iter().enumerate() {
            let normed = group.map(|number| (number - mean) * inverse);
            write(format, &mut to.lines[first + row..], block_lines, index, &normed);
        }
    }
}

/// Writes the sums of values of queries, keys and values `[positions, cells, padded]`.
#[inline(always)]
pub(crate) fn attend(sizes: Sizes, pairs: &[f32], qkv: &[f32], padded: usize, with: &mut Shares, to: &mut Planes) {
    let Sizes { cells, channels, heads } = sizes;
    let of_head = channels / heads;
    let scale = (of_head as f32).sqrt().recip();
    let Shares { keys, values, shares, sums } = with;
    shares.resize(cells.div_ceil(LANES), [0.0; LANES]);
    sums.resize(cells * channels, 0.0);
    let (format, first, block_lines) = (to.format, to.index(0, 0, 0), to.layout.block_lines);
    for (position, qkv) in qkv.chunks_exact(cells * padded).enumerate() {
        for head in 0..heads {
            let channel = head * of_head;
            keys.pack([cells, of_head], &qkv[channels + channel..], padded);
            values.pack([cells, of_head], &qkv[2 * channels + channel..], padded);
            let pairs = pairs[head * cells * cells..][..cells * cells].chunks_exact(cells);
            for (cell, pairs) in pairs.enumerate() {
                keys.shares(&qkv[cell * padded + channel..][..of_head], pairs, scale, shares);
                let to = &mut sums[cell * channels + channel..][..of_head];
                values.weighted(&shares.as_flattened()[..cells], 1.0, to);
            }
        }
        for (cell, sums) in sums.chunks_exact(channels).enumerate() {
            let lines = &mut to.lines[first + position * cells + cell..];
            for (group, sums) in sums.as_chunks::<GROUP>().0.iter().enumerate() {
                write(format, lines, block_lines, group, sums);
            }
        }
    }
}

/// Adds the first numbers of the rows of a matrix `[N, padded]` to rows `[N, C]`.
#[inline(always)]
pub(crate) fn add_rows(sums: &[f32], padded: usize, channels: usize, to: &mut [f32]) {
    for (to, sums) in to.chunks_exact_mut(channels).zip(sums.chunks_exact(padded)) {
        to.iter_mut().zip(sums).for_each(|(to, sum)| *to += sum);
    }
}

/// Writes an activation of the rows of a matrix `[N, padded]`, whose columns are groups.
#[inline(always)]
pub(crate) fn activate_rows<F: Function>(f: F, sums: &[f32], padded: usize, to: &mut Planes) {
    let (format, first, block_lines) = (to.format, to.index(0, 0, 0), to.layout.block_lines);
    for (row, sums) in sums.chunks_exact(padded).enumerate() {
        for (group, sums) in sums.as_chunks::<GROUP>().0.iter().enumerate() {
            write(format, &mut to.lines[first + row..], block_lines, group, &sums.map(|sum| f.value(sum)));
        }
    }
}
