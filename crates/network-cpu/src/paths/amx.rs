//! AMX: eight matrix tiles with 16 rows of 64 bytes; bfloat16 products summed in float32, or 8-bit integer products
//! summed in 32 bits.
//!
//! Sixteen adjacent lines are a tile that is loaded directly from memory. They are pixels of one position, including
//! border pixels that are computed for nothing, or the same pixel of sixteen positions. Three by two tiles of sums
//! (48 rows, 32 outputs) take seven loads for six products, which hides the latency of weights in the second-level
//! cache. Meanwhile bias, addition, ReLU and rounding are applied to the previous sums: the matrix unit and the
//! vector unit work in parallel.

use std::arch::asm;
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::avx512_bf16::{self, Avx512Bf16};
use super::avx512_i8::Avx512I8;
use crate::multiply::{Job, Lanes, Target, finish};
use crate::planes::{Format, Line, TILE_ROWS, WORDS};
use crate::product::{GROUP, Panel, Run, Taps};

/// Output groups per panel in the packing for this path.
pub(crate) const GROUPS: usize = 2;
/// Maximum row tiles multiplied together.
pub(crate) const TOGETHER: usize = 3;

/// Sums of the tiles multiplied together, `[tile of rows, 16, 2, 16]`.
#[repr(C, align(64))]
struct Sums([f32; TOGETHER * TILE_ROWS * GROUPS * GROUP]);

/// Eight tiles with their operations; the first tiles hold the sums, `[tile of rows, group]`.
///
/// # Safety
/// For every function, the CPU must have AMX and the system must have granted it, except in an emulation. Pointers
/// are read or written for all rows of a tile at the stride.
pub(crate) trait Unit {
    /// Configures the tiles of this thread: `rows` input rows per tile, `stride` bytes apart.
    unsafe fn configure(&mut self, rows: usize, stride: usize);
    /// Zeroes the sums.
    unsafe fn zero(&mut self);
    /// Multiplies one segment of one to three row tiles: adds to the sums sixteen words of each row times the weights
    /// `[group, word]`.
    unsafe fn multiply<const TILES: usize>(&mut self, rows: [*const Line; TILES], weights: *const Line);
    /// Multiplies one segment of one row tile, into the sums of tile `STRAND`, 0 or 1: neither strand has to wait for
    /// the other.
    unsafe fn multiply_strand<const STRAND: usize>(&mut self, rows: *const Line, weights: *const Line);
    /// Stores the sums `[tile of rows, 16, 2, 16]`.
    unsafe fn store<const TILES: usize>(&mut self, to: *mut f32);
}

/// Tiles of the CPU, for bfloat16 or for integers.
struct Hardware<L> {
    /// Bytes between input rows.
    stride: usize,
    lanes: PhantomData<L>,
}

impl<L: Lanes> Hardware<L> {
    const INTEGERS: bool = matches!(L::FORMAT, Format::I8);

    /// Returns the tiles in the state after [`configure`].
    fn new() -> Self {
        Self { stride: size_of::<Line>(), lanes: PhantomData }
    }
}

/// Tiles for the sums of rows, or for input rows unless three row tiles are multiplied together.
const OF_ROWS: std::ops::Range<usize> = 0..6;

/// Bytes between rows of a weight tile.
const WEIGHT_STRIDE: usize = size_of::<Line>();
impl<L: Lanes> Unit for Hardware<L> {
    #[inline(always)]
    unsafe fn configure(&mut self, rows: usize, stride: usize) {
        self.stride = stride;
        let mut of_tiles = [TILE_ROWS as u8; 8];
        of_tiles[OF_ROWS].fill(rows as u8);
        // SAFETY: the caller fulfils the contract of this function.
        unsafe { cpu::configure_tiles(of_tiles) }
    }

    #[inline(always)]
    unsafe fn zero(&mut self) {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe { cpu::zero_sums() }
    }

