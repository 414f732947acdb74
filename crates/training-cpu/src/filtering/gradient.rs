use std::cell::RefCell;
use std::ops::Range;

use training::Precision;

use super::points::{self, OfOutputs, POINTS};
use super::tiling::Tiling;
use super::{Transform, VALUES, along_both_sides};
use crate::Path;
use crate::buffer::Buffer;
use crate::shape::{Shape, evenly};
use crate::vector::{Formats, Task, Vector};
use crate::weight_gradient::{Products, Rows, Sums, gather, panels, tile_of};

/// Parts of a gradient: more than the threads of most machines, and few enough to sum the parts quickly.
const PARTS: usize = 8;
/// Floats of the values to transform and then multiply at once: about the second-level cache. For bfloat16 products
/// more rows per pair of points are worth exceeding the cache.
const VALUES_MAX: usize = 1 << 17;
const VALUES_MAX_BF16: usize = 1 << 19;

/// Filtered weight gradient: products of input values and output-gradient values at each pair of points. A pair
/// contributes to each tap with the same multiplier as the tap to the pair in the forward pass.
#[derive(Debug)]
pub(crate) struct FilteredGradient {
    shape: Shape,
    path: Path,
    tiling: Tiling,
    chunks: Vec<Range<usize>>,
    zeros: Vec<f32>,
}

/// Sums of the products over a range of positions.
#[derive(Debug)]
pub(crate) struct FilteredPart<'a> {
    gradient: &'a FilteredGradient,
    /// `[B, H, W, in]`.
    x: &'a Buffer,
    /// Output gradient, `[B, H, W, out]`.
    of_y: &'a Buffer,
    positions: Range<usize>,
    /// `[pairs, out, in]`.
    sums: &'a mut [f32],
}

impl FilteredGradient {
    /// Splits the gradient of a convolution over `positions` positions.
    pub(crate) fn new(shape: Shape, positions: usize, path: Path) -> Self {
        let chunks = evenly(positions, positions.div_ceil(PARTS)).collect();
        Self { shape, path, tiling: Tiling::new(shape, path.precision()), chunks, zeros: vec![0.0; shape.inputs] }
    }

    /// Returns the number of sums in a part.
    fn sums_of_part(&self) -> usize {
        self.tiling.pairs.len() * self.shape.outputs * self.shape.inputs
    }

    /// Returns the length of the buffer for the sums of all parts.
    pub(crate) fn sums(&self) -> usize {
        self.chunks.len() * self.sums_of_part()
    }

    /// Splits the gradient into parts, for inputs `x` `[B, H, W, in]` and output gradients `[B, H, W, out]`.
    ///
    /// # Panics
    /// If lengths do not fit.
    pub(crate) fn parts<'a>(&'a self, x: &'a Buffer, of_y: &'a Buffer, sums: &'a mut [f32]) -> Vec<FilteredPart<'a>> {
        let cells = self.chunks.last().map_or(0, |chunk| chunk.end) * self.shape.cells();
        assert_eq!(x.len(), cells * self.shape.inputs, "inputs of {:?}", self.shape);
        assert_eq!(of_y.len(), cells * self.shape.outputs, "outputs of {:?}", self.shape);
        let sums = sums.chunks_exact_mut(self.sums_of_part());
        let parts = self.chunks.iter().cloned().zip(sums);
        parts.map(|(positions, sums)| FilteredPart { gradient: self, x, of_y, positions, sums }).collect()
    }

    /// Adds the sums of all parts to the gradient of an output range, `[outputs, taps, in]`.
    pub(crate) fn add(&self, sums: &[f32], outputs: Range<usize>, of_weights: &mut [f32]) {
        self.path.run(Add { gradient: self, sums, outputs, of_weights });
    }
}

impl FilteredPart<'_> {
    /// Computes the sums of this part.
    pub(crate) fn compute(self) {
        let Self { gradient, x, of_y, positions, sums } = self;
        let FilteredGradient { shape, path, tiling, zeros, .. } = gradient;
        let (inputs, outputs) = (shape.cells() * shape.inputs, shape.cells() * shape.outputs);
        sums.fill(0.0);
        VALUES.with_borrow_mut(|[of_x, of_gradient]| {
            let values_max = match path.precision() {
                Precision::F32 => VALUES_MAX,
                Precision::Bf16 | Precision::F16 => VALUES_MAX_BF16,
            };
            let most = values_max / (tiling.values * (shape.inputs + shape.outputs));
            for group in evenly(positions.len(), most.max(1)) {
                let rows = positions.start + group.start..positions.start + group.end;
                of_x.grow(rows.len() * tiling.values * shape.inputs);
                of_gradient.grow(rows.len() * tiling.values * shape.outputs);
                let count = rows.len();
                let x = &x[rows.start * inputs..rows.end * inputs];
                path.run(Transform { tiling, shape: *shape, zeros, positions: count, x, values: of_x });
                let of_y = &of_y[rows.start * outputs..rows.end * outputs];
                path.run(Evaluate { tiling, shape: *shape, positions: count, of_y, values: of_gradient });
                ELEMENTS.with_borrow_mut(|elements| {
                    path.run(Multiply { tiling, shape: *shape, positions: count, of_x, of_gradient, elements, sums });
                });
            }
        });
    }
}

