//! Transforms to the points of minimal filtering and back ([`crate::winograd`]), written once for every float32 path.
//!
//! Memory is accessed through slices: the caller only has to ensure that the CPU has the path's instructions.

use crate::multiply::{Lanes, rectify};
use crate::planes::{Layout, Line, Planes, WORDS};
use crate::winograd::{Cut, Minimal, Pieces, Squares};

/// Final operations on outputs before they are written to planes.
#[derive(Clone, Copy)]
pub(crate) struct Finish {
    /// Add the values in the planes.
    pub(crate) add: bool,
    /// Then set negative sums to zero.
    pub(crate) relu: bool,
}

/// Calls a function with the number of outputs along a side and the number of points as constants.
macro_rules! of_outputs {
    ($outputs:expr, $($m:literal at $n:literal),+; $function:ident $arguments:tt) => {
        match $outputs {
            $($m => $function::<L, $m, $n> $arguments,)+
            outputs => unreachable!("nothing is cut into {outputs} outputs along a side"),
        }
    };
}

/// Computes the values of `input` at the points of a cut, for the first positions.
///
/// # Safety
/// The CPU must have the path's instructions.
#[inline(always)]
pub(crate) unsafe fn split<L: Lanes>(cut: &Cut, input: &Planes, positions: usize, points: &mut [Planes]) {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        match cut {
            Cut::OneSide(pieces) => {
                for (index, cut) in pieces.cuts.iter().enumerate() {
                    of_outputs!(cut.len(), 3 at 5, 4 at 6, 5 at 7, 6 at 8, 7 at 9;
                        split_pieces(pieces, index, input, positions, points));
                }
            }
            Cut::BothSides(squares) => {
                of_outputs!(squares.outputs, 3 at 5, 4 at 6, 5 at 7; split_squares(squares, input, positions, points));
            }
        }
    }
}

/// Computes the outputs of the first positions from the products at the points of a cut.
///
/// # Safety
/// The CPU must have the path's instructions.
#[inline(always)]
pub(crate) unsafe fn join<L: Lanes>(
    cut: &Cut,
    points: &[Planes],
    positions: usize,
    output: &mut Planes,
    finish: Finish,
) {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        match cut {
            Cut::OneSide(pieces) => {
                for (index, cut) in pieces.cuts.iter().enumerate() {
                    of_outputs!(cut.len(), 3 at 5, 4 at 6, 5 at 7, 6 at 8, 7 at 9;
                        join_pieces(pieces, index, points, positions, output, finish));
                }
            }
            Cut::BothSides(squares) => {
                of_outputs!(squares.outputs, 3 at 5, 4 at 6, 5 at 7;
                    join_squares(squares, points, positions, output, finish));
            }
        }
    }
}

impl Finish {
    #[inline(always)]
    fn write(self, sums: &[f32; WORDS], line: &mut Line) {
        let mut values = *sums;
        if self.add {
            (0..WORDS).for_each(|lane| values[lane] += f32::from_bits(line.0[lane]));
        }
        rectify(&mut values, self.relu);
        (0..WORDS).for_each(|lane| line.0[lane] = values[lane].to_bits());
    }
}

/// Multiplies a matrix row by registers; the matrix is a constant, so that the compiler omits the zeros.
///
/// # Safety
/// The CPU must have the path's instructions.
#[inline(always)]
unsafe fn combine<L: Lanes, const N: usize>(
    matrix: &'static [[f32; N]],
    row: usize,
    registers: &[L::Register; N],
) -> L::Register {
    // SAFETY: the caller fulfils the contract of this function; a float32 is a word.
    unsafe {
        let mut sum = L::zero();
        for column in 0..N {
            let factor = &matrix[row][column];
            if *factor != 0.0 {
                sum = L::multiply_add(sum, L::broadcast(std::ptr::from_ref(factor).cast()), registers[column]);
            }
        }
        sum
    }
}

