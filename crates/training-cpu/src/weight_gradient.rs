//! Weight gradients of convolutions: for each tap, products of output gradients and inputs, summed over all cells and
//! positions.
//!
//! A tile is a few output channels times a panel of input channels. Activations of a few positions are copied into
//! the order of tiles and panels, because in the original order the cells of one channel compete for few places in
//! the first-level cache. The sums of a tile stay in registers for these positions, and are then added to the sums of
//! all previous positions, which also keeps the rounding errors of long sums small.

use std::ops::Range;

use crate::Path;
use crate::buffer::Buffer;
use crate::convolution::rows_max;
use crate::shape::{Shape, evenly};
use crate::vector::{Formats, PANEL_MAX, REGISTERS, Task, Vector, for_rows};

/// Cells with products summed in registers.
const CELLS: usize = 168;
/// Maximum tiles in a part; all tiles use the copied inputs.
const TILES: usize = 4;
/// Parts of a gradient with few outputs: more than there are threads, and few enough to sum the parts quickly.
const PARTS: usize = 16;

/// Weight gradient of a convolution, split into parts for threads. The parts depend on the shape and the number of
/// positions alone.
#[derive(Debug)]
pub(crate) struct WeightGradient {
    shape: Shape,
    path: Path,
    blocks: Vec<Range<usize>>,
    chunks: Vec<Range<usize>>,
}

/// Sums of products for ranges of positions and output channels.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    gradient: &'a WeightGradient,
    /// `[B, H, W, in]`.
    x: &'a Buffer,
    /// Output gradient, `[B, H, W, out]`.
    of_y: &'a Buffer,
    positions: Range<usize>,
    outputs: Range<usize>,
    /// `[outputs of this part, taps, in]`.
    sums: &'a mut [f32],
}

impl WeightGradient {
    /// Splits the gradient of a convolution over `positions` positions.
    pub(crate) fn new(shape: Shape, positions: usize, path: Path) -> Self {
        let positions = if shape.side == 1 { positions * shape.cells() } else { positions };
        let shape = shape.flattened();
        let tiles: Vec<_> = evenly(shape.outputs, rows_max(path)).collect();
        let blocks: Vec<_> =
            evenly(tiles.len(), TILES).map(|block| tiles[block.start].start..tiles[block.end - 1].end).collect();
        let chunks = PARTS.div_ceil(blocks.len());
        Self { shape, path, blocks, chunks: evenly(positions, positions.div_ceil(chunks)).collect() }
    }

    /// Returns the length of the buffer for the sums of all parts.
    pub(crate) fn sums(&self) -> usize {
        self.chunks.len() * self.shape.weights()
    }

    /// Splits the gradient into parts, for inputs `x` `[B, H, W, in]` and output gradients `[B, H, W, out]`.
    ///
    /// # Panics
    /// If lengths do not fit.
    pub(crate) fn parts<'a>(&'a self, x: &'a Buffer, of_y: &'a Buffer, sums: &'a mut [f32]) -> Vec<Part<'a>> {
        let shape = self.shape;
        let cells = self.chunks.last().map_or(0, |chunk| chunk.end) * shape.cells();
        assert_eq!(x.len(), cells * shape.inputs, "inputs of {shape:?}");
        assert_eq!(of_y.len(), cells * shape.outputs, "outputs of {shape:?}");
        assert_eq!(sums.len(), self.sums(), "sums of {shape:?}");
        let mut rest = sums;
        let mut parts = Vec::with_capacity(self.chunks.len() * self.blocks.len());
        for positions in &self.chunks {
            for outputs in &self.blocks {
                let (sums, others) = rest.split_at_mut(outputs.len() * shape.taps() * shape.inputs);
                rest = others;
                let (positions, outputs) = (positions.clone(), outputs.clone());
                parts.push(Part { gradient: self, x, of_y, positions, outputs, sums });
            }
        }
        parts
    }

    /// Adds the sums of all parts to the gradient of an output range, `[outputs, taps, in]`.
    pub(crate) fn add(&self, sums: &[f32], outputs: Range<usize>, of_weights: &mut [f32]) {
        self.shape.add_parts(sums, outputs, of_weights);
    }
}

