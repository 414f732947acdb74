//! 3×3 convolutions by minimal filtering (Winograd 1980; Lavin and Gray 2016), forward and backward: a third of the
//! products, for additions before and after.
//!
//! The board is cut into tiles of up to four cells in each direction, of about equal size, so that it needs no
//! padding: 6×7 into 3×3 and 3×4. Tile inputs become values at pairs of points. At each pair a matrix `[in, out]`
//! multiplies the values of all tiles, and the products become outputs. Smaller tiles use a subset of the larger
//! tiles' points, so that both use the same matrices.

mod gradient;
mod points;
mod tiling;

use std::cell::RefCell;
use std::mem::MaybeUninit;

pub(crate) use self::gradient::{FilteredGradient, FilteredPart};
use self::points::{Line, OfInputs, Outputs, POINTS};
use self::tiling::{Tile, Tiling};
use crate::Path;
use crate::buffer::Buffer;
use crate::convolution::Packed;
use crate::shape::Shape;
use crate::vector::{Task, Vector, WIDTH_MAX};

/// A 3×3 convolution with weights at every pair of points.
#[derive(Debug)]
pub(crate) struct Filtered {
    shape: Shape,
    path: Path,
    tiling: Tiling,
    /// Weights at each pair of points.
    packed: Vec<Packed>,
    /// Scratch for packing a pair, `[out, in]`.
    at_pair: Vec<f32>,
    /// Channels of a cell beyond the board.
    zeros: Vec<f32>,
}

thread_local! {
    /// Scratch: input and output values, too large to be allocated for each part of the positions.
    static VALUES: RefCell<[Buffer; 2]> = const { RefCell::new([Buffer::EMPTY; 2]) };
}

impl Filtered {
    /// Allocates the weights of a convolution.
    pub(crate) fn new(shape: Shape, path: Path) -> Self {
        let tiling = Tiling::new(shape, path.precision());
        let matrix = Shape::matrix(shape.inputs, shape.outputs);
        Self {
            shape,
            path,
            packed: tiling.pairs.iter().map(|_| Packed::new(matrix, path)).collect(),
            tiling,
            at_pair: vec![0.0; shape.outputs * shape.inputs],
            zeros: vec![0.0; shape.inputs],
        }
    }

    /// Returns the shape of the convolution.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the bytes of the weights at all pairs.
    pub(crate) fn bytes(&self) -> usize {
        self.packed.iter().map(Packed::bytes).sum::<usize>() + size_of_val(&self.at_pair[..])
    }

    /// Packs weights `[out, taps, in]`.
    pub(crate) fn pack(&mut self, weights: &[f32]) {
        let Self { shape, path, tiling, packed, at_pair, .. } = self;
        for (pair, packed) in tiling.pairs.iter().zip(packed) {
            path.run(Weigh { factors: points::factors(pair.points), inputs: shape.inputs, weights, at_pair });
            packed.pack(at_pair);
        }
    }

    /// Writes `y` `[B, H, W, out]` from `x` `[B, H, W, in]`.
    ///
    /// # Panics
    /// If lengths do not fit.
    pub(crate) fn convolve(&self, x: &[f32], y: &mut [f32]) {
        let Shape { inputs, outputs, .. } = self.shape;
        let positions = x.len() / (self.shape.cells() * inputs);
        assert_eq!(x.len(), positions * self.shape.cells() * inputs, "inputs of {:?}", self.shape);
        assert_eq!(y.len(), positions * self.shape.cells() * outputs, "outputs of {:?}", self.shape);
        VALUES.with_borrow_mut(|[of_x, of_y]| {
            of_x.grow(positions * self.tiling.values * inputs);
            of_y.grow(positions * self.tiling.values * outputs);
            let (tiling, shape, zeros) = (&self.tiling, self.shape, &self.zeros[..]);
            self.path.run(Transform { tiling, shape, zeros, positions, x, values: of_x });
            for (pair, packed) in tiling.pairs.iter().zip(&self.packed) {
                let rows = pair.rows(positions);
                let products = &mut of_y[rows.start * outputs..rows.end * outputs];
                packed.convolve(&of_x[rows.start * inputs..rows.end * inputs], None, products);
            }
            self.path.run(Restore { tiling, shape, positions, values: of_y, y });
        });
    }
}

/// Computes weights `[out, in]` at a pair of points from the weights of all taps, `[out, taps, in]`.
struct Weigh<'a> {
    factors: [f32; 9],
    inputs: usize,
    weights: &'a [f32],
    at_pair: &'a mut [f32],
}

impl Task for Weigh<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { factors, inputs, weights, at_pair } = self;
        for (weights, at_pair) in weights.chunks_exact(9 * inputs).zip(at_pair.chunks_exact_mut(inputs)) {
            at_pair.fill(0.0);
            for (weights, factor) in weights.chunks_exact(inputs).zip(factors).filter(|(_, factor)| *factor != 0.0) {
                at_pair.iter_mut().zip(weights).for_each(|(at_pair, weight)| *at_pair += factor * weight);
            }
        }
    }
}

/// Computes the input values at all pairs.
struct Transform<'a> {
    tiling: &'a Tiling,
    shape: Shape,
    /// Channels of a cell beyond the board.
    zeros: &'a [f32],
    positions: usize,
    x: &'a [f32],
    values: &'a mut [f32],
}

