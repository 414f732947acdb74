//! Transforms for minimal filtering along one side of a board. The m outputs of a three-tap filter correspond to a
//! polynomial product at m + 2 points, out of 0, 1, −1, 2, −2 and infinity; smaller m use the first finite points and
//! infinity.
//!
//! With a filter f, m + 2 inputs d for m outputs and the matrix V of point powers, the filter values are `V f`, the
//! input values `V⁻ᵀ d`, and the outputs `Vᵀ` times the products of both (Winograd 1980). The functions below are the
//! rows of these matrices, with common sums shared between rows.

use crate::vector::Vector;

/// Maximum outputs of a piece.
pub(super) const OUTPUTS_MAX: usize = 4;
/// Points of the largest piece; infinity comes last.
pub(super) const POINTS: usize = OUTPUTS_MAX + 2;

/// Values of a three-tap filter at each point, by tap.
const FILTERS: [[f32; 3]; POINTS] =
    [[1.0, 0.0, 0.0], [1.0, 1.0, 1.0], [1.0, -1.0, 1.0], [1.0, 2.0, 4.0], [1.0, -2.0, 4.0], [0.0, 0.0, 1.0]];

/// Returns the multipliers of a 3×3 filter's taps in the value at a pair of points.
pub(super) fn factors([down, right]: [usize; 2]) -> [f32; 9] {
    std::array::from_fn(|tap| FILTERS[down][tap / 3] * FILTERS[right][tap % 3])
}

/// Returns the points of a piece of m outputs.
pub(super) fn of_piece(outputs: usize) -> impl Iterator<Item = usize> + Clone {
    (0..outputs + 1).chain([POINTS - 1])
}

/// Registers of one value or output at each place; trailing registers may be unused.
pub(super) type Line<V> = [<V as Vector>::Register; POINTS];

/// Transform of a piece of M outputs along one side.
pub(super) trait Transform {
    /// Registers read, beyond M.
    const READ_BEYOND: usize;
    /// Registers written, beyond M.
    const WRITTEN_BEYOND: usize;

    /// Transforms the places of a line.
    ///
    /// # Safety
    /// The CPU must have the path's instructions.
    unsafe fn along<V: Vector, const M: usize>(line: Line<V>) -> Line<V>;
}

/// From M + 2 inputs to input values at the points.
pub(super) struct OfInputs;
/// From M output gradients to gradient values at the points.
pub(super) struct OfOutputs;
/// From values at the points to M outputs.
pub(super) struct Outputs;

/// Implements [`Transform`] by a function.
macro_rules! transform {
    ($name:ident, $function:ident, $read_beyond:literal, $written_beyond:literal) => {
        impl Transform for $name {
            const READ_BEYOND: usize = $read_beyond;
            const WRITTEN_BEYOND: usize = $written_beyond;

            #[inline(always)]
            unsafe fn along<V: Vector, const M: usize>(line: Line<V>) -> Line<V> {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { $function::<V, M>(line) }
            }
        }
    };
}

transform!(OfInputs, of_inputs, 2, 2);
transform!(OfOutputs, of_outputs, 0, 2);
transform!(Outputs, outputs, 2, 0);

