//! Into the points of minimal filtering and out of them ([`crate::winograd`]), written once for every path in float32.
//!
//! Memory is reached through slices: all that is left to the caller is that the CPU has the path's instructions.

use crate::layout::Layout;
use crate::line::{Line, WORDS};
use crate::multiply::{Lanes, rectify};
use crate::planes::Planes;
use crate::winograd::{Minimal, Pieces};

/// The same piece of all lines of a position, in a block of channels.
#[derive(Clone, Copy)]
struct Piece {
    /// Its first output on the first line, in planes of the board.
    first: usize,
    /// From an output to the next.
    along: usize,
    /// From a line to the next.
    across: usize,
    /// In planes of a point, where the lines lie beside each other.
    at: usize,
    /// How many there are.
    lines: usize,
}

/// What happens to outputs on their way into planes.
#[derive(Clone, Copy)]
pub(crate) struct Finish {
    /// Add what is there.
    pub(crate) add: bool,
    /// Then negative sums become zero.
    pub(crate) relu: bool,
}

/// Every piece of the first positions, in so many blocks of channels, and how many outputs it has.
#[inline(always)]
fn each(
    pieces: &Pieces,
    [planes, points]: [Layout; 2],
    blocks: usize,
    positions: usize,
) -> impl Iterator<Item = (usize, Piece)> {
    let &Pieces { along, across, board, .. } = pieces;
    (0..blocks).flat_map(move |block| (0..positions).map(move |position| (block, position))).flat_map(
        move |(block, position)| {
            let [plane, point] = [planes, points].map(|layout| layout.index(block, position, 0));
            pieces.cuts.iter().enumerate().map(move |(index, cut)| {
                let (first, at) = (plane + cut.start * along, point + index * board.pitch());
                (cut.len(), Piece { first, along, across, at, lines: board.width })
            })
        },
    )
}

/// Values at the points of all pieces of the first positions of `input`.
///
/// # Safety
/// The CPU must have the path's instructions.
#[inline(always)]
pub(crate) unsafe fn split<L: Lanes>(pieces: &Pieces, input: &Planes, positions: usize, points: &mut [Planes]) {
    let layouts = [input.layout, points[0].layout];
    for (outputs, piece) in each(pieces, layouts, input.blocks(), positions) {
        let input = input.lines.as_slice();
        // SAFETY: the caller's.
        unsafe {
            match outputs {
                1 => split_piece::<L, 1, 3>(piece, input, points),
                2 => split_piece::<L, 2, 4>(piece, input, points),
                3 => split_piece::<L, 3, 5>(piece, input, points),
                4 => split_piece::<L, 4, 6>(piece, input, points),
                5 => split_piece::<L, 5, 7>(piece, input, points),
                _ => unreachable!("no piece has {outputs} outputs"),
            }
        }
    }
}

/// # Safety
/// As [`split`].
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "with iterators the compiler does not unroll")]
unsafe fn split_piece<L: Lanes, const M: usize, const N: usize>(piece: Piece, input: &[Line], points: &mut [Planes]) {
    let mut planes = points.iter_mut();
    let to: [&mut [Line]; N] = std::array::from_fn(|_| {
        &mut planes.next().expect("a piece has no more points than there are planes").lines[piece.at..][..piece.lines]
    });
    // A piece begins one input before its first output; what lies beyond the board is zero.
    let first = piece.first - piece.along;
    for line in 0..piece.lines {
        let from: [&Line; N] = std::array::from_fn(|index| &input[first + line * piece.across + index * piece.along]);
        for part in 0..WORDS / L::WIDTH {
            // SAFETY: the caller's; the parts of a line lie inside it.
            unsafe {
                let mut inputs = [L::zero(); N];
                for index in 0..N {
                    inputs[index] = L::load(from[index].0.as_ptr().add(part * L::WIDTH));
                }
                for point in 0..N {
                    let value = combine::<L, N>(const { &Minimal::<M, N>::INPUTS }, point, &inputs);
                    L::store(value, to[point][line].0.as_mut_ptr().add(part * L::WIDTH).cast());
                }
            }
        }
    }
}