/// Defines the functions of a float32 path that split and join, and the functions over whole positions; takes the
/// attributes that enable the path's instructions, and the [`Lanes`].
macro_rules! transforms {
    ($(#[$attribute:meta])* $lanes:ty) => {
        $crate::passes::passes! { functions $(#[$attribute])* }

        /// [`crate::paths::transform::split`] with the path's instructions.
        ///
        /// # Safety
        /// The CPU must have these instructions.
        $(#[$attribute])*
        pub(crate) unsafe fn split(
            cut: &$crate::winograd::Cut,
            input: &$crate::planes::Planes,
            positions: usize,
            points: &mut [$crate::planes::Planes],
        ) {
            // SAFETY: the caller fulfils the contract of this function.
            unsafe { $crate::paths::transform::split::<$lanes>(cut, input, positions, points) }
        }

        /// [`crate::paths::transform::join`] with the path's instructions.
        ///
        /// # Safety
        /// The CPU must have these instructions.
        $(#[$attribute])*
        pub(crate) unsafe fn join(
            cut: &$crate::winograd::Cut,
            points: &[$crate::planes::Planes],
            positions: usize,
            output: &mut $crate::planes::Planes,
            finish: $crate::paths::transform::Finish,
        ) {
            // SAFETY: the caller fulfils the contract of this function.
            unsafe { $crate::paths::transform::join::<$lanes>(cut, points, positions, output, finish) }
        }
    };
}
pub(crate) use transforms;

/// A piece over all lines of a position, in one block of channels.
struct Piece {
    /// Index of the first output on the first line, in planes of the board.
    first: usize,
    /// Index of the value on the first line, in planes of a point, where the lines are adjacent.
    at: usize,
}

impl Piece {
    #[inline(always)]
    fn new(pieces: &Pieces, index: usize, planes: Layout, points: Layout, [block, position]: [usize; 2]) -> Self {
        let first = planes.index(block, position, 0) + pieces.cuts[index].start * pieces.along;
        Self { first, at: points.index(block, position, index * pieces.board.pitch()) }
    }
}

/// Computes the values at the points of the pieces of one cut.
///
/// # Safety
/// The conditions of [`split`] apply.
#[inline(always)]
unsafe fn split_pieces<L: Lanes, const M: usize, const N: usize>(
    pieces: &Pieces,
    index: usize,
    input: &Planes,
    positions: usize,
    points: &mut [Planes],
) {
    let (lines, along, layout) = (pieces.board.width, pieces.along, points[0].layout);
    let mut planes = points.iter_mut();
    let to: [&mut [Line]; N] = std::array::from_fn(|_| {
        planes.next().expect("a piece has no more points than there are planes").lines.as_mut_slice()
    });
    for place in places(input.blocks(), positions) {
        let piece = Piece::new(pieces, index, input.layout, layout, place);
        for line in 0..lines {
            // A piece starts one input before the first output; inputs beyond the board are zero.
            let first = piece.first + line * pieces.across - along;
            let from: [&Line; N] = std::array::from_fn(|index| &input.lines[first + index * along]);
            for part in 0..WORDS / L::WIDTH {
                // SAFETY: the caller fulfils the contract of this function; the parts of a line lie inside it.
                unsafe {
                    let mut inputs = [L::zero(); N];
                    for index in 0..N {
                        inputs[index] = L::load(from[index].0.as_ptr().add(part * L::WIDTH));
                    }
                    for point in 0..N {
                        let value = combine::<L, N>(const { &Minimal::<M, N>::INPUTS }, point, &inputs);
                        let to = &mut to[point][piece.at + line];
                        L::store(value, to.0.as_mut_ptr().add(part * L::WIDTH).cast());
                    }
                }
            }
        }
    }
}

/// Computes the outputs of the pieces of one cut.
///
/// # Safety
/// The conditions of [`join`] apply.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "with iterators the compiler does not unroll")]
unsafe fn join_pieces<L: Lanes, const M: usize, const N: usize>(
    pieces: &Pieces,
    index: usize,
    points: &[Planes],
    positions: usize,
    output: &mut Planes,
    finish: Finish,
) {
    let from: [&[Line]; N] = std::array::from_fn(|point| points[point].lines.as_slice());
    for place in places(points[0].blocks(), positions) {
        let piece = Piece::new(pieces, index, output.layout, points[0].layout, place);
        for line in 0..pieces.board.width {
            let products: [&Line; N] = std::array::from_fn(|point| &from[point][piece.at + line]);
            // SAFETY: the caller fulfils the contract of this function.
            let outputs = unsafe { outputs_of_piece::<L, M, N>(products) };
            for index in 0..M {
                let to = piece.first + line * pieces.across + index * pieces.along;
                finish.write(&outputs[index], &mut output.lines[to]);
            }
        }
    }
}

/// Computes the outputs of a piece.
///
/// # Safety
/// The conditions of [`join`] apply.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "with iterators the compiler does not unroll")]
unsafe fn outputs_of_piece<L: Lanes, const M: usize, const N: usize>(from: [&Line; N]) -> [[f32; WORDS]; M] {
    let mut outputs = [[0.0; WORDS]; M];
    for part in 0..WORDS / L::WIDTH {
        // SAFETY: the caller fulfils the contract of this function; the parts of a line lie inside it.
        unsafe {
            let mut products = [L::zero(); N];
            for point in 0..N {
                products[point] = L::load(from[point].0.as_ptr().add(part * L::WIDTH));
            }
            for index in 0..M {
                let sum = combine::<L, N>(const { &Minimal::<M, N>::OUTPUTS }, index, &products);
                L::store(sum, outputs[index].as_mut_ptr().add(part * L::WIDTH));
            }
        }
    }
    outputs
}

/// Iterates over all blocks of channels and, in each, over all positions.
#[inline(always)]
fn places(blocks: usize, positions: usize) -> impl Iterator<Item = [usize; 2]> {
    (0..blocks * positions).map(move |place| [place / positions, place % positions])
}

/// A square of a position.
#[derive(Clone, Copy)]
struct Square {
    position: usize,
    /// Row and column of the first output.
    first: [usize; 2],
    /// Index of the square within all positions.
    index: usize,
}

impl Squares {
    fn of_positions(&self, positions: usize) -> impl Iterator<Item = Square> {
        let [down, right] = self.count;
        (0..positions * down * right).map(move |index| {
            let (position, square) = (index / (down * right), index % (down * right));
            Square { position, first: [square / right, square % right].map(|square| square * self.outputs), index }
        })
    }
}

/// Computes the values at the points of squares.
///
/// # Safety
/// The conditions of [`split`] apply.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "with iterators the compiler does not unroll")]
unsafe fn split_squares<L: Lanes, const M: usize, const N: usize>(
    squares: &Squares,
    input: &Planes,
    positions: usize,
    points: &mut [Planes],
) {
    let (board, layout) = (input.layout.board, points[0].layout);
    for square in squares.of_positions(positions) {
        // A square starts one input before the first output. Inputs beyond the board are zero; so is the first line
        // of planes, which is read for inputs beyond the border.
        let [rows, columns] = [(board.height, square.first[0]), (board.width, square.first[1])]
            .map(|(side, first)| N.min(side + 2 - first));
        let corner =
            input.index(0, square.position, 0) + square.first[0] * board.down() + square.first[1] * board.right()
                - board.down()
                - board.right();
        for block in 0..input.blocks() {
            let first = corner + block * input.layout.block_lines;
            let at = layout.index(block, 0, square.index);
            for part in 0..WORDS / L::WIDTH {
                // SAFETY: the caller fulfils the contract of this function; the parts of a line lie inside it.
                unsafe {
                    let mut along = [[L::zero(); N]; N];
                    for row in 0..N {
                        let mut inputs = [L::zero(); N];
                        for column in 0..N {
                            let inside = row < rows && column < columns;
                            let line = if inside { first + row * board.down() + column * board.right() } else { 0 };
                            inputs[column] = L::load(input.lines[line].0.as_ptr().add(part * L::WIDTH));
                        }
                        for point in 0..N {
                            along[row][point] = combine::<L, N>(const { &Minimal::<M, N>::INPUTS }, point, &inputs);
                        }
                    }
                    for right in 0..N {
                        let mut inputs = [L::zero(); N];
                        for row in 0..N {
                            inputs[row] = along[row][right];
                        }
                        for down in 0..N {
                            let value = combine::<L, N>(const { &Minimal::<M, N>::INPUTS }, down, &inputs);
                            let to = &mut points[down * N + right].lines[at];
                            L::store(value, to.0.as_mut_ptr().add(part * L::WIDTH).cast());
                        }
                    }
                }
            }
        }
    }
}

/// Computes the outputs of squares.
///
/// # Safety
/// The conditions of [`join`] apply.
#[inline(always)]
unsafe fn join_squares<L: Lanes, const M: usize, const N: usize>(
    squares: &Squares,
    points: &[Planes],
    positions: usize,
    output: &mut Planes,
    finish: Finish,
) {
    let (board, layout) = (output.layout.board, points[0].layout);
    for square in squares.of_positions(positions) {
        let [rows, columns] =
            [(board.height, square.first[0]), (board.width, square.first[1])].map(|(side, first)| M.min(side - first));
        for block in 0..points[0].blocks() {
            let at = layout.index(block, 0, square.index);
            // SAFETY: the caller fulfils the contract of this function.
            let outputs = unsafe { outputs_of_square::<L, M, N>(points, at) };
            let first = output.index(block, square.position, 0)
                + square.first[0] * board.down()
                + square.first[1] * board.right();
            for (row, outputs) in outputs.iter().enumerate().take(rows) {
                for (column, outputs) in outputs.iter().enumerate().take(columns) {
                    let line = first + row * board.down() + column * board.right();
                    finish.write(outputs, &mut output.lines[line]);
                }
            }
        }
    }
}

/// Computes the outputs of a square, row by row.
///
/// # Safety
/// The conditions of [`join`] apply.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "with iterators the compiler does not unroll")]
unsafe fn outputs_of_square<L: Lanes, const M: usize, const N: usize>(
    points: &[Planes],
    at: usize,
) -> [[[f32; WORDS]; M]; M] {
    let mut outputs = [[[0.0; WORDS]; M]; M];
    for part in 0..WORDS / L::WIDTH {
        // SAFETY: the caller fulfils the contract of this function; the parts of a line lie inside it.
        unsafe {
            let mut along = [[L::zero(); N]; M];
            for right in 0..N {
                let mut products = [L::zero(); N];
                for down in 0..N {
                    products[down] = L::load(points[down * N + right].lines[at].0.as_ptr().add(part * L::WIDTH));
                }
                for row in 0..M {
                    along[row][right] = combine::<L, N>(const { &Minimal::<M, N>::OUTPUTS }, row, &products);
                }
            }
            for row in 0..M {
                for column in 0..M {
                    let sum = combine::<L, N>(const { &Minimal::<M, N>::OUTPUTS }, column, &along[row]);
                    L::store(sum, outputs[row][column].as_mut_ptr().add(part * L::WIDTH));
                }
            }
        }
    }
    outputs
}
