//! Product of rows and a packed matrix, written once for every path that multiplies a broadcast input word with
//! registers of weights.
//!
//! A tile is a few rows times a panel of outputs; the sums stay in registers over all segments. Per word of input, a
//! tile of `R` rows and `V` registers of outputs makes `R · V` multiply-adds with `R + V` loads. Two short runs, as
//! on a small board, make one tile, so that weights from the second-level cache are read half as often.

use crate::planes::{Format, Layout, Line, WORDS, from_bf16, to_bf16};
use crate::product::{Edges, GROUP, Panel, Product, Run, Stretch, Taps};

/// Registers of a path: sums, with the four operations on them.
///
/// Every function is unsafe for one reason: the CPU must have the instructions of the path. Pointers are read or
/// written for the width of a register.
pub(crate) trait Lanes {
    /// Register of sums or words.
    type Register: Copy;
    /// Sums per register.
    const WIDTH: usize;
    /// Format of words.
    const FORMAT: Format;
    /// Maximum rows of a tile.
    const ROWS_MAX: usize;
    /// Maximum rows of a run to pair with another run in a tile.
    const PAIRED_MAX: usize;

    /// Returns a register of zeros.
    unsafe fn zero() -> Self::Register;
    /// Returns one word in every lane.
    unsafe fn broadcast(word: *const u32) -> Self::Register;
    /// Loads adjacent words.
    unsafe fn load(words: *const u32) -> Self::Register;
    /// Returns `sums + input · weights` per lane.
    unsafe fn multiply_add(sums: Self::Register, input: Self::Register, weights: Self::Register) -> Self::Register;
    /// Returns the same sums, but hides their origin from the compiler. Otherwise sums with a use after a loop are
    /// copied for that use in every iteration, and many are spilled.
    unsafe fn keep(sums: Self::Register) -> Self::Register;
    /// Prefetches the cache line of a word that is read soon, where that is faster; the word need not exist.
    #[inline(always)]
    unsafe fn fetch(_word: *const u32) {}
    /// Stores the sums; integer sums are stored as bits.
    unsafe fn store(sums: Self::Register, to: *mut f32);
}

/// Defines the [`Lanes`] of a path, from one expression per operation, inlined wherever the path's instructions are
/// enabled.
macro_rules! lanes {
    (
        $lanes:ty: $width:literal of $register:ty, $format:ident, $rows_max:literal rows, $paired_max:literal paired;
        zero() = $zero:expr;
        broadcast($word:ident) = $broadcast:expr;
        load($words:ident) = $load:expr;
        multiply_add($sums:ident, $input:ident, $weights:ident) = $multiply_add:expr;
        keep($kept:ident) = $keep:expr;
        store($stored:ident, $to:ident) = $store:expr;
        $(fetch($fetched:ident) = $fetch:expr;)?
    ) => {
        #[allow(unused_unsafe, reason = "plain Rust does some of them without")]
        impl $crate::multiply::Lanes for $lanes {
            type Register = $register;
            const WIDTH: usize = $width;
            const FORMAT: $crate::planes::Format = $crate::planes::Format::$format;
            const ROWS_MAX: usize = $rows_max;
            const PAIRED_MAX: usize = $paired_max;

            #[inline(always)]
            unsafe fn zero() -> $register {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { $zero }
            }

            #[inline(always)]
            unsafe fn broadcast($word: *const u32) -> $register {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { $broadcast }
            }

            #[inline(always)]
            unsafe fn load($words: *const u32) -> $register {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { $load }
            }

            #[inline(always)]
            unsafe fn multiply_add($sums: $register, $input: $register, $weights: $register) -> $register {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { $multiply_add }
            }

            #[inline(always)]
            unsafe fn keep($kept: $register) -> $register {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { $keep }
            }

            #[inline(always)]
            unsafe fn store($stored: $register, $to: *mut f32) {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { $store }
            }

            $(
                #[inline(always)]
                unsafe fn fetch($fetched: *const u32) {
                    // SAFETY: the caller fulfils the contract of this function.
                    unsafe { $fetch }
                }
            )?
        }
    };
}
pub(crate) use lanes;

