//! The AMX path, whose matrix products sum over the batch. For each pair of a cell and its neighbour under a tap, a
//! tile of sixteen outputs by thirty-two positions times a tile of thirty-two positions by sixteen inputs is added to
//! sixteen by sixteen sums. Pairs outside the board are left out, which on a small board is a fifth of them, and a
//! shift by a tap only selects another tile.
//!
//! Both operands are packed into tiles first, by blocks of thirty-two positions and by bands of rows, so that operands
//! are read from the second-level cache. Sums are kept in memory from band to band.

use std::arch::asm;
use std::arch::x86_64::{
    _mm_loadu_si128, _mm256_loadu_si256, _mm512_castsi128_si512, _mm512_castsi256_si512, _mm512_inserti32x4,
    _mm512_inserti64x4, _mm512_loadu_si512, _mm512_permutexvar_epi16, _mm512_store_si512, _mm512_unpackhi_epi16,
    _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi16, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};
use std::marker::PhantomData;

use half::bf16;

use crate::convolution::{SIDE, Shape, TAPS, on_board};

/// Positions of a tile.
const BLOCK: usize = 32;
/// Rows, and 32-bit columns, of a tile: channels.
const LANES: usize = 16;
/// Tiles of outputs that are multiplied together; of an odd number, the last one is multiplied alone.
const TOGETHER: usize = 2;
/// Tiles of packed operands that the second-level cache, of 2 MiB, holds beside the sums that are loaded and stored.
const CACHED: usize = 1280;

/// Returns whether the CPU has the instructions and the system permits their use.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") && cpu::grants_amx()
}

/// The operands of a band of rows of a block of positions, and all sums.
#[derive(Debug)]
pub(super) struct Workspace {
    /// `[slot, tile of inputs, W]`; row y of the board is in slot y modulo the number of slots.
    inputs: Vec<Tile>,
    /// `[row of the band, pair of tiles of outputs, W, 2]`, the last pair being one tile if their number is odd.
    gradients: Vec<Tile>,
    /// `[pair of tiles of outputs, tile of inputs, ky]` of groups `[2, kx]`.
    sums: Vec<[Tile; GROUP]>,
}

/// The blocks of a shape.
#[derive(Debug, Clone, Copy)]
struct Plan {
    shape: Shape,
    input_tiles: usize,
    output_tiles: usize,
    /// Rows of a band.
    rows: usize,
    /// Rows of the input that are kept: those of a band and one to each side, or the whole board.
    slots: usize,
}

impl Plan {
    fn new(shape: Shape) -> Self {
        let (input_tiles, output_tiles) = (shape.inputs.div_ceil(LANES), shape.outputs.div_ceil(LANES));
        let fits = (CACHED / shape.width).saturating_sub(2 * input_tiles) / (input_tiles + output_tiles);
        // With bands of a single row, loading and storing sums costs more than exceeding the cache by a second row.
        let most = fits.max(2).min(shape.height);
        // The bands get nearly equal heights.
        let rows = shape.height.div_ceil(shape.height.div_ceil(most));
        Self { shape, input_tiles, output_tiles, rows, slots: (rows + 2).min(shape.height) }
    }

    fn output_pairs(self) -> usize {
        self.output_tiles.div_ceil(TOGETHER)
    }
}

impl Workspace {
    /// Creates an empty workspace.
    ///
    /// # Panics
    /// If the path is not available.
    pub(super) fn new() -> Self {
        assert!(is_available(), "no AMX");
        Self { inputs: Vec::new(), gradients: Vec::new(), sums: Vec::new() }
    }

