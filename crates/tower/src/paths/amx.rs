//! AMX: eight matrix tiles of 16 rows of 64 bytes; bfloat16 products summed in float32, or products of integers of eight bits
//! summed in 32 bits.
//!
//! Sixteen neighbouring pixels are a tile straight from memory, a border pixel among them being computed for nothing. Two
//! by two tiles of sums (32 pixels, 32 outputs) take four loads for four products. While they are made, the previous
//! sums get their bias, addition, ReLU and rounding: the matrix unit and the vector unit work side by side.

use std::arch::asm;

use super::avx512_bf16::{self, Avx512Bf16};
use super::avx512_i8::{self, Avx512I8};
use crate::line::{Line, WORDS};
use crate::multiply::{Job, Lanes, Sums, Target, finish};
use crate::product::{GROUP, Panel, Run};

/// Rows of a tile.
const ROWS: usize = 16;
/// Groups of outputs of a panel, as the packing for this path has them.
pub(crate) const GROUPS: usize = 2;

/// Eight tiles and what is done with them: 0 to 3 are sums, `[upper, lower] x [first group, second group]`.
///
/// # Safety
/// Of every function: the CPU must have AMX and the system must have granted it, except for an emulation; pointers are
/// read or written as far as sixteen rows at their stride.
pub(crate) trait Unit {
    /// Configures the tiles of this thread.
    unsafe fn configure(&mut self);
    /// Gives them back, so that the system need not save them.
    unsafe fn release(&mut self);
    /// Zeroes the sums.
    unsafe fn zero(&mut self);
    /// One segment for two tiles of pixels: the sums grow by sixteen words of each row times the weights
    /// `[word, group]`.
    unsafe fn multiply_two(&mut self, upper: *const Line, lower: *const Line, weights: *const Line);
    /// The same for the upper tile alone.
    unsafe fn multiply_one(&mut self, upper: *const Line, weights: *const Line);
    /// Writes the sums `[32, 2, 16]`.
    unsafe fn store(&mut self, to: *mut f32);
}

/// The tiles of the CPU, for bfloat16 or for integers.
struct Hardware<const INTEGERS: bool>;

/// The configuration of palette 1: eight tiles of sixteen rows of 64 bytes.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static CONFIGURATION: Configuration = {
    let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
    let mut tile = 0;
    while tile < 8 {
        row_bytes[tile] = 64;
        rows[tile] = 16;
        tile += 1;
    }
    Configuration { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
};

/// Bytes from one row of a tile of pixels to the next.
const PIXEL_STRIDE: usize = size_of::<Line>();
/// Bytes from one row of a tile of weights to the next.
const WEIGHT_STRIDE: usize = GROUPS * size_of::<Line>();
/// Bytes from one row of sums to the next.
const SUM_STRIDE: usize = GROUPS * GROUP * size_of::<f32>();

impl<const INTEGERS: bool> Unit for Hardware<INTEGERS> {
    #[inline(always)]
    unsafe fn configure(&mut self) {
        // SAFETY: the configuration is valid for palette 1.
        unsafe { asm!("ldtilecfg [{0}]", in(reg) &raw const CONFIGURATION, options(nostack)) }
    }

    #[inline(always)]
    unsafe fn release(&mut self) {
        // SAFETY: the caller's.
        unsafe { asm!("tilerelease", options(nostack)) }
    }

