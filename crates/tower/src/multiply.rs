//! The product of rows and a packed matrix, written once for every path that multiplies a broadcast word of the input
//! with registers of weights.
//!
//! A tile is a few rows times a panel of outputs: its sums live in registers while all segments pass. Per word of input, a
//! tile of `R` rows and `V` registers of outputs makes `R · V` multiply-adds of `R + V` loads.

use crate::layout::Layout;
use crate::line::{Format, Line, WORDS, from_bf16, to_bf16};
use crate::product::{Edges, GROUP, Panel, Product, Run, Segment};
use crate::tap::Taps;

/// What a path multiplies with: a register of sums and the four operations on it.
///
/// Every function is unsafe for one reason: the CPU must have the instructions of the path. Pointers are read or written
/// as far as a register is wide.
pub(crate) trait Lanes {
    /// A register of sums, or of words.
    type Register: Copy;
    /// Sums in a register.
    const WIDTH: usize;
    /// How words are read.
    const FORMAT: Format;
    /// Rows of a tile at most, by the number of groups of outputs; 0 where that many groups do not fit the registers.
    const ROWS_MAX: [usize; 4];

    /// Zeros.
    unsafe fn zero() -> Self::Register;
    /// One word in every lane.
    unsafe fn broadcast(word: *const u32) -> Self::Register;
    /// Words beside each other.
    unsafe fn load(words: *const u32) -> Self::Register;
    /// `sums + input · weights` in each lane.
    unsafe fn multiply_add(sums: Self::Register, input: Self::Register, weights: Self::Register) -> Self::Register;
    /// Writes the sums; sums of integers as the bits they are.
    unsafe fn store(sums: Self::Register, to: *mut f32);
}

/// Floats of the largest tile: 14 rows of two groups.
const SUMS: usize = 14 * 2 * GROUP;

/// The sums of a tile, `[rows, groups of the panel, 16]`.
#[repr(C, align(64))]
pub(crate) struct Sums([f32; SUMS]);

impl Sums {
    const ZERO: Self = Self([0.0; SUMS]);
}

/// A call as the leaves see it: bounds have been checked by [`crate::path`].
pub(crate) struct Job<'a> {
    pub(crate) product: &'a Product,
    pub(crate) input: *const Line,
    /// Of the input.
    pub(crate) layout: Layout,
    pub(crate) runs: &'a [Run],
    pub(crate) stride: usize,
    pub(crate) target: Target,
    /// What is multiplied after this and may come from far: to be fetched meanwhile.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only matrix tiles wait for weights from afar"))]
    pub(crate) next: Option<&'a Product>,
}

/// [`crate::product::Output`], unpacked.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// Lines lie where they lie in the input, except that blocks of channels may be further apart.
    Planes {
        lines: *mut Line,
        block_lines: usize,
        add: bool,
        relu: bool,
    },
    Matrix {
        values: *mut f32,
        relu: bool,
    },
}

/// A few rows of a panel.
pub(crate) struct Tile<'a> {
    pub(crate) segments: &'a [Segment],
    pub(crate) weights: *const Line,
    /// The line of the first row.
    pub(crate) row: *const Line,
    pub(crate) layout: Layout,
    /// Lines from row to row.
    pub(crate) stride: usize,
    pub(crate) edges: Edges,
}

/// The sums of one tile. `UNIT` says that its rows lie beside each other; only such a tile has edges.
///
/// # Safety
/// The CPU must have the path's instructions; weights and rows must be readable as far as the segments say.
#[inline(always)]
pub(crate) unsafe fn tile<L: Lanes, const ROWS: usize, const REGISTERS: usize, const UNIT: bool>(
    tile: &Tile<'_>,
    sums: &mut Sums,
) {
    const { assert!(ROWS * REGISTERS * L::WIDTH <= SUMS, "a tile's sums fit") };
    let stride = if UNIT { WORDS } else { tile.stride * WORDS };
    // SAFETY: the caller's.
    unsafe {
        let mut totals = [[L::zero(); REGISTERS]; ROWS];
        let mut weights = tile.weights.cast::<u32>();
        for segment in tile.segments {
            let input = tile.row.offset(segment.offset(tile.layout)).cast::<u32>();
            let of_segment = weights;
            weights = weights.add(segment.words * REGISTERS * L::WIDTH);
            if UNIT && tile.edges.hidden.contain(segment.tap) {
                continue;
            }
            if UNIT && tile.edges.left && Taps::LEFT.contain(segment.tap) {
                segment_of::<L, ROWS, REGISTERS, 1, 0>(&mut totals, input, of_segment, segment.words, stride);
            } else if UNIT && tile.edges.right && Taps::RIGHT.contain(segment.tap) {
                segment_of::<L, ROWS, REGISTERS, 0, 1>(&mut totals, input, of_segment, segment.words, stride);
            } else {
                segment_of::<L, ROWS, REGISTERS, 0, 0>(&mut totals, input, of_segment, segment.words, stride);
            }
        }
        let to = sums.0.as_mut_ptr();
        for (row, totals) in totals.iter().enumerate() {
            for (register, &total) in totals.iter().enumerate() {
                L::store(total, to.add((row * REGISTERS + register) * L::WIDTH));
            }
        }
    }
}

