use crate::line::WORDS;
use crate::multiply::Lanes;
use crate::paths::transform::{Finish, combine};
use crate::planes::Planes;
use crate::winograd::{Minimal, Squares};

/// A square of a position.
#[derive(Clone, Copy)]
struct Square {
    position: usize,
    /// Row and column of its first output.
    first: [usize; 2],
    /// Its index among those of all positions.
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

/// Values at the points of all squares of the first positions of `input`.
///
/// # Safety
/// The CPU must have the path's instructions.
#[inline(always)]
pub(crate) unsafe fn split<L: Lanes>(squares: &Squares, input: &Planes, positions: usize, points: &mut [Planes]) {
    // SAFETY: the caller's.
    unsafe {
        match squares.outputs {
            3 => split_all::<L, 3, 5>(squares, input, positions, points),
            4 => split_all::<L, 4, 6>(squares, input, positions, points),
            5 => split_all::<L, 5, 7>(squares, input, positions, points),
            outputs => unreachable!("no square has {outputs} outputs along a side"),
        }
    }
}

/// Squares of so many outputs.
///
/// # Safety
/// As [`split`].
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "with iterators the compiler does not unroll")]
unsafe fn split_all<L: Lanes, const M: usize, const N: usize>(
    squares: &Squares,
    input: &Planes,
    positions: usize,
    points: &mut [Planes],
) {
    let (board, layout) = (input.layout.board, points[0].layout);
    for square in squares.of_positions(positions) {
        // A square begins one input before its first output. What lies beyond the board is zero; so is the first line
        // of planes, which stands for what lies beyond the border.
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
                // SAFETY: the caller's; the parts of a line lie inside it.
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

/// The outputs of all squares of the first positions from the products at their points.
///
/// # Safety
/// The CPU must have the path's instructions.
#[inline(always)]
pub(crate) unsafe fn join<L: Lanes>(
    squares: &Squares,
    points: &[Planes],
    positions: usize,
    output: &mut Planes,
    finish: Finish,
) {
    // SAFETY: the caller's.
    unsafe {
        match squares.outputs {
            3 => join_all::<L, 3, 5>(squares, points, positions, output, finish),
            4 => join_all::<L, 4, 6>(squares, points, positions, output, finish),
            5 => join_all::<L, 5, 7>(squares, points, positions, output, finish),
            outputs => unreachable!("no square has {outputs} outputs along a side"),
        }
    }
}

/// Squares of so many outputs.
///
/// # Safety
/// As [`join`].
#[inline(always)]
unsafe fn join_all<L: Lanes, const M: usize, const N: usize>(
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
            // SAFETY: the caller's.
            let outputs = unsafe { outputs_of::<L, M, N>(points, at) };
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

/// The outputs of a square, row by row.
///
/// # Safety
/// As [`join`].
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "with iterators the compiler does not unroll")]
unsafe fn outputs_of<L: Lanes, const M: usize, const N: usize>(points: &[Planes], at: usize) -> [[[f32; WORDS]; M]; M] {
    let mut outputs = [[[0.0; WORDS]; M]; M];
    for part in 0..WORDS / L::WIDTH {
        // SAFETY: the caller's; the parts of a line lie inside it.
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