    #[inline(always)]
    unsafe fn zero(&mut self) {
        // SAFETY: the caller's. Nothing else in this program touches tiles, so they keep their contents from one block
        // of assembly to the next.
        unsafe {
            asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nomem, nostack));
        }
    }

    #[inline(always)]
    unsafe fn multiply_two(&mut self, upper: *const Line, lower: *const Line, weights: *const Line) {
        macro_rules! multiply_two {
            ($dot:literal) => {
                asm!(
                    "tileloadd tmm4, [{upper} + {pixel}*1]",
                    "tileloadd tmm6, [{weights} + {weight}*1]",
                    concat!($dot, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm5, [{lower} + {pixel}*1]",
                    concat!($dot, " tmm2, tmm5, tmm6"),
                    "tileloadd tmm7, [{weights} + {weight}*1 + 64]",
                    concat!($dot, " tmm1, tmm4, tmm7"),
                    concat!($dot, " tmm3, tmm5, tmm7"),
                    upper = in(reg) upper,
                    lower = in(reg) lower,
                    weights = in(reg) weights,
                    pixel = in(reg) PIXEL_STRIDE,
                    weight = in(reg) WEIGHT_STRIDE,
                    options(nostack, readonly),
                )
            };
        }
        // SAFETY: the caller's.
        unsafe { if INTEGERS { multiply_two!("tdpbusd") } else { multiply_two!("tdpbf16ps") } }
    }

    #[inline(always)]
    unsafe fn multiply_one(&mut self, upper: *const Line, weights: *const Line) {
        macro_rules! multiply_one {
            ($dot:literal) => {
                asm!(
                    "tileloadd tmm4, [{upper} + {pixel}*1]",
                    "tileloadd tmm6, [{weights} + {weight}*1]",
                    concat!($dot, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm7, [{weights} + {weight}*1 + 64]",
                    concat!($dot, " tmm1, tmm4, tmm7"),
                    upper = in(reg) upper,
                    weights = in(reg) weights,
                    pixel = in(reg) PIXEL_STRIDE,
                    weight = in(reg) WEIGHT_STRIDE,
                    options(nostack, readonly),
                )
            };
        }
        // SAFETY: the caller's.
        unsafe { if INTEGERS { multiply_one!("tdpbusd") } else { multiply_one!("tdpbf16ps") } }
    }

    #[inline(always)]
    unsafe fn store(&mut self, to: *mut f32) {
        // SAFETY: the caller's.
        unsafe {
            asm!(
                "tilestored [{to} + {stride}*1], tmm0",
                "tilestored [{to} + {stride}*1 + 64], tmm1",
                "tilestored [{to} + {stride}*1 + 2048], tmm2",
                "tilestored [{to} + {stride}*1 + 2112], tmm3",
                to = in(reg) to,
                stride = in(reg) SUM_STRIDE,
                options(nostack),
            );
        }
    }
}

/// Up to sixteen pixels of a run.
#[derive(Clone, Copy)]
struct Part {
    run: Run,
    first: usize,
    rows: usize,
}

/// Sums that wait to be finished: one or two parts.
#[derive(Clone, Copy)]
struct Pair {
    upper: Part,
    lower: Option<Part>,
}

/// A whole product. Rows of a run must be neighbouring pixels; rows of a matrix go to the vector unit.
///
/// # Safety
/// The CPU must have AMX and AVX-512 bf16, and the system must have granted the former; the job must stay inside its
/// buffers, of which tiles read up to fifteen lines past the last row.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(crate) unsafe fn multiply(job: &Job<'_>) {
    // SAFETY: the caller's.
    unsafe {
        match job.target {
            Target::Matrix { .. } => avx512_bf16::multiply(job),
            Target::Planes { .. } => multiply_with::<Avx512Bf16>(&mut Hardware::<false>, job),
        }
    }
}

/// The same with integers.
///
/// # Safety
/// As [`multiply`], with AVX-512 VNNI instead of AVX-512 bf16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(crate) unsafe fn multiply_i8(job: &Job<'_>) {
    // SAFETY: the caller's.
    unsafe {
        match job.target {
            Target::Matrix { .. } => avx512_i8::multiply(job),
            Target::Planes { .. } => multiply_with::<Avx512I8>(&mut Hardware::<true>, job),
        }
    }
}