impl Task for Transform<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { tiling, shape, zeros, positions, x, values } = self;
        let Shape { height, width, inputs, .. } = shape;
        let mut from = [zeros.as_ptr(); POINTS * POINTS];
        let mut to = [std::ptr::null_mut(); POINTS * POINTS];
        for (position, x) in x.chunks_exact(shape.cells() * inputs).enumerate() {
            for tile in &tiling.tiles {
                for (at, row) in tile.values(positions, position) {
                    let (down, right) = (at / POINTS, at % POINTS);
                    let y = (tile.rows.start + down).wrapping_sub(1);
                    let column = (tile.columns.start + right).wrapping_sub(1);
                    let is_inside = y < height && column < width;
                    let cell = if is_inside { &x[(y * width + column) * inputs..] } else { zeros };
                    from[at] = cell.as_ptr();
                    to[at] = values[row * inputs..].as_mut_ptr();
                }
                // SAFETY: each pointer is that of a row of all channels.
                unsafe { along_both_sides::<V, OfInputs>(tile, &from, &to, inputs) };
            }
        }
    }
}

/// Computes outputs from the output values at all pairs.
struct Restore<'a> {
    tiling: &'a Tiling,
    shape: Shape,
    positions: usize,
    values: &'a [f32],
    y: &'a mut [f32],
}

impl Task for Restore<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { tiling, shape, positions, values, y } = self;
        let Shape { width, outputs, .. } = shape;
        let mut from = [std::ptr::null(); POINTS * POINTS];
        let mut to = [std::ptr::null_mut(); POINTS * POINTS];
        for (position, y) in y.chunks_exact_mut(shape.cells() * outputs).enumerate() {
            for tile in &tiling.tiles {
                tile.values(positions, position).for_each(|(at, row)| from[at] = values[row * outputs..].as_ptr());
                tile.cells(width).for_each(|(at, cell)| to[at] = y[cell * outputs..].as_mut_ptr());
                // SAFETY: each pointer is that of a row of all channels.
                unsafe { along_both_sides::<V, Outputs>(tile, &from, &to, outputs) };
            }
        }
    }
}

/// Places of a tile in a grid of points.
type Grid<P> = [P; POINTS * POINTS];

/// Transforms the places of a tile along the columns and then along the rows.
///
/// # Safety
/// The CPU must have the path's instructions; pointers that T reads and writes must be valid for all channels.
#[inline(always)]
unsafe fn along_both_sides<V: Vector, T: points::Transform>(
    tile: &Tile,
    from: &Grid<*const f32>,
    to: &Grid<*mut f32>,
    channels: usize,
) {
    macro_rules! sizes {
        ($(($rows:literal $columns:literal))+) => {
            match (tile.rows.len(), tile.columns.len()) {
                // SAFETY: the caller fulfils the contract of this function.
                $(($rows, $columns) => unsafe { transform::<V, T, $rows, $columns>(from, to, channels) },)+
                _ => unreachable!("a tile has one to four rows and columns"),
            }
        };
    }
    sizes!((1 1) (1 2) (1 3) (1 4) (2 1) (2 2) (2 3) (2 4) (3 1) (3 2) (3 3) (3 4) (4 1) (4 2) (4 3) (4 4));
}

/// [`along_both_sides`] for a tile of M by N cells.
///
/// # Safety
/// The conditions of [`along_both_sides`] apply.
#[inline(always)]
unsafe fn transform<V: Vector, T: points::Transform, const M: usize, const N: usize>(
    from: &Grid<*const f32>,
    to: &Grid<*mut f32>,
    channels: usize,
) {
    for first in (0..channels).step_by(V::WIDTH) {
        let valid = V::WIDTH.min(channels - first);
        // SAFETY: the caller fulfils the contract of this function; the columns that are read were written.
        unsafe {
            // Zeroing the array would take longer than the transform.
            let mut by_column = [const { MaybeUninit::<Line<V>>::uninit() }; POINTS];
            for column in 0..N + T::READ_BEYOND {
                let mut down = [V::zero(); POINTS];
                for row in 0..M + T::READ_BEYOND {
                    down[row] = load::<V>(from[row * POINTS + column].add(first), valid);
                }
                by_column[column].write(T::along::<V, M>(down));
            }
            for row in 0..M + T::WRITTEN_BEYOND {
                let mut across = [V::zero(); POINTS];
                for column in 0..N + T::READ_BEYOND {
                    across[column] = by_column[column].assume_init_ref()[row];
                }
                let transformed = T::along::<V, N>(across);
                for column in 0..N + T::WRITTEN_BEYOND {
                    store::<V>(transformed[column], to[row * POINTS + column].add(first), valid);
                }
            }
        }
    }
}

/// Loads the first `valid` lanes.
///
/// # Safety
/// The CPU must have the path's instructions; `valid` floats must be readable.
#[inline(always)]
unsafe fn load<V: Vector>(from: *const f32, valid: usize) -> V::Register {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        if valid == V::WIDTH {
            return V::load(from);
        }
        let mut lanes = [0.0; WIDTH_MAX];
        lanes.as_mut_ptr().copy_from_nonoverlapping(from, valid);
        V::load(lanes.as_ptr())
    }
}

/// Stores the first `valid` lanes.
///
/// # Safety
/// The CPU must have the path's instructions; `valid` floats must be writable.
#[inline(always)]
unsafe fn store<V: Vector>(register: V::Register, to: *mut f32, valid: usize) {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        if valid == V::WIDTH {
            return V::store(register, to);
        }
        let mut lanes = [0.0; WIDTH_MAX];
        V::store(register, lanes.as_mut_ptr());
        to.copy_from_nonoverlapping(lanes.as_ptr(), valid);
    }
}