/// Computes the values of M + 2 inputs at the points for M outputs.
///
/// # Safety
/// The CPU must have the path's instructions.
#[inline(always)]
unsafe fn of_inputs<V: Vector, const M: usize>(d: Line<V>) -> Line<V> {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        let zero = V::zero();
        let times = |factor: f32, x| V::multiply_add(zero, V::broadcast(&factor), x);
        let plus = |sum, factor: f32, x| V::multiply_add(sum, V::broadcast(&factor), x);
        match M {
            1 => [V::subtract(d[0], d[1]), d[1], V::subtract(d[2], d[1]), zero, zero, zero],
            2 => {
                let (even, odd) = (times(0.5, d[2]), times(0.5, d[1]));
                [
                    V::subtract(d[0], d[2]),
                    V::add(even, odd),
                    V::subtract(even, odd),
                    V::subtract(d[3], d[1]),
                    zero,
                    zero,
                ]
            }
            3 => {
                let outer = V::subtract(d[3], d[1]);
                let half = times(0.5, d[2]);
                [
                    plus(V::subtract(d[0], d[2]), 0.5, outer),
                    plus(V::add(d[1], half), -0.5, d[3]),
                    plus(plus(half, -1.0 / 3.0, d[1]), -1.0 / 6.0, d[3]),
                    times(1.0 / 6.0, outer),
                    plus(V::subtract(d[4], d[2]), -2.0, outer),
                    zero,
                ]
            }
            _ => {
                let even = plus(times(2.0 / 3.0, d[2]), -1.0 / 6.0, d[4]);
                let odd = plus(times(2.0 / 3.0, d[1]), -1.0 / 6.0, d[3]);
                let even_of_two = times(1.0 / 24.0, V::subtract(d[4], d[2]));
                let odd_of_two = times(1.0 / 12.0, V::subtract(d[3], d[1]));
                [
                    plus(plus(d[0], -1.25, d[2]), 0.25, d[4]),
                    V::add(even, odd),
                    V::subtract(even, odd),
                    V::add(even_of_two, odd_of_two),
                    V::subtract(even_of_two, odd_of_two),
                    plus(plus(d[5], -5.0, d[3]), 4.0, d[1]),
                ]
            }
        }
    }
}

/// Computes the values of M output gradients at a piece's points: the transpose of [`outputs`].
///
/// # Safety
/// The CPU must have the path's instructions.
#[inline(always)]
unsafe fn of_outputs<V: Vector, const M: usize>(y: Line<V>) -> Line<V> {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        let zero = V::zero();
        let times = |factor: f32, x| V::multiply_add(zero, V::broadcast(&factor), x);
        let plus = |sum, factor: f32, x| V::multiply_add(sum, V::broadcast(&factor), x);
        match M {
            1 => [y[0], y[0], y[0], zero, zero, zero],
            2 => [y[0], V::add(y[0], y[1]), V::subtract(y[0], y[1]), y[1], zero, zero],
            3 => {
                let even = V::add(y[0], y[2]);
                let at_two = plus(plus(y[0], 2.0, y[1]), 4.0, y[2]);
                [y[0], V::add(even, y[1]), V::subtract(even, y[1]), at_two, y[2], zero]
            }
            _ => {
                let (even, odd) = (V::add(y[0], y[2]), V::add(y[1], y[3]));
                let (even_of_two, odd_of_two) = (plus(y[0], 4.0, y[2]), plus(times(2.0, y[1]), 8.0, y[3]));
                [
                    y[0],
                    V::add(even, odd),
                    V::subtract(even, odd),
                    V::add(even_of_two, odd_of_two),
                    V::subtract(even_of_two, odd_of_two),
                    y[3],
                ]
            }
        }
    }
}

/// Computes the M outputs of a piece from the values at the points.
///
/// # Safety
/// The CPU must have the path's instructions.
#[inline(always)]
unsafe fn outputs<V: Vector, const M: usize>(v: Line<V>) -> Line<V> {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        let zero = V::zero();
        let plus = |sum, factor: f32, x| V::multiply_add(sum, V::broadcast(&factor), x);
        match M {
            1 => [V::add(V::add(v[0], v[1]), v[2]), zero, zero, zero, zero, zero],
            2 => {
                let first = V::add(V::add(v[0], v[1]), v[2]);
                [first, V::add(V::subtract(v[1], v[2]), v[3]), zero, zero, zero, zero]
            }
            3 => {
                let (even, odd) = (V::add(v[1], v[2]), V::subtract(v[1], v[2]));
                let first = V::add(V::add(v[0], even), v[3]);
                [first, plus(odd, 2.0, v[3]), plus(V::add(even, v[4]), 4.0, v[3]), zero, zero, zero]
            }
            _ => {
                let (even, odd) = (V::add(v[1], v[2]), V::subtract(v[1], v[2]));
                let (even_of_two, odd_of_two) = (V::add(v[3], v[4]), V::subtract(v[3], v[4]));
                [
                    V::add(V::add(v[0], even), even_of_two),
                    plus(odd, 2.0, odd_of_two),
                    plus(even, 4.0, even_of_two),
                    plus(V::add(odd, v[5]), 8.0, odd_of_two),
                    zero,
                    zero,
                ]
            }
        }
    }
}
