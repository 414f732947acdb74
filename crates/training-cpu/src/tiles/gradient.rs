//! Weight gradients, with products that sum over the batch. For each pair of a cell and the neighbour under a tap, a
//! tile of sixteen outputs by thirty-two positions times a tile of thirty-two positions by sixteen inputs is added to
//! sixteen by sixteen sums. Pairs outside the board are left out, and a shift by a tap only selects another tile.
//!
//! Both operands are packed into tiles first, by blocks of thirty-two positions and by bands of rows, so that
//! operands are read from the second-level cache. Sums stay in memory between bands. In a 1×1 convolution cells are
//! positions, and blocks of positions replace the cells of a row.

use std::arch::asm;
use std::arch::x86_64::{
    _mm_loadu_si128, _mm256_loadu_si256, _mm512_castsi128_si512, _mm512_castsi256_si512, _mm512_inserti32x4,
    _mm512_inserti64x4, _mm512_loadu_si512, _mm512_permutexvar_epi16, _mm512_store_si512, _mm512_unpackhi_epi16,
    _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi16, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};
use std::cell::RefCell;
use std::ops::Range;

use half::bf16;

use super::{LANES, PAIRED, ROW_BYTES, Unit};
use crate::Path;
use crate::shape::{Shape, evenly};
use crate::stored::Stored;

/// Positions per tile.
const BLOCK: usize = PAIRED;
/// Output tiles multiplied together.
const TOGETHER: usize = 2;
/// Outputs per part.
const OUTPUTS: usize = TOGETHER * LANES;
/// Taps along a side of the largest kernel.
const SIDE: usize = 3;
/// Sums accumulated together, `[tile of outputs, tap of a row]`.
const GROUP: usize = TOGETHER * SIDE;
/// Packed operand tiles that fit the second-level cache of 2 MiB, next to the sums being loaded and stored.
const CACHED: usize = 1280;
/// Blocks of positions that replace a row of cells.
const BLOCKS: usize = 16;
/// Parts of a gradient: more than there are threads, and few enough to sum the parts quickly.
const PARTS: usize = 16;
/// Minimum positions and minimum cells of a part: adding up the sums must take little time in comparison.
const POSITIONS_MIN: usize = 64;
const CELLS_MIN: usize = 512;

/// Weight gradient of a convolution that [suits](super::suits) tiles, split into parts for threads. The parts depend
/// on the shape and the number of positions alone.
#[derive(Debug)]
pub(crate) struct TiledGradient {
    shape: Shape,
    path: Path,
    chunks: Vec<Range<usize>>,
}

/// Sums of products for ranges of positions and output channels.
#[derive(Debug)]
pub(crate) struct TiledPart<'a> {
    gradient: &'a TiledGradient,
    /// Inputs of the positions, `[positions, H, W, in]`.
    x: Stored<'a>,
    /// Output gradient, `[positions, H, W, out]`.
    of_y: Stored<'a>,
    /// First of 32 outputs.
    output: usize,
    /// `[32, taps, in]`.
    sums: &'a mut [f32],
}

thread_local! {
    static WORKSPACE: RefCell<Workspace> = RefCell::default();
}

impl TiledGradient {
    /// Splits the gradient of a convolution over `positions` positions; with one tap the positions are cells.
    pub(crate) fn new(shape: Shape, positions: usize, path: Path) -> Self {
        let shape = shape.flattened();
        let most = (PARTS * OUTPUTS / shape.outputs).max(1);
        let fewest = POSITIONS_MIN.max(CELLS_MIN / shape.cells());
        let chunks = (positions / fewest).clamp(1, most);
        let chunks = evenly(positions.div_ceil(BLOCK), positions.div_ceil(BLOCK).div_ceil(chunks));
        let chunks = chunks.map(|chunk| chunk.start * BLOCK..positions.min(chunk.end * BLOCK)).collect();
        Self { shape, path, chunks }
    }

    /// Returns the length of the buffer for the sums of all parts.
    pub(crate) fn sums(&self) -> usize {
        self.chunks.len() * self.shape.weights()
    }

