//! Attention between the cells of a position, without the matrices of a block; see
//! [`AttentionBlock`](network::AttentionBlock).
//!
//! Shares are not kept for the backward pass, which recomputes them: each head has one per pair of cells, on a large
//! board several times as many numbers as the rest of a block.

use std::ops::Range;

use network::shares::{ByCell, ByChannel, LANES, Lanes, add};
use network::{AttentionBlock, Role};
use training::Layout;

use crate::Path;
use crate::vector::{Task, Vector};

/// The attention of a block on one board.
#[derive(Debug)]
pub(crate) struct Attention {
    shape: Shape,
    /// Range of the position table by head and offset, `[A, offsets]`.
    table: Range<usize>,
    /// The offset of each pair of cells, `[cells, cells]`.
    offsets: Vec<usize>,
}

/// Sizes of an attention.
#[derive(Debug, Clone, Copy)]
struct Shape {
    heads: usize,
    cells: usize,
    channels: usize,
}

impl Shape {
    /// Returns D, the channels per head.
    fn of_head(self) -> usize {
        self.channels / self.heads
    }

    /// Returns the scale of scores, `1 / √D`.
    fn scale(self) -> f32 {
        (self.of_head() as f32).sqrt().recip()
    }
}

impl Attention {
    /// Creates the attention of a block on a board.
    pub(crate) fn new(block: &AttentionBlock, board: [usize; 2], layout: &Layout) -> Self {
        let [height, width] = board;
        Self {
            shape: Shape { heads: block.heads(), cells: height * width, channels: block.output.inputs },
            table: layout.parameter(&block.position.tensor_name(Role::Offsets)),
            offsets: AttentionBlock::offsets(board),
        }
    }

    /// Returns the range of the position table within the parameters.
    pub(crate) fn table(&self) -> Range<usize> {
        self.table.clone()
    }

    /// Writes the sums of values, `[B, cells, C]`, from queries, keys and values `[B, cells, 3, C]`.
    pub(crate) fn forward(&self, path: Path, parameters: &[f32], qkv: &[f32], y: &mut [f32]) {
        let pairs = self.pairs(parameters);
        path.run(Forward { shape: self.shape, pairs: &pairs, qkv, y });
    }

    /// Writes the gradients for queries, keys and values, given the gradient of the sums; returns the position-table
    /// gradient.
    pub(crate) fn backward(
        &self,
        path: Path,
        parameters: &[f32],
        qkv: &[f32],
        of_y: &[f32],
        of_qkv: &mut [f32],
    ) -> Vec<f32> {
        let pairs = self.pairs(parameters);
        let mut of_pairs = vec![0.0; pairs.len()];
        path.run(Backward { shape: self.shape, pairs: &pairs, qkv, of_y, of_qkv, of_pairs: &mut of_pairs });
        let mut of_table = vec![0.0; self.table.len()];
        let heads = of_table.chunks_exact_mut(self.table.len() / self.shape.heads);
        for (of_table, of_pairs) in heads.zip(of_pairs.chunks_exact(self.offsets.len())) {
            self.offsets.iter().zip(of_pairs).for_each(|(&offset, of_pair)| of_table[offset] += of_pair);
        }
        of_table
    }

    /// Expands the position table to all pairs of cells, `[A, cells, cells]`.
    fn pairs(&self, parameters: &[f32]) -> Vec<f32> {
        let heads = parameters[self.table()].chunks_exact(self.table.len() / self.shape.heads);
        heads.flat_map(|of_head| self.offsets.iter().map(|&offset| of_head[offset])).collect()
    }
}

struct Forward<'a> {
    shape: Shape,
    pairs: &'a [f32],
    qkv: &'a [f32],
    y: &'a mut [f32],
}

struct Backward<'a> {
    shape: Shape,
    pairs: &'a [f32],
    qkv: &'a [f32],
    of_y: &'a [f32],
    of_qkv: &'a mut [f32],
    of_pairs: &'a mut [f32],
}

/// Adds `row`, times each of `weights`, to the corresponding row of `rows`.
#[inline(always)]
fn add_to_each(weights: &[f32], row: &Lanes, rows: &mut [Lanes]) {
    weights.iter().zip(rows).for_each(|(weight, to)| add(to, *weight, row));
}