/// One segment of a tile, for all its rows but the first `SKIP` and the last `CUT`.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn segment_of<L: Lanes, const ROWS: usize, const REGISTERS: usize, const SKIP: usize, const CUT: usize>(
    totals: &mut [[L::Register; REGISTERS]; ROWS],
    mut input: *const u32,
    mut weights: *const u32,
    words: usize,
    stride: usize,
) {
    // SAFETY: the caller's.
    unsafe {
        for _ in 0..words {
            let mut of_word = [L::zero(); REGISTERS];
            for (register, of_word) in of_word.iter_mut().enumerate() {
                *of_word = L::load(weights.add(register * L::WIDTH));
            }
            for (row, totals) in totals.iter_mut().enumerate().take(ROWS - CUT).skip(SKIP) {
                let word = L::broadcast(input.add(row * stride));
                for (total, of_word) in totals.iter_mut().zip(of_word) {
                    *total = L::multiply_add(*total, word, of_word);
                }
            }
            input = input.add(1);
            weights = weights.add(REGISTERS * L::WIDTH);
        }
    }
}

/// A whole product: for each panel, all rows in tiles of nearly equal size. `tile(groups, rows, tile, sums)` is
/// [`tile`] with the constants of that size.
///
/// # Safety
/// As [`tile`]; the job must stay inside its buffers.
#[inline(always)]
pub(crate) unsafe fn multiply<L: Lanes>(job: &Job<'_>, mut tile: impl FnMut(usize, usize, &Tile<'_>, &mut Sums)) {
    let mut sums = Sums::ZERO;
    for panel in &job.product.panels {
        // SAFETY: panels lie inside the weights, runs inside the input.
        let weights = unsafe { job.product.weights.as_ptr().add(panel.weights) };
        let rows_max = L::ROWS_MAX[panel.groups - 1];
        for run in job.runs {
            let tiles = run.rows.div_ceil(rows_max);
            let mut first = 0;
            for index in 0..tiles {
                let rows = run.rows / tiles + usize::from(index < run.rows % tiles);
                // SAFETY: as above.
                let row = unsafe { job.input.add(run.line + first * job.stride) };
                let edges = Edges {
                    left: run.edges.left && index == 0,
                    right: run.edges.right && index + 1 == tiles,
                    ..run.edges
                };
                let (segments, layout) = (&job.product.segments, job.layout);
                let part = Tile { segments, weights, row, layout, stride: job.stride, edges };
                tile(panel.groups, rows, &part, &mut sums);
                // SAFETY: the rows of the run lie inside the output.
                unsafe { finish::<L>(job, panel, run, first, rows, &sums.0) };
                first += rows;
            }
        }
    }
}

/// Bias, addition, ReLU, rounding: what happens to rows `first..first + rows` of a run on the way out of the sums.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
pub(crate) unsafe fn finish<L: Lanes>(
    job: &Job<'_>,
    panel: &Panel,
    run: &Run,
    first: usize,
    rows: usize,
    sums: &[f32],
) {
    for row in 0..rows {
        if !run.wants(first + row) {
            continue;
        }
        let sums = &sums[row * panel.groups * GROUP..][..panel.groups * GROUP];
        for (index, sums) in sums.as_chunks::<GROUP>().0.iter().enumerate() {
            let group = panel.first_group + index;
            if group >= job.product.groups {
                continue;
            }
            // SAFETY: the target has room for every row and group of the product.
            unsafe { finish_group::<L>(job, group, run, first + row, sums) };
        }
    }
}