    /// Splits the gradient into parts, for inputs `x` `[B, H, W, in]` and output gradients `[B, H, W, out]`.
    ///
    /// # Panics
    /// If lengths do not fit.
    pub(crate) fn parts<'a>(&'a self, x: Stored<'a>, of_y: Stored<'a>, sums: &'a mut [f32]) -> Vec<TiledPart<'a>> {
        let shape = self.shape;
        let cells = self.chunks.last().map_or(0, |chunk| chunk.end) * shape.cells();
        assert_eq!(x.len(), cells * shape.inputs, "inputs of {shape:?}");
        assert_eq!(of_y.len(), cells * shape.outputs, "outputs of {shape:?}");
        assert_eq!(sums.len(), self.sums(), "sums of {shape:?}");
        let of_part = OUTPUTS * shape.taps() * shape.inputs;
        let outputs = (0..shape.outputs).step_by(OUTPUTS);
        let places = self.chunks.iter().flat_map(|chunk| outputs.clone().map(move |output| (chunk, output)));
        let parts = places.zip(sums.chunks_exact_mut(of_part)).map(|((chunk, output), sums)| {
            let [x, of_y] = [(x, shape.inputs), (of_y, shape.outputs)].map(|(numbers, channels)| {
                let of_position = shape.cells() * channels;
                numbers.slice(chunk.start * of_position..chunk.end * of_position)
            });
            TiledPart { gradient: self, x, of_y, output, sums }
        });
        parts.collect()
    }

    /// Adds the sums of all parts to the gradient of an output range, `[outputs, taps, in]`.
    pub(crate) fn add(&self, sums: &[f32], outputs: Range<usize>, of_weights: &mut [f32]) {
        self.shape.add_parts(sums, outputs, of_weights);
    }
}

impl TiledPart<'_> {
    /// Computes the sums of this part.
    pub(crate) fn compute(self) {
        let Self { gradient: &TiledGradient { shape, path, .. }, x, of_y, output, sums } = self;
        assert!(path.is_available(), "{path} is not available");
        WORKSPACE.with_borrow_mut(|Workspace { narrowed: [of_x, of_of_y], tiles }| {
            let (x, of_y) = (x.narrowed(path, of_x), of_y.narrowed(path, of_of_y));
            tiles.compute(shape, x, of_y, output, sums);
        });
    }
}

/// Buffers that a thread keeps between parts.
#[derive(Debug, Default)]
struct Workspace {
    /// Rounded copies of float32 operands.
    narrowed: [Vec<bf16>; 2],
    tiles: Tiles,
}

/// Operands for a band of rows and a block of positions, and all sums.
#[derive(Debug, Default)]
struct Tiles {
    /// `[slot, tile of inputs, W]`; board row y is in slot y modulo the number of slots.
    inputs: Vec<Tile>,
    /// `[row of the band, W, 2]`.
    gradients: Vec<Tile>,
    /// Groups, `[tile of inputs, row of taps]`.
    sums: Vec<[Tile; GROUP]>,
}

/// Blocking of a shape.
#[derive(Debug, Clone, Copy)]
struct Plan {
    shape: Shape,
    input_tiles: usize,
    /// Cells per row, or blocks of positions in place of cells.
    width: usize,
    /// Positions between consecutive blocks.
    step: usize,
    /// Rows of a band.
    rows: usize,
    /// Input rows kept: the rows of a band and one on each side, or the whole board.
    slots: usize,
}

impl Plan {
    fn new(shape: Shape) -> Self {
        let input_tiles = shape.inputs / LANES;
        if shape.side == 1 {
            return Self { shape, input_tiles, width: BLOCKS, step: BLOCKS * BLOCK, rows: 1, slots: 1 };
        }
        let width = shape.width;
        let fits = (CACHED / width).saturating_sub(2 * input_tiles) / (input_tiles + TOGETHER);
        // With bands of a single row, loading and storing sums costs more than exceeding the cache by a second row.
        let most = fits.max(2).min(shape.height);
        // Bands have nearly equal heights.
        let rows = shape.height.div_ceil(shape.height.div_ceil(most));
        Self { shape, input_tiles, width, step: BLOCK, rows, slots: (rows + 2).min(shape.height) }
    }
}