/// Input words between the prefetched and the multiplied register of weights. For a single position, weights come
/// from beyond the first-level cache, and the CPU does not prefetch across pages by itself.
const AHEAD: usize = 32;

/// Floats of the largest tile: 14 rows of two groups.
const SUMS: usize = 14 * 2 * GROUP;

/// Sums of a tile, `[rows, groups of the panel, 16]`.
#[repr(C, align(64))]
pub(crate) struct Sums([f32; SUMS]);

impl Sums {
    const ZERO: Self = Self([0.0; SUMS]);

    /// Returns the places for the sums of one or two runs, with `rows` each.
    fn place(&mut self, rows: usize, groups: usize) -> Place {
        let first: *mut f32 = self.0.as_mut_ptr();
        let row = groups * GROUP;
        Place { first: [first, first.wrapping_add(rows * row)], row, group: GROUP }
    }
}

/// Destination for the sums of a tile, in groups of float32: planes, or a buffer to finish later.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// First row of each run.
    first: [*mut f32; 2],
    /// Floats between rows.
    row: usize,
    /// Floats between groups.
    group: usize,
}

/// Initial sums without a bias, or with the bias added later; zero is the same in all formats of sums.
static NOTHING: [[f32; GROUP]; 2] = [[0.0; GROUP]; 2];

/// Arguments of a leaf, with bounds checked by [`crate::multiplier`].
pub(crate) struct Job<'a> {
    pub(crate) product: &'a Product,
    pub(crate) input: *const Line,
    /// Layout of the input.
    pub(crate) layout: Layout,
    pub(crate) runs: &'a [Run],
    pub(crate) target: Target,
    /// The next product, for prefetching weights.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only matrix tiles wait for weights from afar"))]
    pub(crate) next: Option<&'a Product>,
}

impl Job<'_> {
    /// Returns the matrix row for the first row of a run: consecutive runs into a matrix have one stride.
    #[inline(always)]
    fn matrix_row(&self, run: &Run) -> usize {
        (run.line - self.runs[0].line) / run.stride
    }
}

/// Pointers and flags of a [`crate::product::Output`].
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// Lines have the same offsets as in the input, except that blocks of channels may be further apart.
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

/// A few rows of a panel, in one run or two.
pub(crate) struct Tile<'a> {
    pub(crate) stretches: &'a [Stretch],
    pub(crate) weights: *const Line,
    /// Line of the first row in each run; a single run is given twice.
    pub(crate) first: [*const Line; 2],
    pub(crate) layout: Layout,
    /// Lines between rows.
    pub(crate) stride: usize,
    /// Edges of each run; both runs have the same first and last taps.
    pub(crate) edges: [&'a Edges; 2],
    /// Initial sums of a row, `[groups]`.
    pub(crate) bias: *const [f32; GROUP],
    pub(crate) to: Place,
}