impl Task for Forward<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { shape, pairs, qkv, y } = self;
        let Shape { cells, channels, heads } = shape;
        let (of_head, scale) = (shape.of_head(), shape.scale());
        let (mut keys, mut values) = (ByCell::default(), ByChannel::default());
        let mut shares = vec![[0.0; LANES]; cells.div_ceil(LANES)];
        for (qkv, y) in qkv.chunks_exact(3 * channels * cells).zip(y.chunks_exact_mut(channels * cells)) {
            for head in 0..heads {
                let first = head * of_head;
                keys.pack([cells, of_head], &qkv[channels + first..], 3 * channels);
                values.pack([cells, of_head], &qkv[2 * channels + first..], 3 * channels);
                let pairs = pairs[head * cells * cells..][..cells * cells].chunks_exact(cells);
                for (cell, pairs) in pairs.enumerate() {
                    keys.shares(&qkv[cell * 3 * channels + first..][..of_head], pairs, scale, &mut shares);
                    let to = &mut y[cell * channels + first..][..of_head];
                    values.weighted(&shares.as_flattened()[..cells], 1.0, to);
                }
            }
        }
    }
}

impl Task for Backward<'_> {
    type Output = ();

    /// With g the gradient of a sum, and p and s the shares and scores of the cell: `∂v[j] = Σ p[j] g`,
    /// `∂s[j] = p[j] (g · v[j] − Σ p[j] g · v[j])`, and with `s[j] = q · k[j] / √D`: `∂q = Σ ∂s[j] k[j] / √D`,
    /// `∂k[j] = Σ ∂s[j] q / √D`.
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { shape, pairs, qkv, of_y, of_qkv, of_pairs } = self;
        let Shape { cells, channels, heads } = shape;
        let (of_head, scale) = (shape.of_head(), shape.scale());
        let (mut keys, mut key_sums, mut values) = (ByCell::default(), ByChannel::default(), ByCell::default());
        let mut shares = vec![[0.0; LANES]; cells.div_ceil(LANES)];
        let mut of_scores = shares.clone();
        let parts = of_head.div_ceil(LANES);
        let [mut of_keys, mut of_values] = [(); 2].map(|()| vec![[0.0; LANES]; parts * cells]);
        let positions = qkv.chunks_exact(3 * channels * cells).zip(of_y.chunks_exact(channels * cells));
        for ((qkv, of_y), of_qkv) in positions.zip(of_qkv.chunks_exact_mut(3 * channels * cells)) {
            for head in 0..heads {
                let first = head * of_head;
                keys.pack([cells, of_head], &qkv[channels + first..], 3 * channels);
                key_sums.pack([cells, of_head], &qkv[channels + first..], 3 * channels);
                values.pack([cells, of_head], &qkv[2 * channels + first..], 3 * channels);
                of_keys.fill([0.0; LANES]);
                of_values.fill([0.0; LANES]);
                for cell in 0..cells {
                    let place = (head * cells + cell) * cells;
                    let query = &qkv[cell * 3 * channels + first..][..of_head];
                    let gradient = &of_y[cell * channels + first..][..of_head];
                    keys.shares(query, &pairs[place..][..cells], scale, &mut shares);
                    values.with_each(gradient, &mut of_scores);
                    let shares = &shares.as_flattened()[..cells];
                    let of_scores = &mut of_scores.as_flattened_mut()[..cells];
                    let mean: f32 = shares.iter().zip(&*of_scores).map(|(share, of)| share * of).sum();
                    of_scores.iter_mut().zip(shares).for_each(|(of, share)| *of = share * (*of - mean));
                    of_pairs[place..][..cells].iter_mut().zip(&*of_scores).for_each(|(to, of)| *to += of);
                    key_sums.weighted(of_scores, scale, &mut of_qkv[cell * 3 * channels + first..][..of_head]);
                    for part in 0..parts {
                        let rows = part * cells..(part + 1) * cells;
                        add_to_each(of_scores, &lanes(query, part), &mut of_keys[rows.clone()]);
                        add_to_each(shares, &lanes(gradient, part), &mut of_values[rows]);
                    }
                }
                for cell in 0..cells {
                    for (which, (rows, scale)) in [(&of_keys, scale), (&of_values, 1.0)].into_iter().enumerate() {
                        let to = &mut of_qkv[(cell * 3 + which + 1) * channels + first..][..of_head];
                        for (part, to) in to.chunks_mut(LANES).enumerate() {
                            to.iter_mut().zip(rows[part * cells + cell]).for_each(|(to, sum)| *to = scale * sum);
                        }
                    }
                }
            }
        }
    }
}

/// Returns sixteen numbers, padded with zeros.
#[inline(always)]
fn lanes(numbers: &[f32], part: usize) -> Lanes {
    let numbers = &numbers[part * LANES..];
    let mut lanes = [0.0; LANES];
    lanes.iter_mut().zip(numbers).for_each(|(lane, number)| *lane = *number);
    lanes
}