impl Part<'_> {
    /// Computes the sums of this part.
    pub(crate) fn compute(self) {
        self.gradient.path.run(self);
    }
}

impl Task for Part<'_> {
    const FORMATS: Formats = Formats::Elements;
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { gradient, x, of_y, positions, outputs, sums } = self;
        let shape = gradient.shape;
        let (inputs, taps, cells) = (shape.inputs, shape.taps(), shape.cells());
        let tiles: Vec<Range<usize>> = evenly(outputs.len(), V::ROWS_MAX).collect();
        let panels: Vec<Panel> = panels(inputs, V::WIDTH).collect();
        // Each group has whole elements, except the last one.
        let groups = evenly(positions.len().div_ceil(V::FACTORS), (CELLS / cells).max(1));
        let cells_max = groups.clone().map(|group| group.len()).max().unwrap_or(0) * cells;
        let mut of_panels = Buffer::zeros(cells_max * panels.iter().map(|panel| panel.lanes).sum::<usize>());
        let mut of_tiles = Buffer::zeros(cells_max * outputs.len());
        sums.fill(0.0);
        for group in groups {
            let first = positions.start + group.start * V::FACTORS;
            let count = (positions.end - first).min(group.len() * V::FACTORS);
            let (first, of_group) = (first * cells, group.len() * cells);
            // SAFETY: lengths were checked by `parts`. Registers beyond the channels of a cell read the next cell or
            // the slack of the buffer; excess lanes that they write are overwritten by the next cell or lie in the
            // slack.
            unsafe {
                for panel in &panels {
                    let from = Rows { first: x[first * inputs + panel.first..].as_ptr(), stride: inputs, cells };
                    let to = of_panels[of_group * panel.first..].as_mut_ptr();
                    gather::<V>(count, panel.lanes, from, to);
                }
                for tile in &tiles {
                    let from = of_y[first * shape.outputs + outputs.start + tile.start..].as_ptr();
                    let from = Rows { first: from, stride: shape.outputs, cells };
                    let to = of_tiles[of_group * tile.start..].as_mut_ptr();
                    gather::<V>(count, tile.len(), from, to);
                }
            }
            for tile in &tiles {
                let of_y = of_tiles[of_group * tile.start..].as_ptr();
                for panel in &panels {
                    let x = of_panels[of_group * panel.first..].as_ptr();
                    for tap in 0..taps {
                        let first = (tile.start * taps + tap) * inputs + panel.first;
                        let to = Sums { first: sums[first..].as_mut_ptr(), stride: taps * inputs, valid: panel.valid };
                        let (x_stride, of_y_stride) = (panel.lanes, tile.len());
                        let products = Products { shape, tap, elements: group.len(), x, x_stride, of_y, of_y_stride };
                        // SAFETY: the products are over the copied cells, and the sums belong to this tile.
                        unsafe { tile_of::<V>(tile.len(), panel.lanes / V::WIDTH, &products, to) };
                    }
                }
            }
        }
    }
}

/// A range of adjacent input channels. All previous panels are full.
pub(crate) struct Panel {
    pub(crate) first: usize,
    pub(crate) valid: usize,
    /// Floats of the panel's registers.
    pub(crate) lanes: usize,
}

pub(crate) fn panels(inputs: usize, width: usize) -> impl Iterator<Item = Panel> {
    let lanes_max = REGISTERS * width;
    (0..inputs.div_ceil(lanes_max)).map(move |index| {
        let first = index * lanes_max;
        let valid = lanes_max.min(inputs - first);
        Panel { first, valid, lanes: valid.next_multiple_of(width) }
    })
}

/// Activation rows of positions.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) first: *const f32,
    /// Floats between cells.
    pub(crate) stride: usize,
    /// Cells per position.
    pub(crate) cells: usize,
}