/// Computes the sums of one tile of `RUNS` runs, with `ROWS` rows each. `UNIT` is set if the rows are adjacent; only
/// such a tile has edges.
///
/// # Safety
/// The CPU must have the path's instructions; weights and rows must be readable over the whole length of the
/// segments.
#[inline(always)]
pub(crate) unsafe fn tile<L: Lanes, const ROWS: usize, const REGISTERS: usize, const RUNS: usize, const UNIT: bool>(
    tile: &Tile<'_>,
) {
    const {
        assert!(RUNS * ROWS * REGISTERS * L::WIDTH <= SUMS, "a tile's sums fit");
        assert!(RUNS == 1 || RUNS == 2 && UNIT, "a tile has one run, or two whose rows lie beside each other");
    };
    let stride = if UNIT { WORDS } else { tile.stride * WORDS };
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        let mut bias = [L::zero(); REGISTERS];
        for (register, bias) in bias.iter_mut().enumerate() {
            *bias = L::load(tile.bias.cast::<u32>().add(register * L::WIDTH));
        }
        let mut totals = [[bias; ROWS]; RUNS];
        let mut weights = tile.weights;
        for &Stretch { first, blocks } in tile.stretches {
            let offset = first.offset(tile.layout);
            let inputs = tile.first.map(|row| row.offset(offset).cast());
            let block = tile.layout.block_lines * WORDS;
            let part = Part { inputs, weights: weights.cast(), words: first.words, stride, blocks, block };
            weights = weights.add(blocks * first.words * REGISTERS * L::WIDTH / WORDS);
            if !UNIT {
                of_rows::<L, ROWS, REGISTERS, RUNS, 0, 1, 0, 0>(&mut totals, part);
                continue;
            }
            let [one, other] = tile.edges.map(|edges| !edges.hidden.contain(first.tap));
            let ends = [tile.edges[0].first, tile.edges[0].last].map(|taps| taps.contain(first.tap));
            match (one, RUNS == 2 && other) {
                (true, true) => of_runs::<L, ROWS, REGISTERS, RUNS, 0, 2>(&mut totals, part, ends),
                (true, false) => of_runs::<L, ROWS, REGISTERS, RUNS, 0, 1>(&mut totals, part, ends),
                (false, true) => of_runs::<L, ROWS, REGISTERS, RUNS, 1, 2>(&mut totals, part, ends),
                (false, false) => {}
            }
        }
        for (totals, first) in totals.iter().zip(tile.to.first) {
            for (row, totals) in totals.iter().enumerate() {
                for (register, &total) in totals.iter().enumerate() {
                    let float = register * L::WIDTH;
                    let group = float / GROUP * tile.to.group + float % GROUP;
                    L::store(total, first.add(row * tile.to.row + group));
                }
            }
        }
    }
}

/// One stretch of a tile, as words.
struct Part {
    /// Inputs of the first row in each run.
    inputs: [*const u32; 2],
    weights: *const u32,
    /// Words per block.
    words: usize,
    /// Words between rows.
    stride: usize,
    blocks: usize,
    /// Words between blocks.
    block: usize,
}

/// Multiplies one stretch for the runs `FROM..TO`, possibly without the first or last row of each.
///
/// # Safety
/// The conditions of [`tile`] apply.
#[inline(always)]
unsafe fn of_runs<
    L: Lanes,
    const ROWS: usize,
    const REGISTERS: usize,
    const RUNS: usize,
    const FROM: usize,
    const TO: usize,
>(
    totals: &mut [[[L::Register; REGISTERS]; ROWS]; RUNS],
    part: Part,
    [skip, cut]: [bool; 2],
) {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        match (skip, cut) {
            (false, false) => of_rows::<L, ROWS, REGISTERS, RUNS, FROM, TO, 0, 0>(totals, part),
            (true, _) => of_rows::<L, ROWS, REGISTERS, RUNS, FROM, TO, 1, 0>(totals, part),
            (false, true) => of_rows::<L, ROWS, REGISTERS, RUNS, FROM, TO, 0, 1>(totals, part),
        }
    }
}

/// Multiplies one stretch of a tile in the runs `FROM..TO`, for the rows from `SKIP` on and without the last `CUT`.
///
/// # Safety
/// The conditions of [`tile`] apply.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "with iterators the compiler does not unroll, and spills the sums")]
unsafe fn of_rows<
    L: Lanes,
    const ROWS: usize,
    const REGISTERS: usize,
    const RUNS: usize,
    const FROM: usize,
    const TO: usize,
    const SKIP: usize,
    const CUT: usize,