    /// Computes the gradient of the weights; lengths must fit the shape.
    pub(super) fn compute(&mut self, shape: Shape, input: &[bf16], gradient: &[bf16], weights: &mut [f32]) {
        let plan = Plan::new(shape);
        self.inputs.resize(plan.slots * plan.input_tiles * shape.width, Tile::ZERO);
        self.gradients.resize(plan.rows * plan.output_tiles * shape.width, Tile::ZERO);
        self.sums.resize(plan.output_pairs() * plan.input_tiles * SIDE, [Tile::ZERO; GROUP]);
        let mut unit = Unit::new();
        let mut is_first = true;
        for first in (0..shape.positions).step_by(BLOCK) {
            let mut packed = 0;
            for top in (0..shape.height).step_by(plan.rows) {
                let band = top..(top + plan.rows).min(shape.height);
                let needed = (band.end + 1).min(shape.height);
                (packed..needed).for_each(|y| self.pack_input(plan, input, first, y));
                packed = needed;
                band.clone().for_each(|y| self.pack_gradient(plan, gradient, first, y));
                self.multiply(plan, &mut unit, band, is_first);
                is_first = false;
            }
        }
        drop(unit);
        self.unpack(plan, weights);
    }

    /// Packs row y of the input, of the block that starts with position `first`.
    fn pack_input(&mut self, plan: Plan, input: &[bf16], first: usize, y: usize) {
        let len = plan.input_tiles * plan.shape.width;
        let source = Source::new(plan.shape, input, plan.shape.inputs, first, y);
        // SAFETY: a workspace exists only where the CPU has the instructions.
        unsafe { pack_input_row(&source, &mut self.inputs[y % plan.slots * len..][..len]) }
    }

    /// Packs row y of the gradient, of the block that starts with position `first`.
    fn pack_gradient(&mut self, plan: Plan, gradient: &[bf16], first: usize, y: usize) {
        let len = plan.output_tiles * plan.shape.width;
        let source = Source::new(plan.shape, gradient, plan.shape.outputs, first, y);
        // SAFETY: as above.
        unsafe { pack_gradient_row(&source, &mut self.gradients[y % plan.rows * len..][..len]) }
    }

    /// Adds the products of a band of rows to the sums, or sets them.
    fn multiply(&mut self, plan: Plan, unit: &mut Unit, band: std::ops::Range<usize>, is_first: bool) {
        let Self { inputs, gradients, sums } = self;
        let width = plan.shape.width;
        let mut groups = sums.iter_mut();
        for first in (0..plan.output_tiles).step_by(TOGETHER) {
            let together = TOGETHER.min(plan.output_tiles - first);
            for input_tile in 0..plan.input_tiles {
                for (down, sums) in groups.by_ref().take(SIDE).enumerate() {
                    let seen = on_board(plan.shape.height, down);
                    if is_first {
                        unit.zero()
                    } else {
                        unit.load(sums)
                    }
                    for y in band.start.max(seen.start)..band.end.min(seen.end) {
                        let slot = (y + down - 1) % plan.slots;
                        let inputs = &inputs[(slot * plan.input_tiles + input_tile) * width..][..width];
                        let row = y % plan.rows * plan.output_tiles;
                        let gradients = &gradients[(row + first) * width..][..together * width];
                        unit.multiply_row(gradients, inputs);
                    }
                    unit.store(sums);
                }
            }
        }
    }

    /// Writes the sums as `[O, 3, 3, I]`.
    fn unpack(&self, plan: Plan, weights: &mut [f32]) {
        let Shape { inputs, outputs, .. } = plan.shape;
        for (index, group) in self.sums.iter().enumerate() {
            let (down, column) = (index % SIDE, index / SIDE % plan.input_tiles * LANES);
            let first = index / SIDE / plan.input_tiles * TOGETHER * LANES;
            let len = LANES.min(inputs - column);
            for output in first..(first + TOGETHER * LANES).min(outputs) {
                let (tile, row) = ((output - first) / LANES, (output - first) % LANES);
                for right in 0..SIDE {
                    let to = (output * TAPS + down * SIDE + right) * inputs + column;
                    let sums = group[tile * SIDE + right].row(row);
                    weights[to..][..len].copy_from_slice(&sums[..len]);
                }
            }
        }
    }
}