    #[inline(always)]
    unsafe fn multiply<const TILES: usize>(&mut self, rows: [*const Line; TILES], weights: *const Line) {
        macro_rules! three {
            ($dot:literal, $rows:expr) => {{
                let [first, second, third] = $rows;
                asm!(
                    "tileloadd tmm7, [{weights} + {weight_stride}*1]",
                    "tileloadd tmm6, [{first} + {stride}*1]",
                    concat!($dot, " tmm0, tmm6, tmm7"),
                    "tileloadd tmm6, [{second} + {stride}*1]",
                    concat!($dot, " tmm2, tmm6, tmm7"),
                    "tileloadd tmm6, [{third} + {stride}*1]",
                    concat!($dot, " tmm4, tmm6, tmm7"),
                    "tileloadd tmm7, [{weights} + {weight_stride}*1 + 1024]",
                    concat!($dot, " tmm5, tmm6, tmm7"),
                    "tileloadd tmm6, [{second} + {stride}*1]",
                    concat!($dot, " tmm3, tmm6, tmm7"),
                    "tileloadd tmm6, [{first} + {stride}*1]",
                    concat!($dot, " tmm1, tmm6, tmm7"),
                    first = in(reg) first,
                    second = in(reg) second,
                    third = in(reg) third,
                    weights = in(reg) weights,
                    stride = in(reg) self.stride,
                    weight_stride = in(reg) WEIGHT_STRIDE,
                    options(nostack, readonly),
                )
            }};
        }
        macro_rules! two {
            ($dot:literal, $rows:expr) => {{
                let [first, second] = $rows;
                asm!(
                    "tileloadd tmm4, [{first} + {stride}*1]",
                    "tileloadd tmm6, [{weights} + {weight_stride}*1]",
                    concat!($dot, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm5, [{second} + {stride}*1]",
                    concat!($dot, " tmm2, tmm5, tmm6"),
                    "tileloadd tmm7, [{weights} + {weight_stride}*1 + 1024]",
                    concat!($dot, " tmm1, tmm4, tmm7"),
                    concat!($dot, " tmm3, tmm5, tmm7"),
                    first = in(reg) first,
                    second = in(reg) second,
                    weights = in(reg) weights,
                    stride = in(reg) self.stride,
                    weight_stride = in(reg) WEIGHT_STRIDE,
                    options(nostack, readonly),
                )
            }};
        }
        // SAFETY: the caller fulfils the contract of this function.
        unsafe {
            match *rows.as_slice() {
                [a, b, c] if Self::INTEGERS => three!("tdpbusd", [a, b, c]),
                [a, b, c] => three!("tdpbf16ps", [a, b, c]),
                [a, b] if Self::INTEGERS => two!("tdpbusd", [a, b]),
                [a, b] => two!("tdpbf16ps", [a, b]),
                [a] => self.multiply_strand::<0>(a, weights),
                _ => unreachable!("one to three tiles of rows"),
            }
        }
    }

    #[inline(always)]
    unsafe fn multiply_strand<const STRAND: usize>(&mut self, rows: *const Line, weights: *const Line) {
        macro_rules! strand {
            ($dot:literal, $first:literal, $second:literal, $rows:literal) => {
                asm!(
                    concat!("tileloadd ", $rows, ", [{rows} + {stride}*1]"),
                    "tileloadd tmm6, [{weights} + {weight_stride}*1]",
                    concat!($dot, " ", $first, ", ", $rows, ", tmm6"),
                    "tileloadd tmm7, [{weights} + {weight_stride}*1 + 1024]",
                    concat!($dot, " ", $second, ", ", $rows, ", tmm7"),
                    rows = in(reg) rows,
                    weights = in(reg) weights,
                    stride = in(reg) self.stride,
                    weight_stride = in(reg) WEIGHT_STRIDE,
                    options(nostack, readonly),
                )
            };
        }
        // SAFETY: the caller fulfils the contract of this function.
        unsafe {
            match STRAND {
                0 if Self::INTEGERS => strand!("tdpbusd", "tmm0", "tmm1", "tmm4"),
                0 => strand!("tdpbf16ps", "tmm0", "tmm1", "tmm4"),
                _ if Self::INTEGERS => strand!("tdpbusd", "tmm2", "tmm3", "tmm5"),
                _ => strand!("tdpbf16ps", "tmm2", "tmm3", "tmm5"),
            }
        }
    }

    #[inline(always)]
    unsafe fn store<const TILES: usize>(&mut self, to: *mut f32) {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe { cpu::store_sums::<TILES>(to) }
    }
}

/// Configures the tiles of this thread for products into planes.
///
/// # Safety
/// The CPU must have AMX and the system must have granted it.
pub(crate) unsafe fn configure() {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe { Hardware::<Avx512Bf16>::new().configure(TILE_ROWS, size_of::<Line>()) }
}

/// Releases the tiles of this thread, so that the system need not save them.
///
/// # Safety
/// The CPU must have AMX and the system must have granted it.
pub(crate) unsafe fn release() {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe { cpu::release_tiles() }
}

/// Final operations on a row of sums.
pub(crate) trait Finish {
    /// Finishes a row of one of the waiting runs, from the sums `[2, 16]`.
    ///
    /// # Safety
    /// The conditions of [`multiply`] apply.
    unsafe fn row(job: &Job<'_>, waiting: &Waiting<'_>, run: usize, row: usize, sums: *const f32);
}

/// Finishes rows into planes of bfloat16. Two groups fill a line; groups that only pad a panel are zero, and so are
/// the channels.
struct IntoLines<const ADD: bool, const RELU: bool>;

impl<const ADD: bool, const RELU: bool> Finish for IntoLines<ADD, RELU> {
    #[inline(always)]
    unsafe fn row(_: &Job<'_>, waiting: &Waiting<'_>, run: usize, row: usize, sums: *const f32) {
        // SAFETY: the caller fulfils the contract of this function; the job has planes.
        unsafe {
            let line = waiting.lines.get_unchecked(run).add(row);
            avx512_bf16::finish_line::<ADD, RELU>(sums, waiting.bias, line);
        }
    }
}

/// Finishes rows into any target of the job.
pub(crate) struct Anywhere<L>(PhantomData<L>);

impl<L: Lanes> Finish for Anywhere<L> {
    #[inline(always)]
    unsafe fn row(job: &Job<'_>, waiting: &Waiting<'_>, run: usize, row: usize, sums: *const f32) {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe {
            let sums = std::slice::from_raw_parts(sums, GROUPS * GROUP);
            finish::<L>(job, waiting.panel, &waiting.runs[run], row, 1, sums);
        }
    }
}

/// One to three runs with sums that wait to be finished.
pub(crate) struct Waiting<'a> {
    panel: &'a Panel,
    runs: &'a [Run],
    /// `[tile of rows, 16, 2, 16]`.
    sums: *const f32,
    /// Index of the next rows to finish, in units of [`FOUR`] rows.
    next: usize,
    /// Bias of the panel, `[2, 16]`.
    bias: *const f32,
    /// Destination of each run's first row, if into planes of bfloat16.
    lines: [*mut Line; TOGETHER],
}