>(
    totals: &mut [[[L::Register; REGISTERS]; ROWS]; RUNS],
    part: Part,
) {
    let Part { mut inputs, mut weights, words, stride, blocks, block } = part;
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        for _ in 0..blocks {
            for _ in 0..words {
                let mut of_word = [L::zero(); REGISTERS];
                for register in 0..REGISTERS {
                    of_word[register] = L::load(weights.add(register * L::WIDTH));
                }
                for line in 0..REGISTERS * L::WIDTH / WORDS {
                    L::fetch(weights.wrapping_add(AHEAD * REGISTERS * L::WIDTH + line * WORDS));
                }
                for run in FROM..TO {
                    for row in SKIP..ROWS - CUT {
                        let word = L::broadcast(inputs[run].add(row * stride));
                        for register in 0..REGISTERS {
                            let total = &mut totals[run][row][register];
                            *total = L::multiply_add(*total, word, of_word[register]);
                        }
                    }
                    inputs[run] = inputs[run].add(1);
                }
                weights = weights.add(REGISTERS * L::WIDTH);
            }
            for run in FROM..TO {
                inputs[run] = inputs[run].wrapping_add(block - words);
            }
        }
        for run in FROM..TO {
            for row in SKIP..ROWS - CUT {
                for total in &mut totals[run][row] {
                    *total = L::keep(*total);
                }
            }
        }
    }
}

/// Computes a whole product: for each panel, all rows in tiles of nearly equal size. `tile(groups, runs, rows, tile)`
/// is [`tile`] with constants of that size.
///
/// # Safety
/// The conditions of [`tile`] apply; the job must stay inside its buffers.
#[inline(always)]
pub(crate) unsafe fn multiply<L: Lanes>(job: &Job<'_>, mut tile: impl FnMut(usize, usize, usize, &Tile<'_>)) {
    let mut sums = Sums::ZERO;
    let direct = Direct::of::<L>(job);
    for panel in &job.product.panels {
        // SAFETY: panels lie inside the weights, runs inside the input.
        let weights = unsafe { job.product.weights.as_ptr().add(panel.weights) };
        // Edges are passed separately: an array of them would be copied before both are written, and the CPU would
        // wait.
        let mut part = |one: &Run, other: &Run, first: usize, rows: usize, edges: &Edges, others: &Edges| {
            let (runs, edges) = ([one, other], [edges, others]);
            // SAFETY: as above.
            let rows_of = runs.map(|run| unsafe { job.input.add(run.line + first * run.stride) });
            let count = if std::ptr::eq(one, other) { 1 } else { 2 };
            let (bias, to) = match &direct {
                Some(direct) => {
                    // SAFETY: the rows of the runs lie inside the output.
                    let to = unsafe { direct.place(job, panel, runs, first) };
                    (job.product.bias[panel.first_group..].as_ptr(), to)
                }
                None => (NOTHING.as_ptr(), sums.place(rows, panel.groups)),
            };
            let (stretches, layout, stride) = (&job.product.stretches, job.layout, runs[0].stride);
            let part = Tile { stretches, weights, first: rows_of, layout, stride, edges, bias, to };
            tile(panel.groups, count, rows, &part);
            if direct.is_some() {
                return;
            }
            for (run, sums) in runs.into_iter().take(count).zip(sums.0.chunks_exact(rows * panel.groups * GROUP)) {
                // SAFETY: the rows of the run lie inside the output.
                unsafe { finish::<L>(job, panel, run, first, rows, sums) };
            }
        };
        let mut runs = job.runs;
        while let [run, rest @ ..] = runs {
            runs = rest;
            if let [next, rest @ ..] = rest
                && run.rows <= L::PAIRED_MAX
                && run.stride == 1
                && run.makes_pair(next)
            {
                part(run, next, 0, run.rows, &run.edges, &next.edges);
                runs = rest;
                continue;
            }
            if run.rows <= L::ROWS_MAX {
                part(run, run, 0, run.rows, &run.edges, &run.edges);
                continue;
            }
            let tiles = run.rows.div_ceil(L::ROWS_MAX);
            let mut first = 0;
            for index in 0..tiles {
                let rows = run.rows / tiles + usize::from(index < run.rows % tiles);
                let edges = Edges {
                    first: if index == 0 { run.edges.first } else { Taps::default() },
                    last: if index + 1 == tiles { run.edges.last } else { Taps::default() },
                    ..run.edges
                };
                part(run, run, first, rows, &edges, &edges);
                first += rows;
            }
        }
    }
}

