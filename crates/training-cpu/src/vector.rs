//! Registers of a path, with the few operations that kernels need.

use half::bf16;

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512_bf16;
pub(crate) mod portable;

/// Maximum registers per row of a tile.
pub(crate) const REGISTERS: usize = 2;
/// Floats of the widest register.
pub(crate) const WIDTH_MAX: usize = 16;
/// Floats of the widest tile row.
pub(crate) const PANEL_MAX: usize = REGISTERS * WIDTH_MAX;

/// Calls a function with the rows and registers of a tile as constants.
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

/// Defines unsafe functions of a path from one expression each, inlined wherever the path's instructions are enabled.
macro_rules! inlined {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)? = $value:expr;)+) => {
        $(
            #[inline(always)]
            #[allow(unused_unsafe, reason = "plain Rust does some of them without")]
            unsafe fn $name($($argument: $kind),*) $(-> $result)? {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { $value }
            }
        )+
    };
}

pub(crate) use inlined;

/// Operations of a path on float32 registers.
///
/// Every function is unsafe for one reason: the CPU must have the instructions of the path. Pointers are read or
/// written for the width of a register.
pub(crate) trait Vector {
    /// One vector register.
    type Register: Copy;
    /// float32 lanes per register.
    const WIDTH: usize;
    /// Factors per *element*, the unit that a lane multiplies at once: one float32, or two bfloat16 in the same
    /// number of bits.
    const FACTORS: usize = 1;
    /// Maximum rows of a tile: two sum registers per row, two weight registers and one input register fit the
    /// registers of the CPU.
    const ROWS_MAX: usize;

    /// Returns a register of zeros.
    unsafe fn zero() -> Self::Register;
    /// Returns one value in every lane.
    unsafe fn broadcast(value: *const f32) -> Self::Register;
    /// Loads adjacent values.
    unsafe fn load(values: *const f32) -> Self::Register;
    /// Stores adjacent values.
    unsafe fn store(register: Self::Register, to: *mut f32);
    /// Returns `a + b` per lane.
    unsafe fn add(a: Self::Register, b: Self::Register) -> Self::Register;
    /// Returns `a - b` per lane.
    unsafe fn subtract(a: Self::Register, b: Self::Register) -> Self::Register;
    /// Returns `sums + a · b` per lane.
    unsafe fn multiply_add(sums: Self::Register, a: Self::Register, b: Self::Register) -> Self::Register;

    /// Adds the products of two registers of elements to `sums`: one product per factor in each lane.
    #[inline(always)]
    unsafe fn multiply(sums: Self::Register, a: Self::Register, b: Self::Register) -> Self::Register {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe { Self::multiply_add(sums, a, b) }
    }

    /// Returns the two-factor elements of adjacent values, `low` first.
    #[inline(always)]
    unsafe fn pair_adjacent(_low: Self::Register, _high: Self::Register) -> Self::Register {
        unreachable!("an element has one factor")
    }

    /// Returns two-factor elements of `first` and `second`, lane by lane.
    #[inline(always)]
    unsafe fn pair_lanes(_first: Self::Register, _second: Self::Register) -> Self::Register {
        unreachable!("an element has one factor")
    }

    /// Returns the values, with 0 in each lane in which `by` is at most 0.
    #[inline(always)]
    unsafe fn passed(_values: Self::Register, _by: Self::Register) -> Self::Register {
        unreachable!("the path has no bfloat16")
    }

    /// Loads adjacent bfloat16 as float32.
    #[inline(always)]
    unsafe fn load_bf16(_values: *const bf16) -> Self::Register {
        unreachable!("the path has no bfloat16")
    }

    /// Stores each value rounded to the nearest bfloat16.
    #[inline(always)]
    unsafe fn store_bf16(_register: Self::Register, _to: *mut bf16) {
        unreachable!("the path has no bfloat16")
    }
}

/// Number formats of a task, so that no task is compiled for a path that cannot run it, or twice with equal results.
pub(crate) enum Formats {
    /// float32 on every path.
    F32,
    /// The elements of products: float32 or bfloat16, by path.
    Elements,
    /// bfloat16; the task runs only on paths that have it.
    Bf16,
}

/// Work for a path, compiled once per path with the instructions of that path.
///
/// `run`, and everything called in its loops, is `#[inline(always)]`: only inlined code is compiled for the path.
pub(crate) trait Task {
    /// Number formats of the task; a task that uses [`Vector::FACTORS`] or bfloat16 must state them.
    const FORMATS: Formats = Formats::F32;
    /// Result of `run`.
    type Output;

    /// Computes the result.
    ///
    /// # Safety
    /// The CPU must have the instructions of the path.
    unsafe fn run<V: Vector>(self) -> Self::Output;
}