/// One group of one row.
#[inline(always)]
unsafe fn finish_group<L: Lanes>(job: &Job<'_>, group: usize, run: &Run, row: usize, sums: &[f32; GROUP]) {
    let bias = &job.product.bias[group];
    let mut values: [f32; GROUP] = match L::FORMAT {
        Format::F32 | Format::Bf16 => std::array::from_fn(|lane| sums[lane] + bias[lane]),
        Format::I8 => {
            let scales = &job.product.scales[group];
            std::array::from_fn(|lane| sums[lane].to_bits().cast_signed() as f32 * scales[lane] + bias[lane])
        }
    };
    match job.target {
        Target::Matrix { values: matrix, relu } => {
            rectify(&mut values, relu);
            let at = row * job.product.padded_outputs() + group * GROUP;
            // SAFETY: the caller's.
            unsafe { matrix.add(at).cast::<[f32; GROUP]>().write_unaligned(values) };
        }
        Target::Planes { lines, block_lines, add, relu } => {
            let format = L::FORMAT.of_outputs();
            let groups_per_line = format.per_line() / GROUP;
            let (block, part) = (group / groups_per_line, group % groups_per_line);
            // SAFETY: the caller's; a group fills a line in float32 and half of one in bfloat16.
            unsafe {
                let line = lines.add(block * block_lines + run.line + row * job.stride);
                match format {
                    Format::F32 => {
                        let to = line.cast::<[f32; GROUP]>();
                        if add {
                            let there = to.read();
                            (0..GROUP).for_each(|lane| values[lane] += there[lane]);
                        }
                        rectify(&mut values, relu);
                        to.write(values);
                    }
                    Format::Bf16 => {
                        let to = line.cast::<[u16; GROUP]>().add(part);
                        if add {
                            let there = to.read();
                            (0..GROUP).for_each(|lane| values[lane] += from_bf16(there[lane]));
                        }
                        rectify(&mut values, relu);
                        to.write(values.map(to_bf16));
                    }
                    Format::I8 => unreachable!("outputs are floating-point numbers"),
                }
            }
        }
    }
}

#[inline(always)]
fn rectify(values: &mut [f32; GROUP], relu: bool) {
    if relu {
        for value in values {
            *value = rectified(*value);
        }
    }
}

/// ReLU that lets NaN through, so that broken weights are noticed.
#[inline(always)]
pub(crate) fn rectified(value: f32) -> f32 {
    if 0.0 > value { 0.0 } else { value }
}

/// Multiply-adds from registers alone, `rounds` times 24 in flight: the most a core can do. Returns a sum so that
/// nothing is left out.
///
/// # Safety
/// The CPU must have the path's instructions.
#[inline(always)]
pub(crate) unsafe fn burst<L: Lanes, const IN_FLIGHT: usize>(rounds: usize) -> f32 {
    let (inputs, weights) = (Line([0x3C00_3C00; WORDS]), Line([0x3D00_3D00; WORDS]));
    let mut sums = Sums::ZERO;
    // SAFETY: the caller's; a line holds what a register reads, the sums hold all totals.
    unsafe {
        let (input, of_word) = (L::broadcast(inputs.0.as_ptr()), L::load(weights.0.as_ptr()));
        let mut totals = [L::zero(); IN_FLIGHT];
        for _ in 0..rounds {
            for total in &mut totals {
                *total = L::multiply_add(*total, input, of_word);
            }
        }
        for (index, &total) in totals.iter().enumerate() {
            L::store(total, sums.0.as_mut_ptr().add(index * L::WIDTH));
        }
    }
    sums.0.iter().sum()
}

/// The functions of a path that broadcasts: `multiply`, and `burst` for measuring.
///
/// Takes the attributes that switch the path's instructions on, its [`Lanes`], the registers that hold sums in a burst, and
/// for each number of groups the registers they fill and the rows that a tile can have.
macro_rules! leaf {
    (
        $(#[$attribute:meta])*
        $lanes:ty, $in_flight:literal;
        $($groups:literal groups in $registers:literal registers: $($rows:literal)+;)+
    ) => {
        $(#[$attribute])*
        unsafe fn tile<const ROWS: usize, const REGISTERS: usize, const UNIT: bool>(
            tile: &$crate::multiply::Tile<'_>,
            sums: &mut $crate::multiply::Sums,
        ) {
            // SAFETY: the caller's.
            unsafe { $crate::multiply::tile::<$lanes, ROWS, REGISTERS, UNIT>(tile, sums) }
        }

        /// A whole product.
        ///
        /// # Safety
        /// The CPU must have the path's instructions; the job must stay inside its buffers.
        $(#[$attribute])*
        pub(crate) unsafe fn multiply(job: &$crate::multiply::Job<'_>) {
            // SAFETY: the caller's.
            unsafe {
                $crate::multiply::multiply::<$lanes>(job, |groups, rows, part, sums| match (groups, rows, part.stride) {
                    $($(
                        ($groups, $rows, 1) => tile::<$rows, $registers, true>(part, sums),
                        ($groups, $rows, _) => tile::<$rows, $registers, false>(part, sums),
                    )+)+
                    _ => unreachable!("no tile of {rows} rows and {groups} groups"),
                });
            }
        }

        /// Multiply-adds from registers alone; how many it made in all lanes.
        ///
        /// # Safety
        /// The CPU must have the path's instructions.
        $(#[$attribute])*
        pub(crate) unsafe fn burst(rounds: usize) -> usize {
            // SAFETY: the caller's.
            let sum = unsafe { $crate::multiply::burst::<$lanes, $in_flight>(rounds) };
            std::hint::black_box(sum);
            let lanes = <$lanes as $crate::multiply::Lanes>::WIDTH;
            rounds * $in_flight * lanes * <$lanes as $crate::multiply::Lanes>::FORMAT.per_word()
        }
    };
}
pub(crate) use leaf;
