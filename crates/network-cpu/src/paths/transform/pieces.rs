use crate::layout::Layout;
use crate::line::{Line, WORDS};
use crate::multiply::Lanes;
use crate::paths::transform::{Finish, combine};
use crate::planes::Planes;
use crate::winograd::{Minimal, Pieces};

/// A piece of all lines of a position, in a block of channels.
struct Piece {
    /// Its first output on the first line, in planes of the board.
    first: usize,
    /// The same of the first line in planes of a point, where the lines lie beside each other.
    at: usize,
}

impl Piece {
    #[inline(always)]
    fn new(pieces: &Pieces, index: usize, planes: Layout, points: Layout, [block, position]: [usize; 2]) -> Self {
        let first = planes.index(block, position, 0) + pieces.cuts[index].start * pieces.along;
        Self { first, at: points.index(block, position, index * pieces.board.pitch()) }
    }
}

/// Values at the points of all pieces of the first positions of `input`.
///
/// # Safety
/// The CPU must have the path's instructions.
#[inline(always)]
pub(crate) unsafe fn split<L: Lanes>(pieces: &Pieces, input: &Planes, positions: usize, points: &mut [Planes]) {
    for (index, cut) in pieces.cuts.iter().enumerate() {
        // SAFETY: the caller's.
        unsafe {
            match cut.len() {
                3 => split_pieces::<L, 3, 5>(pieces, index, input, positions, points),
                4 => split_pieces::<L, 4, 6>(pieces, index, input, positions, points),
                5 => split_pieces::<L, 5, 7>(pieces, index, input, positions, points),
                6 => split_pieces::<L, 6, 8>(pieces, index, input, positions, points),
                7 => split_pieces::<L, 7, 9>(pieces, index, input, positions, points),
                outputs => unreachable!("no piece has {outputs} outputs"),
            }
        }
    }
}

/// The pieces of one cut.
///
/// # Safety
/// As [`split`].
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
            // A piece begins one input before its first output; what lies beyond the board is zero.
            let first = piece.first + line * pieces.across - along;
            let from: [&Line; N] = std::array::from_fn(|index| &input.lines[first + index * along]);
            for part in 0..WORDS / L::WIDTH {
                // SAFETY: the caller's; the parts of a line lie inside it.
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
    for (index, cut) in pieces.cuts.iter().enumerate() {
        // SAFETY: the caller's.
        unsafe {
            match cut.len() {
                3 => join_pieces::<L, 3, 5>(pieces, index, points, positions, output, finish),
                4 => join_pieces::<L, 4, 6>(pieces, index, points, positions, output, finish),
                5 => join_pieces::<L, 5, 7>(pieces, index, points, positions, output, finish),
                6 => join_pieces::<L, 6, 8>(pieces, index, points, positions, output, finish),
                7 => join_pieces::<L, 7, 9>(pieces, index, points, positions, output, finish),
                outputs => unreachable!("no piece has {outputs} outputs"),
            }
        }
    }
}

/// The pieces of one cut.
///
/// # Safety
/// As [`join`].
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
            // SAFETY: the caller's.
            let outputs = unsafe { outputs_of::<L, M, N>(products) };
            for index in 0..M {
                let to = piece.first + line * pieces.across + index * pieces.along;
                finish.write(&outputs[index], &mut output.lines[to]);
            }
        }
    }
}

/// The outputs of a piece.
///
/// # Safety
/// As [`join`].
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "with iterators the compiler does not unroll")]
unsafe fn outputs_of<L: Lanes, const M: usize, const N: usize>(from: [&Line; N]) -> [[f32; WORDS]; M] {
    let mut outputs = [[0.0; WORDS]; M];
    for part in 0..WORDS / L::WIDTH {
        // SAFETY: the caller's; the parts of a line lie inside it.
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

/// Every block of channels, in each every position.
#[inline(always)]
fn places(blocks: usize, positions: usize) -> impl Iterator<Item = [usize; 2]> {
    (0..blocks * positions).map(move |place| [place / positions, place % positions])
}