/// An output that takes sums without further operations. This applies to products at points, the bulk of minimal
/// filtering, and to dense layers before the norm.
enum Direct {
    /// Planes, and the lines between blocks there.
    Planes(*mut Line, usize),
    /// A matrix.
    Matrix(*mut f32),
}

impl Direct {
    #[inline(always)]
    fn of<L: Lanes>(job: &Job<'_>) -> Option<Self> {
        match (L::FORMAT, job.target) {
            (Format::F32, Target::Planes { lines, block_lines, add: false, relu: false }) => {
                Some(Self::Planes(lines, block_lines))
            }
            // A bias is added last, as elsewhere, so that results do not depend on the way of writing.
            (Format::F32 | Format::Bf16, Target::Matrix { values, relu: false }) if !job.product.has_bias => {
                Some(Self::Matrix(values))
            }
            _ => None,
        }
    }

    /// Returns the places for the sums of a panel, from row `first` of each run on.
    ///
    /// # Safety
    /// The rows of the runs must lie inside the output.
    #[inline(always)]
    unsafe fn place(&self, job: &Job<'_>, panel: &Panel, runs: [&Run; 2], first: usize) -> Place {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe {
            match *self {
                Self::Planes(lines, block_lines) => {
                    let line = |run: &Run| panel.first_group * block_lines + run.line + first * run.stride;
                    let first = runs.map(|run| lines.add(line(run)).cast());
                    Place { first, row: runs[0].stride * WORDS, group: block_lines * WORDS }
                }
                Self::Matrix(values) => {
                    let row = job.product.padded_outputs();
                    let at = |run: &Run| (job.matrix_row(run) + first) * row + panel.first_group * GROUP;
                    Place { first: runs.map(|run| values.add(at(run))), row, group: GROUP }
                }
            }
        }
    }
}

/// Applies bias, addition, ReLU and rounding to the sums of rows `first..first + rows` of a run and writes the
/// results to the target.
///
/// # Safety
/// The conditions of [`multiply`] apply.
#[inline(always)]
pub(crate) unsafe fn finish<L: Lanes>(
    job: &Job<'_>,
    panel: &Panel,
    run: &Run,
    first: usize,
    rows: usize,
    sums: &[f32],
) {
    let matrix_row = match job.target {
        Target::Matrix { .. } => job.matrix_row(run),
        Target::Planes { .. } => 0,
    };
    for row in 0..rows {
        if !run.computes_row(first + row) {
            continue;
        }
        let sums = &sums[row * panel.groups * GROUP..][..panel.groups * GROUP];
        for (index, sums) in sums.as_chunks::<GROUP>().0.iter().enumerate() {
            let group = panel.first_group + index;
            if group >= job.product.groups {
                continue;
            }
            // SAFETY: the target has space for every row and group of the product.
            unsafe { finish_group::<L>(job, group, run, [first + row, matrix_row + first + row], sums) };
        }
    }
}