/// A row of the board, of a block of positions: channels last, positions far apart. It is packed into tiles of
/// thirty-two positions and sixteen channels of a cell; one of the input has pairs of positions as rows and channels as
/// words, one of the gradient has channels as rows.
struct Source<'a> {
    /// The numbers from the row's first cell of the first position on.
    numbers: &'a [bf16],
    /// The number of positions, at most [`BLOCK`].
    positions: usize,
    /// Numbers from one position to the next.
    stride: usize,
    channels: usize,
    width: usize,
}

impl<'a> Source<'a> {
    /// Row y of the board of the block that starts with position `first`, of a tensor `[B, H, W, channels]`.
    fn new(shape: Shape, tensor: &'a [bf16], channels: usize, first: usize, y: usize) -> Self {
        let stride = shape.height * shape.width * channels;
        let numbers = &tensor[first * stride + y * shape.width * channels..];
        Self { numbers, positions: BLOCK.min(shape.positions - first), stride, channels, width: shape.width }
    }

    /// Calls `pack` for each tile of channels of each cell: with the cell's column, the tile, the numbers from the
    /// first position on, and the distance between positions.
    #[inline(always)]
    fn for_each(&self, mut pack: impl FnMut(usize, usize, &[bf16], usize)) {
        for x in 0..self.width {
            for tile in 0..self.channels.div_ceil(LANES) {
                let start = x * self.channels + tile * LANES;
                let channels = LANES.min(self.channels - tile * LANES);
                if self.positions == BLOCK && channels == LANES {
                    pack(x, tile, &self.numbers[start..], self.stride);
                } else {
                    pack(x, tile, &self.padded(start, channels), LANES);
                }
            }
        }
    }

    /// A tile with zeros for the missing positions and channels, `[32, 16]`.
    fn padded(&self, start: usize, channels: usize) -> [bf16; BLOCK * LANES] {
        let mut padded = [bf16::ZERO; BLOCK * LANES];
        for (position, padded) in padded.chunks_exact_mut(LANES).take(self.positions).enumerate() {
            let numbers = &self.numbers[position * self.stride + start..][..channels];
            padded[..channels].copy_from_slice(numbers);
        }
        padded
    }
}

/// Packs a row of the input, `[tile of channels, W]`.
#[target_feature(enable = "avx512f,avx512bw")]
fn pack_input_row(source: &Source<'_>, tiles: &mut [Tile]) {
    source.for_each(|x, tile, numbers, stride| interleave(numbers, stride, &mut tiles[tile * source.width + x]));
}

