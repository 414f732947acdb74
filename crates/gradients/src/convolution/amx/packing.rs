//! From channels last, positions far apart, to tiles of thirty-two positions and sixteen channels of a cell.
//!
//! A tile of the input has pairs of positions as rows and channels as words; one of the gradient has channels as rows.

use std::arch::x86_64::{
    _mm_loadu_si128, _mm256_loadu_si256, _mm512_castsi128_si512, _mm512_castsi256_si512, _mm512_inserti32x4,
    _mm512_inserti64x4, _mm512_loadu_si512, _mm512_permutexvar_epi16, _mm512_store_si512, _mm512_unpackhi_epi16,
    _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi16, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

use half::bf16;

use super::super::Shape;
use super::tiles::Tile;
use super::{BLOCK, LANES, TOGETHER};

/// A row of the board, of a block of positions.
pub(super) struct Source<'a> {
    /// From the row's first cell of the first position.
    numbers: &'a [bf16],
    /// Positions that there are, at most a block.
    positions: usize,
    /// Numbers from one position to the next.
    stride: usize,
    channels: usize,
    width: usize,
}

impl<'a> Source<'a> {
    /// Row y of the board of the block that starts with position `first`, of a tensor `[B, H, W, channels]`.
    pub(super) fn new(shape: Shape, tensor: &'a [bf16], channels: usize, first: usize, y: usize) -> Self {
        let stride = shape.height * shape.width * channels;
        let numbers = &tensor[first * stride + y * shape.width * channels..];
        Self { numbers, positions: BLOCK.min(shape.positions - first), stride, channels, width: shape.width }
    }

    /// Calls for each tile of channels of each cell with the numbers of the first position and how far apart they are.
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

    /// A tile with zeros for the positions and channels that there are not, `[32, 16]`.
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
pub(super) fn pack_input(source: &Source<'_>, tiles: &mut [Tile]) {
    assert!(super::is_available(), "no AVX-512");
    // SAFETY: the CPU has the instructions.
    unsafe { pack_input_row(source, tiles) }
}

/// Packs a row of the gradient, `[pair of tiles of channels, W, 2]`.
pub(super) fn pack_gradient(source: &Source<'_>, tiles: &mut [Tile]) {
    assert!(super::is_available(), "no AVX-512");
    // SAFETY: the CPU has the instructions.
    unsafe { pack_gradient_row(source, tiles) }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn pack_input_row(source: &Source<'_>, tiles: &mut [Tile]) {
    source.for_each(|x, tile, numbers, stride| interleave(numbers, stride, &mut tiles[tile * source.width + x]));
}

#[target_feature(enable = "avx512f,avx512bw")]
fn pack_gradient_row(source: &Source<'_>, tiles: &mut [Tile]) {
    let count = source.channels.div_ceil(LANES);
    source.for_each(|x, tile, numbers, stride| {
        let first = tile / TOGETHER * TOGETHER;
        let together = TOGETHER.min(count - first);
        transpose(numbers, stride, &mut tiles[first * source.width + x * together + tile - first]);
    });
}

/// Rows of pairs of positions: `[pair, channel, 2]`.
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

/// Rows of channels: `[channel, position]`. Eight channels of positions eight apart are a register; three rounds of
/// unpacking then make a register of each channel.
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