/// Copies `count` channels of each cell, as elements that pair the same cell of adjacent positions.
///
/// # Safety
/// The CPU must have the path's instructions; rows must be readable, and the destination writable, for whole registers.
#[inline(always)]
pub(crate) unsafe fn gather<V: Vector>(positions: usize, count: usize, from: Rows, mut to: *mut f32) {
    let Rows { first, stride, cells } = from;
    for position in (0..positions).step_by(V::FACTORS) {
        let has_second = V::FACTORS > 1 && position + 1 < positions;
        for cell in 0..cells {
            for lane in (0..count).step_by(V::WIDTH) {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe {
                    let from = first.add((position * cells + cell) * stride + lane);
                    let mut elements = V::load(from);
                    if V::FACTORS > 1 {
                        let second = if has_second { V::load(from.add(cells * stride)) } else { V::zero() };
                        elements = V::pair_lanes(elements, second);
                    }
                    V::store(elements, to.add(lane));
                }
            }
            // SAFETY: the caller fulfils the contract of this function.
            to = unsafe { to.add(count) };
        }
    }
}

/// Inputs of a tile's products for a range of positions and one tap.
pub(crate) struct Products {
    pub(crate) shape: Shape,
    pub(crate) tap: usize,
    /// Elements per cell, over adjacent positions.
    pub(crate) elements: usize,
    /// Inputs of the panel, by cell.
    pub(crate) x: *const f32,
    /// Floats between cells.
    pub(crate) x_stride: usize,
    /// Gradients of the tile's outputs, by cell.
    pub(crate) of_y: *const f32,
    /// Floats between cells.
    pub(crate) of_y_stride: usize,
}

/// Destination of a tile.
pub(crate) struct Sums {
    pub(crate) first: *mut f32,
    /// Floats between rows.
    pub(crate) stride: usize,
    /// Floats per row.
    pub(crate) valid: usize,
}

/// Adds a tile of up to 14 rows to the destination.
///
/// # Safety
/// The CPU must have the path's instructions; pointers must be valid for all cells, rows and registers.
#[inline(always)]
pub(crate) unsafe fn tile_of<V: Vector>(rows: usize, registers: usize, products: &Products, to: Sums) {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe { for_rows!(rows, registers, tile::<V>(products, to)) }
}

/// # Safety
/// The conditions of [`tile_of`] apply.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "with iterators the compiler does not unroll, and spills the sums")]
unsafe fn tile<V: Vector, const ROWS: usize, const REGISTERS: usize>(products: &Products, to: Sums) {
    let &Products { shape, tap, elements, x, x_stride, of_y, of_y_stride } = products;
    let Shape { side, width, .. } = shape;
    let lanes = REGISTERS * V::WIDTH;
    let [rows, columns] = shape.within(tap);
    let border = side / 2;
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        let mut sums = [[V::zero(); REGISTERS]; ROWS];
        for element in 0..elements {
            for row in rows.clone() {
                let cell = element * shape.cells() + row * width + columns.start;
                // The first row and column with a pair keep the difference at or above zero.
                let input = cell + (tap / side) * width + tap % side - border * width - border;
                let mut x = x.add(input * x_stride);
                let mut of_y = of_y.add(cell * of_y_stride);
                for _ in columns.clone() {
                    let mut of_cell = [V::zero(); REGISTERS];
                    for register in 0..REGISTERS {
                        of_cell[register] = V::load(x.add(register * V::WIDTH));
                    }
                    for row in 0..ROWS {
                        let of_y = V::broadcast(of_y.add(row));
                        for register in 0..REGISTERS {
                            sums[row][register] = V::multiply(sums[row][register], of_y, of_cell[register]);
                        }
                    }
                    x = x.add(x_stride);
                    of_y = of_y.add(of_y_stride);
                }
            }
        }
        for row in 0..ROWS {
            let to_row = to.first.add(row * to.stride);
            if to.valid == lanes {
                for register in 0..REGISTERS {
                    let total = to_row.add(register * V::WIDTH);
                    V::store(V::add(V::load(total), sums[row][register]), total);
                }
            } else {
                let mut added = [0.0; PANEL_MAX];
                for register in 0..REGISTERS {
                    V::store(sums[row][register], added.as_mut_ptr().add(register * V::WIDTH));
                }
                for lane in 0..to.valid {
                    *to_row.add(lane) += added[lane];
                }
            }
        }
    }
}