/// Rows finished at once.
const FOUR: usize = 4;
/// Groups of [`FOUR`] rows in all tiles that are multiplied together.
const FOURS: usize = TOGETHER * TILE_ROWS / FOUR;

impl<'a> Waiting<'a> {
    /// Prepares to finish the sums of runs.
    ///
    /// # Safety
    /// The conditions of [`multiply`] apply.
    #[inline(always)]
    unsafe fn new(job: &Job<'_>, panel: &'a Panel, runs: &'a [Run], sums: *const f32) -> Self {
        let bias = job.product.bias[panel.first_group..][..GROUPS].as_ptr().cast();
        let mut to = [std::ptr::null_mut(); TOGETHER];
        if let Target::Planes { lines, block_lines, .. } = job.target {
            let block = panel.first_group / GROUPS * block_lines;
            // SAFETY: the runs lie inside the output.
            to.iter_mut().zip(runs).for_each(|(to, run)| *to = unsafe { lines.add(block + run.line) });
        }
        Self { panel, runs, sums, next: 0, bias, lines: to }
    }

    /// Finishes up to four times `fours` rows.
    ///
    /// # Safety
    /// The conditions of [`multiply`] apply.
    #[inline(always)]
    unsafe fn finish<F: Finish>(&mut self, job: &Job<'_>, fours: usize) {
        for _ in 0..fours {
            let (run, first) = (self.next / (TILE_ROWS / FOUR), self.next % (TILE_ROWS / FOUR) * FOUR);
            if run >= self.runs.len() {
                return;
            }
            // SAFETY: the wanted rows lie inside the run.
            unsafe {
                let wanted = self.runs.get_unchecked(run).wanted >> first;
                let sums = self.sums.add(self.next * FOUR * GROUPS * GROUP);
                for row in 0..FOUR {
                    if wanted >> row & 1 != 0 {
                        F::row(job, self, run, first + row, sums.add(row * GROUPS * GROUP));
                    }
                }
            }
            self.next += 1;
        }
    }
}