/// Computes the output-gradient values at all pairs.
struct Evaluate<'a> {
    tiling: &'a Tiling,
    shape: Shape,
    positions: usize,
    of_y: &'a [f32],
    values: &'a mut [f32],
}

impl Task for Evaluate<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { tiling, shape, positions, of_y, values } = self;
        let Shape { width, outputs, .. } = shape;
        let mut from = [std::ptr::null(); POINTS * POINTS];
        let mut to = [std::ptr::null_mut(); POINTS * POINTS];
        for (position, of_y) in of_y.chunks_exact(shape.cells() * outputs).enumerate() {
            for tile in &tiling.tiles {
                tile.cells(width).for_each(|(at, cell)| from[at] = of_y[cell * outputs..].as_ptr());
                tile.values(positions, position).for_each(|(at, row)| to[at] = values[row * outputs..].as_mut_ptr());
                // SAFETY: each pointer is that of a row of all channels.
                unsafe { along_both_sides::<V, OfOutputs>(tile, &from, &to, outputs) };
            }
        }
    }
}

thread_local! {
    /// Scratch: elements of input and output-gradient values at one pair, where an element is not a plain number.
    static ELEMENTS: RefCell<[Buffer; 2]> = const { RefCell::new([Buffer::EMPTY; 2]) };
}

/// Adds the products of all values to the sums at each pair.
struct Multiply<'a> {
    tiling: &'a Tiling,
    shape: Shape,
    positions: usize,
    of_x: &'a Buffer,
    of_gradient: &'a Buffer,
    /// Scratch for the elements of one pair.
    elements: &'a mut [Buffer; 2],
    /// `[pairs, out, in]`.
    sums: &'a mut [f32],
}

impl Task for Multiply<'_> {
    const FORMATS: Formats = Formats::Elements;
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { tiling, shape, positions, of_x, of_gradient, elements: [elements_of_x, elements_of_y], sums } = self;
        let Shape { inputs, outputs, .. } = shape;
        let matrix = Shape::matrix(inputs, outputs);
        for (pair, sums) in tiling.pairs.iter().zip(sums.chunks_exact_mut(outputs * inputs)) {
            let rows = pair.rows(positions);
            let (mut of_x, mut of_y) = (&of_x[rows.start * inputs..], &of_gradient[rows.start * outputs..]);
            if V::FACTORS > 1 {
                elements_of_x.grow(rows.len().div_ceil(V::FACTORS) * inputs);
                elements_of_y.grow(rows.len().div_ceil(V::FACTORS) * outputs);
                // SAFETY: gathered rows belong to the pair; registers beyond the channels of a row read the next row
                // or the slack of the buffer; excess lanes that they write are overwritten by the next row or lie in
                // the slack.
                unsafe {
                    let [from_x, from_y] = [(of_x, inputs), (of_y, outputs)].map(|(values, stride)| Rows {
                        first: values.as_ptr(),
                        stride,
                        cells: 1,
                    });
                    gather::<V>(rows.len(), inputs, from_x, elements_of_x.as_mut_ptr());
                    gather::<V>(rows.len(), outputs, from_y, elements_of_y.as_mut_ptr());
                }
                (of_x, of_y) = (&*elements_of_x, &*elements_of_y);
            }
            for tile in evenly(outputs, V::ROWS_MAX) {
                let of_y = of_y[tile.start..].as_ptr();
                for panel in panels(inputs, V::WIDTH) {
                    let x = of_x[panel.first..].as_ptr();
                    let products = Products {
                        shape: matrix,
                        tap: 0,
                        elements: rows.len().div_ceil(V::FACTORS),
                        x,
                        x_stride: inputs,
                        of_y,
                        of_y_stride: outputs,
                    };
                    let first = sums[tile.start * inputs + panel.first..].as_mut_ptr();
                    let to = Sums { first, stride: inputs, valid: panel.valid };
                    // SAFETY: registers beyond the inputs of a row read the next row or the slack of the buffer, and
                    // the excess lanes are left out.
                    unsafe { tile_of::<V>(tile.len(), panel.lanes / V::WIDTH, &products, to) };
                }
            }
        }
    }
}

/// Adds the sums of all parts to the gradient of an output range.
struct Add<'a> {
    gradient: &'a FilteredGradient,
    sums: &'a [f32],
    outputs: Range<usize>,
    of_weights: &'a mut [f32],
}

impl Task for Add<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { gradient, sums, outputs, of_weights } = self;
        let inputs = gradient.shape.inputs;
        let of_pair = gradient.shape.outputs * inputs;
        let mut at_pair = vec![0.0; outputs.len() * inputs];
        for (index, pair) in gradient.tiling.pairs.iter().enumerate() {
            at_pair.fill(0.0);
            for sums in sums.chunks_exact(gradient.sums_of_part()) {
                let sums = &sums[index * of_pair + outputs.start * inputs..];
                at_pair.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
            }
            let factors = points::factors(pair.points);
            let rows = at_pair.chunks_exact(inputs).zip(of_weights.chunks_exact_mut(factors.len() * inputs));
            for (at_pair, of_taps) in rows {
                for (of_tap, factor) in of_taps.chunks_exact_mut(inputs).zip(factors) {
                    if factor != 0.0 {
                        of_tap.iter_mut().zip(at_pair).for_each(|(of_weight, total)| *of_weight += factor * total);
                    }
                }
            }
        }
    }
}