impl Tiles {
    /// Computes the weight gradient of 32 outputs, `[32, taps, in]`; lengths must fit the shape, and the CPU must
    /// have tiles.
    fn compute(&mut self, shape: Shape, x: &[bf16], of_y: &[bf16], output: usize, weights: &mut [f32]) {
        let plan = Plan::new(shape);
        let Shape { height, inputs, outputs, side, .. } = shape;
        self.inputs.resize(plan.slots * plan.input_tiles * plan.width, Tile::ZERO);
        self.gradients.resize(plan.rows * TOGETHER * plan.width, Tile::ZERO);
        self.sums.resize(plan.input_tiles * side, [Tile::ZERO; GROUP]);
        let positions = x.len() / (shape.cells() * inputs);
        // SAFETY: the CPU has tiles.
        let mut unit = unsafe { Multiplier::new() };
        let mut is_first = true;
        for first in (0..positions).step_by(plan.step) {
            let count = plan.step.min(positions - first);
            // A row of position blocks ends with the last block.
            let width = if side == 1 { count.div_ceil(BLOCK) } else { plan.width };
            let mut packed = 0;
            for top in (0..height).step_by(plan.rows) {
                let band = top..(top + plan.rows).min(height);
                let needed = (band.end + 1).min(height);
                for row in packed..needed {
                    let source = Source::new(shape, x, inputs, 0..inputs, first..first + count, row, width);
                    let len = plan.input_tiles * plan.width;
                    let tiles = &mut self.inputs[row % plan.slots * len..][..len];
                    // SAFETY: the CPU has the instructions.
                    unsafe { pack_inputs(&source, tiles) };
                }
                packed = needed;
                for row in band.clone() {
                    let channels = output..output + OUTPUTS;
                    let source = Source::new(shape, of_y, outputs, channels, first..first + count, row, width);
                    let len = TOGETHER * plan.width;
                    let tiles = &mut self.gradients[row % plan.rows * len..][..len];
                    // SAFETY: as above.
                    unsafe { pack_gradients(&source, tiles) };
                }
                self.multiply(plan, width, &mut unit, band, is_first);
                is_first = false;
            }
        }
        drop(unit);
        self.unpack(plan, weights);
    }

    /// Adds the products of a band of rows to the sums, or sets the sums.
    fn multiply(&mut self, plan: Plan, width: usize, unit: &mut Multiplier, band: Range<usize>, is_first: bool) {
        let Self { inputs, gradients, sums } = self;
        let Shape { side, height, .. } = plan.shape;
        let border = side / 2;
        for (group, sums) in sums.iter_mut().enumerate() {
            let (input_tile, down) = (group / side, group % side);
            if is_first {
                unit.zero();
            } else {
                unit.load(sums);
            }
            let on_board = border.saturating_sub(down)..(height + border - down).min(height);
            for row in band.start.max(on_board.start)..band.end.min(on_board.end) {
                let slot = (row + down - border) % plan.slots;
                // The row of tiles has the packed length of this block.
                let inputs = &inputs[(slot * plan.input_tiles * plan.width) + input_tile * width..][..width];
                let gradients = &gradients[row % plan.rows * TOGETHER * plan.width..][..TOGETHER * width];
                unit.multiply_row(side, gradients, inputs);
            }
            unit.store(sums);
        }
    }

    /// Writes the sums as `[32, taps, in]`.
    fn unpack(&self, plan: Plan, weights: &mut [f32]) {
        let Shape { inputs, side, .. } = plan.shape;
        for (index, group) in self.sums.iter().enumerate() {
            let (down, column) = (index % side, index / side * LANES);
            for output in 0..OUTPUTS {
                for right in 0..side {
                    // A kernel row with a single tap uses the middle one.
                    let tile = output / LANES * SIDE + right + usize::from(side == 1);
                    let to = (output * side * side + down * side + right) * inputs + column;
                    weights[to..][..LANES].copy_from_slice(&group[tile].0[output % LANES].map(f32::from_bits));
                }
            }
        }
    }
}