/// Computes a whole product. Runs have at most sixteen rows.
///
/// # Safety
/// The CPU must have AMX and AVX-512 bf16, the system must have granted the former, and [`configure`] must have been
/// called on this thread and [`release`] not since. The job must stay inside its buffers; tiles of adjacent lines
/// read up to fifteen lines past the last row.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(crate) unsafe fn multiply(job: &Job<'_>) {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        let unit = &mut Hardware::<Avx512Bf16>::new();
        match job.target {
            Target::Planes { add: false, relu: false, .. } => multiply_with::<_, IntoLines<false, false>>(unit, job),
            Target::Planes { add: false, relu: true, .. } => multiply_with::<_, IntoLines<false, true>>(unit, job),
            Target::Planes { add: true, relu: false, .. } => multiply_with::<_, IntoLines<true, false>>(unit, job),
            Target::Planes { add: true, relu: true, .. } => multiply_with::<_, IntoLines<true, true>>(unit, job),
            Target::Matrix { .. } => layer_with::<_, Avx512Bf16>(unit, job),
        }
    }
}

/// Computes a whole integer product, into planes only.
///
/// # Safety
/// The conditions of [`multiply`] apply, with AVX-512 VNNI instead of AVX-512 bf16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(crate) unsafe fn multiply_i8(job: &Job<'_>) {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe { multiply_with::<_, Anywhere<Avx512I8>>(&mut Hardware::<Avx512I8>::new(), job) }
}

/// Computes a product into a matrix with any unit, one row tile at a time.
///
/// # Safety
/// The conditions of [`multiply`] apply.
#[inline(always)]
pub(crate) unsafe fn layer_with<U: Unit, L: Lanes>(unit: &mut U, job: &Job<'_>) {
    let (segments, odd) = job.product.segments.as_chunks::<2>();
    let mut sums = MaybeUninit::<Sums>::uninit();
    let sums = sums.as_mut_ptr().cast::<f32>();
    for run in job.runs {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe {
            unit.configure(run.rows, run.stride * size_of::<Line>());
            let rows = job.input.add(run.line);
            for panel in &job.product.panels {
                let mut weights = job.product.weights.as_ptr().add(panel.weights);
                unit.zero();
                for [even, odd] in segments {
                    unit.multiply_strand::<0>(rows.offset(even.offset(job.layout)), weights);
                    unit.multiply_strand::<1>(rows.offset(odd.offset(job.layout)), weights.add(WORDS * GROUPS));
                    weights = weights.add(2 * WORDS * GROUPS);
                }
                for last in odd {
                    unit.multiply_strand::<0>(rows.offset(last.offset(job.layout)), weights);
                }
                unit.store::<2>(sums);
                let len = run.rows * GROUPS * GROUP;
                let strand = |index| std::slice::from_raw_parts(sums.add(index * TILE_ROWS * GROUPS * GROUP), len);
                let mut total = [0.0; TILE_ROWS * GROUPS * GROUP];
                let both = strand(0).iter().zip(strand(1));
                total.iter_mut().zip(both).for_each(|(total, (even, odd))| *total = even + odd);
                finish::<L>(job, panel, run, 0, run.rows, &total);
            }
        }
    }
    // SAFETY: the caller fulfils the contract of this function.
    unsafe { unit.configure(TILE_ROWS, size_of::<Line>()) };
}

/// Computes a product into planes with any unit.
///
/// # Safety
/// The conditions of [`multiply`] apply.
#[inline(always)]
pub(crate) unsafe fn multiply_with<U: Unit, F: Finish>(unit: &mut U, job: &Job<'_>) {
    let mut sums = [const { MaybeUninit::<Sums>::uninit() }; 2];
    let mut current = 0;
    let mut waiting: Option<Waiting<'_>> = None;
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        for (index, panel) in job.product.panels.iter().enumerate() {
            let mut ahead = Prefetch::of(job, index);
            let mut left = job.runs;
            while !left.is_empty() {
                let (runs, rest) = left.split_at(together(left.len()));
                let sums = sums[current].as_mut_ptr().cast::<f32>();
                match runs {
                    [a, b, c] => tiles::<U, F, 3>(unit, job, panel, [a, b, c], sums, &mut waiting, &mut ahead),
                    [a, b] => tiles::<U, F, 2>(unit, job, panel, [a, b], sums, &mut waiting, &mut ahead),
                    _ => tiles::<U, F, 1>(unit, job, panel, [&runs[0]], sums, &mut waiting, &mut ahead),
                }
                waiting = Some(Waiting::new(job, panel, runs, sums));
                (current, left) = (1 - current, rest);
            }
        }
        if let Some(mut waiting) = waiting {
            waiting.finish::<F>(job, FOURS);
        }
    }
}