/// Packs a row of the gradient, `[pair of tiles of channels, W, 2]`.
#[target_feature(enable = "avx512f,avx512bw")]
fn pack_gradient_row(source: &Source<'_>, tiles: &mut [Tile]) {
    let count = source.channels.div_ceil(LANES);
    source.for_each(|x, tile, numbers, stride| {
        let first = tile / TOGETHER * TOGETHER;
        let together = TOGETHER.min(count - first);
        transpose(numbers, stride, &mut tiles[first * source.width + x * together + tile - first]);
    });
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

/// Packs a tile with channels as rows: `[channel, position]`. Eight channels of positions eight apart are a register;
/// three rounds of unpacking then make a register of each channel.
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

/// The number of matrix tiles of a thread.
const TILES: usize = 8;
/// The number of tiles that hold sums.
const GROUP: usize = TOGETHER * SIDE;
/// Bytes from one row of a tile to the next.
const STRIDE: usize = LANES * size_of::<u32>();

/// Sixteen rows of sixteen words: float32, or pairs of bfloat16 of neighbouring positions.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Tile([[u32; LANES]; LANES]);

impl Tile {
    const ZERO: Self = Self([[0; LANES]; LANES]);

    /// A row of sums.
    fn row(&self, row: usize) -> [f32; LANES] {
        self.0[row].map(f32::from_bits)
    }
}

/// The eight configured tiles of this thread, which make this type not `Send`: six of sums, `[2 tiles of outputs, kx]`,
/// and two through which the operands stream. Released when dropped, so that the system need not save them.
struct Unit(PhantomData<*const ()>);

impl Unit {
    /// Configures the tiles of this thread.
    ///
    /// # Panics
    /// If the path is not available.
    fn new() -> Self {
        assert!(is_available(), "no AMX");
        // SAFETY: the CPU has tiles and the system has granted their use.
        unsafe { cpu::configure_tiles([LANES as u8; TILES]) }
        Self(PhantomData)
    }

    /// Zeroes the sums.
    #[inline(always)]
    fn zero(&mut self) {
        // SAFETY: the tiles are configured. Nothing else that runs before they are released touches tiles, so they keep
        // their contents from one block of assembly to the next.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "tilezero tmm4",
                "tilezero tmm5",
                options(nomem, nostack),
            );
        }
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
                stride = in(reg) STRIDE,
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
                stride = in(reg) STRIDE,
                options(nostack),
            );
        }
    }

    /// Adds the products of a row of the gradient, `[W, 1 or 2]`, and the row of the input under the kernel's row,
    /// `[W]`.
    ///
    /// # Panics
    /// If the lengths do not fit.
    #[inline(always)]
    fn multiply_row(&mut self, gradients: &[Tile], inputs: &[Tile]) {
        if gradients.len() == inputs.len() {
            self.multiply_row_of::<1>(gradients, inputs);
        } else {
            self.multiply_row_of::<TOGETHER>(gradients, inputs);
        }
    }

    /// Does the work of [`multiply_row`](Self::multiply_row) for `OUTPUTS` tiles of outputs.
    #[inline(always)]
    fn multiply_row_of<const OUTPUTS: usize>(&mut self, gradients: &[Tile], inputs: &[Tile]) {
        let width = inputs.len();
        assert!(width > 0 && gradients.len() == width * OUTPUTS, "a row of tiles");
        // SAFETY: cells lie inside the row, and so do those to their left and right where they are used.
        unsafe {
            let at = |x: usize| (gradients.as_ptr().add(x * OUTPUTS), inputs.as_ptr().add(x));
            if width == 1 {
                return self.multiply_cell::<OUTPUTS, false, false>(at(0));
            }
            self.multiply_cell::<OUTPUTS, false, true>(at(0));
            for x in 1..width - 1 {
                self.multiply_cell::<OUTPUTS, true, true>(at(x));
            }
            self.multiply_cell::<OUTPUTS, true, false>(at(width - 1));
        }
    }

    /// Multiplies one cell of the gradient with the cell of the input under the middle of the kernel and with its
    /// neighbours on the board. With two tiles of outputs seven loads serve six products.
    ///
    /// # Safety
    /// The tiles must be readable: one or two of the gradient, that of the input, and its neighbours.
    #[inline(always)]
    unsafe fn multiply_cell<const OUTPUTS: usize, const LEFT: bool, const RIGHT: bool>(
        &mut self,
        (gradients, inputs): (*const Tile, *const Tile),
    ) {
        macro_rules! gradients {
            ($offset:literal) => {
                asm!(
                    concat!("tileloadd tmm6, [{tile} + {stride}*1 + ", $offset, "]"),
                    tile = in(reg) gradients,
                    stride = in(reg) STRIDE,
                    options(nostack, readonly),
                )
            };
        }
        macro_rules! inputs {
            ($offset:literal) => {
                asm!(
                    concat!("tileloadd tmm7, [{tile} + {stride}*1 + ", $offset, "]"),
                    tile = in(reg) inputs,
                    stride = in(reg) STRIDE,
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
            if OUTPUTS == TOGETHER {
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
}

impl Drop for Unit {
    fn drop(&mut self) {
        // SAFETY: the CPU has tiles.
        unsafe { cpu::release_tiles() }
    }
}