/// Cells in a row, over a block of positions: channels last, positions far apart. They are packed into tiles of
/// thirty-two positions and sixteen channels of one cell. An input tile has pairs of positions as rows and channels
/// as words; a gradient tile has channels as rows.
struct Source<'a> {
    /// Numbers starting at the row's first cell in the first position.
    numbers: &'a [bf16],
    /// Positions in all blocks.
    positions: usize,
    /// Numbers between positions.
    stride: usize,
    /// Numbers between cells, or between blocks of positions.
    cell_stride: usize,
    /// Positions between cells: 0, or the positions of a block.
    step: usize,
    /// Channels to pack.
    channels: usize,
    width: usize,
}

impl<'a> Source<'a> {
    /// Returns a board row in a block of positions, out of a tensor `[B, H, W, all]`.
    fn new(
        shape: Shape,
        tensor: &'a [bf16],
        all: usize,
        channels: Range<usize>,
        positions: Range<usize>,
        row: usize,
        width: usize,
    ) -> Self {
        let stride = shape.cells() * all;
        let numbers = &tensor[positions.start * stride + row * shape.width * all + channels.start..];
        let (cell_stride, step) = if shape.side == 1 { (BLOCK * stride, BLOCK) } else { (all, 0) };
        Self { numbers, positions: positions.len(), stride, cell_stride, step, channels: channels.len(), width }
    }

    /// Calls `pack` for each channel tile of each cell, with the column of the cell, the tile, the numbers from the
    /// first position on, and the distance between positions.
    #[inline(always)]
    fn for_each(&self, mut pack: impl FnMut(usize, usize, &[bf16], usize)) {
        for x in 0..self.width {
            let positions = BLOCK.min(self.positions - x * self.step);
            for tile in 0..self.channels / LANES {
                let start = x * self.cell_stride + tile * LANES;
                if positions == BLOCK {
                    pack(x, tile, &self.numbers[start..], self.stride);
                } else {
                    pack(x, tile, &self.padded(start, positions), LANES);
                }
            }
        }
    }

    /// Returns a tile with zeros for the missing positions, `[32, 16]`.
    fn padded(&self, start: usize, positions: usize) -> [bf16; BLOCK * LANES] {
        let mut padded = [bf16::ZERO; BLOCK * LANES];
        for (position, padded) in padded.chunks_exact_mut(LANES).take(positions).enumerate() {
            padded.copy_from_slice(&self.numbers[position * self.stride + start..][..LANES]);
        }
        padded
    }
}

/// Packs an input row, `[tile of channels, W]`.
#[target_feature(enable = "avx512f,avx512bw")]
fn pack_inputs(source: &Source<'_>, tiles: &mut [Tile]) {
    source.for_each(|x, tile, numbers, stride| interleave(numbers, stride, &mut tiles[tile * source.width + x]));
}

/// Packs a gradient row, `[W, 2]`.
#[target_feature(enable = "avx512f,avx512bw")]
fn pack_gradients(source: &Source<'_>, tiles: &mut [Tile]) {
    source.for_each(|x, tile, numbers, stride| transpose(numbers, stride, &mut tiles[x * TOGETHER + tile]));
}

/// Packs a tile with pairs of positions as rows: `[pair, channel, 2]`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn interleave(numbers: &[bf16], stride: usize, tile: &mut Tile) {
    assert!(numbers.len() >= (BLOCK - 1) * stride + LANES, "thirty-two positions");
    let mut order = [0_u16; BLOCK];
    for (index, order) in order.iter_mut().enumerate() {
        *order = (index / 2 + index % 2 * LANES) as u16;
    }
    // SAFETY: sixteen numbers of each position lie inside the slice, and a row of the tile is as long as a register.
    unsafe {
        let order = _mm512_loadu_si512(order.as_ptr().cast());
        for (pair, row) in tile.0.iter_mut().enumerate() {
            let even = numbers.as_ptr().add(2 * pair * stride);
            let both = _mm512_castsi256_si512(_mm256_loadu_si256(even.cast()));
            let both = _mm512_inserti64x4::<1>(both, _mm256_loadu_si256(even.add(stride).cast()));
            _mm512_store_si512(row.as_mut_ptr().cast(), _mm512_permutexvar_epi16(order, both));
        }
    }
}