/// Weights of the next panel, which are prefetched into the second-level cache.
struct Prefetch {
    lines: *const Line,
    left: usize,
    /// Lines to fetch alongside each segment.
    beside: usize,
}

impl Prefetch {
    /// Returns the weights after panel `index` of a job, if any are to be prefetched.
    #[inline(always)]
    fn of(job: &Job<'_>, index: usize) -> Self {
        let Some(next) = job.next else { return Self { lines: std::ptr::null(), left: 0, beside: 0 } };
        let (product, index) = if index + 1 < job.product.panels.len() { (job.product, index + 1) } else { (next, 0) };
        let first = product.panels[index].weights;
        let end = product.panels.get(index + 1).map_or(product.weights.len(), |panel| panel.weights);
        let beside = (end - first).div_ceil(job.product.segments.len() * job.runs.len().div_ceil(TOGETHER).max(1));
        Self { lines: product.weights[first..].as_ptr(), left: end - first, beside }
    }

    /// Fetches a few lines.
    #[inline(always)]
    fn fetch(&mut self) {
        let count = self.beside.min(self.left);
        for line in 0..count {
            // SAFETY: a prefetch reads nothing; the line lies inside the weights.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(self.lines.add(line).cast()) };
        }
        // SAFETY: the result is at most the end of the weights.
        self.lines = unsafe { self.lines.add(count) };
        self.left -= count;
    }
}

/// Returns the number of tiles to take next: three, but twice two rather than three and a single last one, which
/// would have to wait for each product.
fn together(left: usize) -> usize {
    match left {
        2 | 4 => 2,
        more => more.min(TOGETHER),
    }
}

/// Segments multiplied, if there are enough, before the previous sums are finished. These cannot be read until they
/// have been stored, and instructions that wait for them would block products; much later they have left the
/// first-level cache.
const SETTLING: usize = 12;

/// Computes the sums of a few row tiles, and meanwhile finishes the waiting runs, with sums stored elsewhere.
///
/// # Safety
/// The conditions of [`multiply`] apply.
#[inline(always)]
unsafe fn tiles<U: Unit, F: Finish, const TILES: usize>(
    unit: &mut U,
    job: &Job<'_>,
    panel: &Panel,
    runs: [&Run; TILES],
    sums: *mut f32,
    waiting: &mut Option<Waiting<'_>>,
    ahead: &mut Prefetch,
) {
    let segments = &job.product.segments;
    // Enough rows are finished alongside each segment to finish all of them, even if a third of the segments is
    // hidden.
    let sure = segments.len() * 2 / 3;
    let beside = FOURS.div_ceil(sure + 1);
    let settling = sure.saturating_sub(FOURS.div_ceil(beside)).min(SETTLING);
    let hidden = runs.iter().map(|run| run.edges.hidden).reduce(Taps::and).unwrap_or_default();
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        let rows = runs.map(|run| job.input.add(run.line));
        let mut weights = job.product.weights.as_ptr().add(panel.weights);
        unit.zero();
        for (index, segment) in segments.iter().enumerate() {
            if !hidden.contain(segment.tap) {
                let offset = segment.offset(job.layout);
                unit.multiply(rows.map(|row| row.offset(offset)), weights);
                if index >= settling
                    && let Some(waiting) = waiting
                {
                    waiting.finish::<F>(job, beside);
                }
                ahead.fetch();
            }
            weights = weights.add(WORDS * GROUPS);
        }
        unit.store::<TILES>(sums);
        if let Some(waiting) = waiting {
            waiting.finish::<F>(job, FOURS);
        }
    }
}

/// Runs `rounds` times four products of the same tiles and returns the number of multiply-adds.
///
/// # Safety
/// The CPU must have AMX and the system must have granted it.
pub(crate) unsafe fn burst<L: Lanes>(rounds: usize) -> usize {
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
    // SAFETY: the caller fulfils the contract of this function; the tiles are configured, which zeroes them.
    unsafe {
        configure();
        for _ in 0..rounds {
            if Hardware::<L>::INTEGERS { four!("tdpbusd") } else { four!("tdpbf16ps") }
        }
        release();
    }
    rounds * 4 * TILE_ROWS * GROUP * L::FORMAT.per_word() * WORDS
}