/// The outputs of all pieces of the first positions from the products at their points.
///
/// # Safety
/// The CPU must have the path's instructions.
#[inline(always)]
pub(crate) unsafe fn join<L: Lanes>(
    pieces: &Pieces,
    points: &[Planes],
    positions: usize,
    output: &mut Planes,
    finish: Finish,
) {
    let layouts = [output.layout, points[0].layout];
    for (outputs, piece) in each(pieces, layouts, points[0].blocks(), positions) {
        let output = output.lines.as_mut_slice();
        // SAFETY: the caller's.
        unsafe {
            match outputs {
                1 => join_piece::<L, 1, 3>(piece, points, output, finish),
                2 => join_piece::<L, 2, 4>(piece, points, output, finish),
                3 => join_piece::<L, 3, 5>(piece, points, output, finish),
                4 => join_piece::<L, 4, 6>(piece, points, output, finish),
                5 => join_piece::<L, 5, 7>(piece, points, output, finish),
                _ => unreachable!("no piece has {outputs} outputs"),
            }
        }
    }
}

/// # Safety
/// As [`join`].
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "with iterators the compiler does not unroll")]
unsafe fn join_piece<L: Lanes, const M: usize, const N: usize>(
    piece: Piece,
    points: &[Planes],
    output: &mut [Line],
    finish: Finish,
) {
    let from: [&[Line]; N] = std::array::from_fn(|point| &points[point].lines[piece.at..][..piece.lines]);
    for line in 0..piece.lines {
        let mut outputs = [[0.0; WORDS]; M];
        for part in 0..WORDS / L::WIDTH {
            // SAFETY: the caller's; the parts of a line lie inside it.
            unsafe {
                let mut products = [L::zero(); N];
                for point in 0..N {
                    products[point] = L::load(from[point][line].0.as_ptr().add(part * L::WIDTH));
                }
                for index in 0..M {
                    let sum = combine::<L, N>(const { &Minimal::<M, N>::OUTPUTS }, index, &products);
                    L::store(sum, outputs[index].as_mut_ptr().add(part * L::WIDTH));
                }
            }
        }
        for index in 0..M {
            let to = &mut output[piece.first + line * piece.across + index * piece.along];
            finish.write(outputs[index], to);
        }
    }
}

impl Finish {
    #[inline(always)]
    fn write(self, mut values: [f32; WORDS], line: &mut Line) {
        if self.add {
            (0..WORDS).for_each(|lane| values[lane] += f32::from_bits(line.0[lane]));
        }
        rectify(&mut values, self.relu);
        line.0 = values.map(f32::to_bits);
    }
}

/// A row of a matrix times registers; the matrix is known to the compiler, which leaves out its zeros.
///
/// # Safety
/// The CPU must have the path's instructions.
#[inline(always)]
unsafe fn combine<L: Lanes, const N: usize>(
    matrix: &'static [[f32; N]],
    row: usize,
    registers: &[L::Register; N],
) -> L::Register {
    // SAFETY: the caller's; a float32 is a word.
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

/// The functions of a path that split and join; takes the attributes that switch its instructions on, and its
/// [`Lanes`].
macro_rules! transforms {
    ($(#[$attribute:meta])* $lanes:ty) => {
        /// [`crate::paths::transform::split`] with the path's instructions.
        ///
        /// # Safety
        /// The CPU must have them.
        $(#[$attribute])*
        pub(crate) unsafe fn split(
            pieces: &$crate::winograd::Pieces,
            input: &$crate::planes::Planes,
            positions: usize,
            points: &mut [$crate::planes::Planes],
        ) {
            // SAFETY: the caller's.
            unsafe { $crate::paths::transform::split::<$lanes>(pieces, input, positions, points) }
        }

        /// [`crate::paths::transform::join`] with the path's instructions.
        ///
        /// # Safety
        /// The CPU must have them.
        $(#[$attribute])*
        pub(crate) unsafe fn join(
            pieces: &$crate::winograd::Pieces,
            points: &[$crate::planes::Planes],
            positions: usize,
            output: &mut $crate::planes::Planes,
            finish: $crate::paths::transform::Finish,
        ) {
            // SAFETY: the caller's.
            unsafe { $crate::paths::transform::join::<$lanes>(pieces, points, positions, output, finish) }
        }
    };
}
pub(crate) use transforms;