/// Packs a tile with channels as rows: `[channel, position]`. Each register starts as eight channels at positions
/// eight apart; three rounds of unpacking make one register per channel.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transpose(numbers: &[bf16], stride: usize, tile: &mut Tile) {
    const EIGHT: usize = 8;
    assert!(numbers.len() >= (BLOCK - 1) * stride + LANES, "thirty-two positions");
    for (half, rows) in tile.0.as_chunks_mut::<EIGHT>().0.iter_mut().enumerate() {
        // SAFETY: sixteen numbers of each position lie inside the slice.
        let quarter =
            |position: usize| unsafe { _mm_loadu_si128(numbers.as_ptr().add(position * stride + half * EIGHT).cast()) };
        let [a, b, c, d, e, f, g, h] = std::array::from_fn(|position| {
            let all = _mm512_castsi128_si512(quarter(position));
            let all = _mm512_inserti32x4::<1>(all, quarter(position + EIGHT));
            let all = _mm512_inserti32x4::<2>(all, quarter(position + 2 * EIGHT));
            _mm512_inserti32x4::<3>(all, quarter(position + 3 * EIGHT))
        });
        // Channels 0 to 3 and 4 to 7 of two positions.
        let (ab, ab4) = (_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b));
        let (cd, cd4) = (_mm512_unpacklo_epi16(c, d), _mm512_unpackhi_epi16(c, d));
        let (ef, ef4) = (_mm512_unpacklo_epi16(e, f), _mm512_unpackhi_epi16(e, f));
        let (gh, gh4) = (_mm512_unpacklo_epi16(g, h), _mm512_unpackhi_epi16(g, h));
        // Two channels of four positions.
        let first = [(ab, cd), (ab4, cd4)].map(|(a, c)| [_mm512_unpacklo_epi32(a, c), _mm512_unpackhi_epi32(a, c)]);
        let last = [(ef, gh), (ef4, gh4)].map(|(e, g)| [_mm512_unpacklo_epi32(e, g), _mm512_unpackhi_epi32(e, g)]);
        let halves = first.as_flattened().iter().zip(last.as_flattened());
        for ((&first, &last), [even, odd]) in halves.zip(rows.as_chunks_mut::<2>().0) {
            // SAFETY: a row of the tile is as long as a register.
            unsafe {
                _mm512_store_si512(even.as_mut_ptr().cast(), _mm512_unpacklo_epi64(first, last));
                _mm512_store_si512(odd.as_mut_ptr().cast(), _mm512_unpackhi_epi64(first, last));
            }
        }
    }
}

/// Sixteen rows of sixteen words: float32, or pairs of bfloat16 from adjacent positions.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Tile([[u32; LANES]; LANES]);

impl Tile {
    const ZERO: Self = Self([[0; LANES]; LANES]);
}

/// This thread's tiles: six for sums, `[2 tiles of outputs, taps of a row]`, and two for streaming the operands.
struct Multiplier(Unit);

impl Multiplier {
    /// Configures the tiles.
    ///
    /// # Safety
    /// The CPU must have AMX and the system must have granted it.
    unsafe fn new() -> Self {
        // SAFETY: the caller fulfils the contract of this function.
        Self(unsafe { Unit::new([LANES as u8; 8]) })
    }

    /// Zeroes the sums.
    #[inline(always)]
    fn zero(&mut self) {
        // SAFETY: the tiles are configured.
        unsafe { cpu::zero_sums() }
    }

