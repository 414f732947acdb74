//! Arithmetic between the products of attention blocks.
//!
//! The functions are plain Rust, inlined into separate functions per path, like `pooling`.

use std::ops::Range;

use network::NORM_EPSILON;
use network::activation::Function;
use network::shares::{ByCell, ByChannel, LANES, Lanes};

use crate::latent::rows::{read, total, write};
use crate::planes::Planes;
use crate::product::GROUP;

/// Sizes of attention.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) cells: usize,
    pub(crate) channels: usize,
    pub(crate) heads: usize,
}

/// Buffers of the arithmetic between products.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    keys: ByCell,
    values: ByChannel,
    shares: Vec<Lanes>,
    /// Value sums of a cell.
    sums: Vec<f32>,
}

/// Copies the first channels of the cells of `positions`, `[positions, cells, C]`.
#[inline(always)]
pub(crate) fn take_cells(planes: &Planes, positions: Range<usize>, channels: usize, to: &mut [f32]) {
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

/// Writes the first channels of all cells of `positions`: the inverse operation to [`take_cells`].
#[inline(always)]
pub(crate) fn put_cells(from: &[f32], channels: usize, positions: Range<usize>, planes: &mut Planes) {
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

/// Writes rows `[N, C]` minus the mean and divided by the standard deviation.
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

/// Writes the value sums for queries, keys and values `[positions, cells, padded]`.
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

/// Adds the first numbers of matrix rows `[N, padded]` to rows `[N, C]`.
#[inline(always)]
pub(crate) fn add_rows(sums: &[f32], padded: usize, channels: usize, to: &mut [f32]) {
    for (to, sums) in to.chunks_exact_mut(channels).zip(sums.chunks_exact(padded)) {
        to.iter_mut().zip(sums).for_each(|(to, sum)| *to += sum);
    }
}

/// Writes an activation of matrix rows `[N, padded]`, with columns in groups.
#[inline(always)]
pub(crate) fn activate_rows<F: Function>(f: F, sums: &[f32], padded: usize, to: &mut Planes) {
    let (format, first, block_lines) = (to.format, to.index(0, 0, 0), to.layout.block_lines);
    for (row, sums) in sums.chunks_exact(padded).enumerate() {
        for (group, sums) in sums.as_chunks::<GROUP>().0.iter().enumerate() {
            write(format, &mut to.lines[first + row..], block_lines, group, &sums.map(|sum| f.value(sum)));
        }
    }
}
