//! Into the points of minimal filtering and out of them ([`crate::winograd`]), written once for every path in float32.
//!
//! Memory is reached through slices: all that is left to the caller is that the CPU has the path's instructions.

use crate::line::{Line, WORDS};
use crate::multiply::{Lanes, rectify};
use crate::planes::Planes;
use crate::winograd::Cut;

mod pieces;
mod squares;

/// The last operations on outputs on their way into planes.
#[derive(Clone, Copy)]
pub(crate) struct Finish {
    /// Add what is there.
    pub(crate) add: bool,
    /// Then negative sums become zero.
    pub(crate) relu: bool,
}

/// Values at the points of a cut of the first positions of `input`.
///
/// # Safety
/// The CPU must have the path's instructions.
#[inline(always)]
pub(crate) unsafe fn split<L: Lanes>(cut: &Cut, input: &Planes, positions: usize, points: &mut [Planes]) {
    // SAFETY: the caller's.
    unsafe {
        match cut {
            Cut::OneSide(cut) => pieces::split::<L>(cut, input, positions, points),
            Cut::BothSides(cut) => squares::split::<L>(cut, input, positions, points),
        }
    }
}

/// The outputs of the first positions from the products at the points of a cut.
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
    // SAFETY: the caller's.
    unsafe {
        match cut {
            Cut::OneSide(cut) => pieces::join::<L>(cut, points, positions, output, finish),
            Cut::BothSides(cut) => squares::join::<L>(cut, points, positions, output, finish),
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
            cut: &$crate::winograd::Cut,
            input: &$crate::planes::Planes,
            positions: usize,
            points: &mut [$crate::planes::Planes],
        ) {
            // SAFETY: the caller's.
            unsafe { $crate::paths::transform::split::<$lanes>(cut, input, positions, points) }
        }

        /// [`crate::paths::transform::join`] with the path's instructions.
        ///
        /// # Safety
        /// The CPU must have them.
        $(#[$attribute])*
        pub(crate) unsafe fn join(
            cut: &$crate::winograd::Cut,
            points: &[$crate::planes::Planes],
            positions: usize,
            output: &mut $crate::planes::Planes,
            finish: $crate::paths::transform::Finish,
        ) {
            // SAFETY: the caller's.
            unsafe { $crate::paths::transform::join::<$lanes>(cut, points, positions, output, finish) }
        }
    };
}
pub(crate) use transforms;