    /// Loads the sums.
    #[inline(always)]
    fn load(&mut self, sums: &[Tile; GROUP]) {
        // SAFETY: the tiles are configured; each reads one of the six.
        unsafe {
            asm!(
                "tileloadd tmm0, [{sums} + {stride}*1]",
                "tileloadd tmm1, [{sums} + {stride}*1 + 1024]",
                "tileloadd tmm2, [{sums} + {stride}*1 + 2048]",
                "tileloadd tmm3, [{sums} + {stride}*1 + 3072]",
                "tileloadd tmm4, [{sums} + {stride}*1 + 4096]",
                "tileloadd tmm5, [{sums} + {stride}*1 + 5120]",
                sums = in(reg) sums,
                stride = in(reg) ROW_BYTES,
                options(nostack, readonly),
            );
        }
    }

    /// Stores the sums.
    #[inline(always)]
    fn store(&mut self, sums: &mut [Tile; GROUP]) {
        // SAFETY: the tiles are configured; each writes one of the six.
        unsafe {
            asm!(
                "tilestored [{sums} + {stride}*1], tmm0",
                "tilestored [{sums} + {stride}*1 + 1024], tmm1",
                "tilestored [{sums} + {stride}*1 + 2048], tmm2",
                "tilestored [{sums} + {stride}*1 + 3072], tmm3",
                "tilestored [{sums} + {stride}*1 + 4096], tmm4",
                "tilestored [{sums} + {stride}*1 + 5120], tmm5",
                sums = in(reg) sums,
                stride = in(reg) ROW_BYTES,
                options(nostack),
            );
        }
    }

    /// Adds the products of a gradient row, `[W, 2]`, and the input row under the kernel's row, `[W]`.
    ///
    /// # Panics
    /// If the lengths do not fit.
    #[inline(always)]
    fn multiply_row(&mut self, side: usize, gradients: &[Tile], inputs: &[Tile]) {
        let width = inputs.len();
        assert!(width > 0 && gradients.len() == width * TOGETHER, "a row of tiles");
        // SAFETY: cells lie inside the row, and so do the left and right neighbours where they are used.
        unsafe {
            let at = |x: usize| (gradients.as_ptr().add(x * TOGETHER), inputs.as_ptr().add(x));
            if side == 1 || width == 1 {
                (0..width).for_each(|x| self.multiply_cell::<false, false>(at(x)));
                return;
            }
            self.multiply_cell::<false, true>(at(0));
            for x in 1..width - 1 {
                self.multiply_cell::<true, true>(at(x));
            }
            self.multiply_cell::<true, false>(at(width - 1));
        }
    }

    /// Multiplies one gradient cell with the input cell under the middle of the kernel and with the neighbours on the
    /// board. Seven loads serve six products.
    ///
    /// # Safety
    /// The tiles must be readable: two of the gradient, one of the input, and the used neighbours.
    #[inline(always)]
    unsafe fn multiply_cell<const LEFT: bool, const RIGHT: bool>(
        &mut self,
        (gradients, inputs): (*const Tile, *const Tile),
    ) {
        macro_rules! gradients {
            ($offset:literal) => {
                asm!(
                    concat!("tileloadd tmm6, [{tile} + {stride}*1 + ", $offset, "]"),
                    tile = in(reg) gradients,
                    stride = in(reg) ROW_BYTES,
                    options(nostack, readonly),
                )
            };
        }
        macro_rules! inputs {
            ($offset:literal) => {
                asm!(
                    concat!("tileloadd tmm7, [{tile} + {stride}*1 + ", $offset, "]"),
                    tile = in(reg) inputs,
                    stride = in(reg) ROW_BYTES,
                    options(nostack, readonly),
                )
            };
        }
        macro_rules! product {
            ($sums:literal) => {
                asm!(concat!("tdpbf16ps ", $sums, ", tmm6, tmm7"), options(nomem, nostack))
            };
        }
        // SAFETY: the caller fulfils the contract of this function; the tiles are configured.
        unsafe {
            gradients!("0");
            if LEFT {
                inputs!("-1024");
                product!("tmm0");
            }
            if RIGHT {
                inputs!("1024");
                product!("tmm2");
            }
            inputs!("0");
            product!("tmm1");
            gradients!("1024");
            product!("tmm4");
            if LEFT {
                inputs!("-1024");
                product!("tmm3");
            }
            if RIGHT {
                inputs!("1024");
                product!("tmm5");
            }
        }
    }
}