/// A product into planes with any unit; the lanes say what is in its tiles.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
pub(crate) unsafe fn multiply_with<L: Lanes>(unit: &mut impl Unit, job: &Job<'_>) {
    let segments = &job.product.segments;
    // So many rows of the previous sums are finished beside each segment.
    let beside = (2 * ROWS).div_ceil(segments.len());
    let mut sums = [Sums::ZERO, Sums::ZERO];
    let mut current = 0;
    // SAFETY: the caller's.
    unsafe {
        unit.configure();
        for panel in &job.product.panels {
            let mut waiting: Option<Pair> = None;
            let mut parts = parts(job.runs);
            while let Some(upper) = parts.next() {
                let pair = Pair { upper, lower: parts.next() };
                let line = |part: Part| job.input.add(part.run.line + part.first);
                let (upper, lower) = (line(pair.upper), pair.lower.map(line));
                let mut weights = job.product.weights.as_ptr().add(panel.weights);
                let mut finished = 0;
                unit.zero();
                for segment in segments {
                    let upper = upper.offset(segment.offset);
                    match lower {
                        Some(lower) => unit.multiply_two(upper, lower.offset(segment.offset), weights),
                        None => unit.multiply_one(upper, weights),
                    }
                    weights = weights.add(WORDS * GROUPS);
                    if let Some(waiting) = &waiting {
                        finish_some::<L>(job, panel, waiting, finished, beside, &sums[1 - current]);
                        finished += beside;
                    }
                }
                unit.store(sums[current].0.as_mut_ptr());
                current = 1 - current;
                waiting = Some(pair);
            }
            if let Some(waiting) = waiting {
                finish_some::<L>(job, panel, &waiting, 0, 2 * ROWS, &sums[1 - current]);
            }
        }
        unit.release();
    }
}

/// All runs in parts of up to sixteen rows.
fn parts(runs: &[Run]) -> impl Iterator<Item = Part> {
    runs.iter().flat_map(|&run| {
        (0..run.rows).step_by(ROWS).map(move |first| Part { run, first, rows: ROWS.min(run.rows - first) })
    })
}

/// Finishes rows `from..from + count` of a pair of tiles, as far as there are any.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
unsafe fn finish_some<L: Lanes>(job: &Job<'_>, panel: &Panel, pair: &Pair, from: usize, count: usize, sums: &Sums) {
    for row in from..(from + count).min(2 * ROWS) {
        let part = if row < ROWS { Some(pair.upper) } else { pair.lower };
        let Some(part) = part.filter(|part| row % ROWS < part.rows) else { continue };
        let sums = &sums.0[row * GROUPS * GROUP..][..GROUPS * GROUP];
        // SAFETY: the row lies inside the run.
        unsafe { finish::<L>(job, panel, &part.run, part.first + row % ROWS, 1, sums) };
    }
}

/// Products from tiles that stay where they are, `rounds` times four; how many multiply-adds it made.
///
/// # Safety
/// The CPU must have AMX and the system must have granted it.
pub(crate) unsafe fn burst<const INTEGERS: bool>(rounds: usize) -> usize {
    macro_rules! four {
        ($dot:literal) => {
            asm!(
                concat!($dot, " tmm0, tmm4, tmm6"),
                concat!($dot, " tmm1, tmm4, tmm7"),
                concat!($dot, " tmm2, tmm5, tmm6"),
                concat!($dot, " tmm3, tmm5, tmm7"),
                options(nomem, nostack),
            )
        };
    }
    let mut unit = Hardware::<INTEGERS>;
    // SAFETY: the caller's; the tiles are configured, and zero by that.
    unsafe {
        unit.configure();
        for _ in 0..rounds {
            if INTEGERS { four!("tdpbusd") } else { four!("tdpbf16ps") }
        }
        unit.release();
    }
    let per_word = if INTEGERS { Avx512I8::FORMAT.per_word() } else { Avx512Bf16::FORMAT.per_word() };
    rounds * 4 * ROWS * GROUP * per_word * WORDS
}

#[cfg(test)]
pub(crate) mod emulation;