/// Finishes one group of one row, given by the row indices in the run and in a matrix.
#[inline(always)]
unsafe fn finish_group<L: Lanes>(
    job: &Job<'_>,
    group: usize,
    run: &Run,
    [row, matrix_row]: [usize; 2],
    sums: &[f32; GROUP],
) {
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
            let at = matrix_row * job.product.padded_outputs() + group * GROUP;
            // SAFETY: the caller fulfils the contract of this function.
            unsafe { matrix.add(at).cast::<[f32; GROUP]>().write_unaligned(values) };
        }
        Target::Planes { lines, block_lines, add, relu } => {
            let format = L::FORMAT.of_outputs();
            let groups_per_line = format.per_line() / GROUP;
            let (block, part) = (group / groups_per_line, group % groups_per_line);
            // SAFETY: the caller fulfils the contract of this function; a group fills a line in float32 and half of
            // one in bfloat16.
            unsafe {
                let line = lines.add(block * block_lines + run.line + row * run.stride);
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

/// Applies ReLU to a group if `relu` is set.
#[inline(always)]
pub(crate) fn rectify(values: &mut [f32; GROUP], relu: bool) {
    if relu {
        for value in values {
            *value = rectified(*value);
        }
    }
}

/// Applies ReLU but preserves NaN, so that broken weights are detected.
#[inline(always)]
pub(crate) fn rectified(value: f32) -> f32 {
    if 0.0 > value { 0.0 } else { value }
}

/// Runs multiply-adds on registers only, `rounds` times `IN_FLIGHT`: the peak of a core. Returns a sum so that the
/// compiler removes none of them.
///
/// # Safety
/// The CPU must have the path's instructions.
#[inline(always)]
pub(crate) unsafe fn burst<L: Lanes, const IN_FLIGHT: usize>(rounds: usize) -> f32 {
    let (inputs, weights) = (Line([0x3C00_3C00; WORDS]), Line([0x3D00_3D00; WORDS]));
    let mut sums = Sums::ZERO;
    // SAFETY: the caller fulfils the contract of this function; a line is at least as long as a register, and the sums
    // hold all totals.
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

/// Defines the functions of a path that broadcasts: `multiply`, and `burst` for measuring.
///
/// Takes the attributes that enable the path's instructions, the [`Lanes`], and the number of sum registers in a
/// burst. For each number of groups it takes the registers per row and the possible rows of a tile, in one run and in
/// each of two.
macro_rules! leaf {
    (
        $(#[$attribute:meta])*
        $lanes:ty, $in_flight:literal;
        $(
            $groups:literal groups in $registers:literal registers:
            $($rows:literal)+ $(, twice $($paired:literal)+)?;
        )+
    ) => {
        $(#[$attribute])*
        unsafe fn tile<const ROWS: usize, const REGISTERS: usize, const RUNS: usize, const UNIT: bool>(
            tile: &$crate::multiply::Tile<'_>,
        ) {
            // SAFETY: the caller fulfils the contract of this function.
            unsafe { $crate::multiply::tile::<$lanes, ROWS, REGISTERS, RUNS, UNIT>(tile) }
        }

        /// Computes a whole product.
        ///
        /// # Safety
        /// The CPU must have the path's instructions; the job must stay inside its buffers.
        $(#[$attribute])*
        pub(crate) unsafe fn multiply(job: &$crate::multiply::Job<'_>) {
            // SAFETY: the caller fulfils the contract of this function.
            unsafe {
                $crate::multiply::multiply::<$lanes>(job, |groups, runs, rows, part| {
                    match (groups, runs, rows, part.stride) {
                        $($(
                            ($groups, 1, $rows, 1) => tile::<$rows, $registers, 1, true>(part),
                            ($groups, 1, $rows, _) => tile::<$rows, $registers, 1, false>(part),
                        )+
                        $($(($groups, 2, $paired, 1) => tile::<$paired, $registers, 2, true>(part),)+)?)+
                        _ => unreachable!("no tile of {runs} runs of {rows} rows and {groups} groups"),
                    }
                });
            }
        }

        /// Runs multiply-adds on registers only and returns the count over all lanes.
        ///
        /// # Safety
        /// The CPU must have the path's instructions.
        $(#[$attribute])*
        pub(crate) unsafe fn burst(rounds: usize) -> usize {
            // SAFETY: the caller fulfils the contract of this function.
            let sum = unsafe { $crate::multiply::burst::<$lanes, $in_flight>(rounds) };
            std::hint::black_box(sum);
            let lanes = <$lanes as $crate::multiply::Lanes>::WIDTH;
            rounds * $in_flight * lanes * <$lanes as $crate::multiply::Lanes>::FORMAT.per_word()
        }
    };
}
pub(crate) use leaf;
