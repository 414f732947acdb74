//! The registers of a path and the few operations that kernels need of them.

use half::bf16;

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512_bf16;
pub(crate) mod portable;

/// The most registers of a row of a tile.
pub(crate) const REGISTERS: usize = 2;
/// Floats of the widest register.
pub(crate) const WIDTH_MAX: usize = 16;
/// Floats of the widest row of a tile.
pub(crate) const PANEL_MAX: usize = REGISTERS * WIDTH_MAX;

/// Calls a function for the rows and registers of a tile, which are constants of the function.
macro_rules! for_rows {
    ($rows:expr, $registers:expr, $function:ident::<$vector:ident>($($argument:expr),*)) => {
        for_rows!(@ $rows, $registers, $function, $vector, ($($argument),*); 1 2 3 4 5 6 7 8 9 10 11 12 13 14)
    };
    (@ $rows:expr, $registers:expr, $function:ident, $vector:ident, $arguments:tt; $($row:literal)+) => {
        match ($rows, $registers) {
            $(
                ($row, 1) if $row <= $vector::ROWS_MAX => $function::<$vector, $row, 1> $arguments,
                ($row, _) if $row <= $vector::ROWS_MAX => $function::<$vector, $row, REGISTERS> $arguments,
            )+
            _ => unreachable!("a tile has 1 to {} rows", $vector::ROWS_MAX),
        }
    };
}

pub(crate) use for_rows;

/// A register of float32 and its operations.
///
/// Every function is unsafe for one reason: the CPU must have the instructions of the path. Pointers are read or
/// written as far as a register is wide.
pub(crate) trait Vector {
    /// A register.
    type Register: Copy;
    /// The float32 of a register.
    const WIDTH: usize;
    /// The factors of an *element*, which is what a lane multiplies at once: one float32, or two bfloat16 in as many
    /// bits.
    const FACTORS: usize = 1;
    /// The most rows of a tile: its sums in two registers each, two registers of weights and one of input fit the
    /// registers of the CPU.
    const ROWS_MAX: usize;

    /// A register of zeros.
    unsafe fn zero() -> Self::Register;
    /// One value in every lane.
    unsafe fn broadcast(value: *const f32) -> Self::Register;
    /// A register of adjacent values.
    unsafe fn load(values: *const f32) -> Self::Register;
    /// Writes adjacent values.
    unsafe fn store(register: Self::Register, to: *mut f32);
    /// `a + b` in each lane.
    unsafe fn add(a: Self::Register, b: Self::Register) -> Self::Register;
    /// `a - b` in each lane.
    unsafe fn subtract(a: Self::Register, b: Self::Register) -> Self::Register;
    /// `sums + a · b` in each lane.
    unsafe fn multiply_add(sums: Self::Register, a: Self::Register, b: Self::Register) -> Self::Register;

    /// Adds the products of two registers of elements to `sums`: in each lane one product for each factor.
    #[inline(always)]
    unsafe fn multiply(sums: Self::Register, a: Self::Register, b: Self::Register) -> Self::Register {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe { Self::multiply_add(sums, a, b) }
    }

    /// The elements of adjacent values, first those of `low`. Each has two factors.
    #[inline(always)]
    unsafe fn pair_adjacent(_low: Self::Register, _high: Self::Register) -> Self::Register {
        unreachable!("an element has one factor")
    }

    /// The elements of a value of `first` and one of `second` in each lane.
    #[inline(always)]
    unsafe fn pair_lanes(_first: Self::Register, _second: Self::Register) -> Self::Register {
        unreachable!("an element has one factor")
    }

    /// The values, or 0 in each lane in which `by` is at most 0.
    #[inline(always)]
    unsafe fn passed(_values: Self::Register, _by: Self::Register) -> Self::Register {
        unreachable!("the path has no bfloat16")
    }

    /// A register of adjacent bfloat16, as float32.
    #[inline(always)]
    unsafe fn load_bf16(_values: *const bf16) -> Self::Register {
        unreachable!("the path has no bfloat16")
    }

    /// Writes the bfloat16 nearest to each value.
    #[inline(always)]
    unsafe fn store_bf16(_register: Self::Register, _to: *mut bf16) {
        unreachable!("the path has no bfloat16")
    }
}

/// Work that a path computes: it is compiled once for each path, with the instructions of the path.
///
/// `run`, and everything that it calls in its loops, is `#[inline(always)]`: only inlined code is compiled for the
/// path.
pub(crate) trait Task {
    /// The result.
    type Output;

    /// Computes the result.
    ///
    /// # Safety
    /// The CPU must have the instructions of the path.
    unsafe fn run<V: Vector>(self) -> Self::Output;
}
