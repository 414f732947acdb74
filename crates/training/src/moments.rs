//! Optimiser moments in a storage format: float32, bfloat16, or 8-bit codes in blocks.
//!
//! An optimiser update converts the stored numbers to float32, computes in float32, and rounds the results. Rounding to
//! nearest would lose small changes permanently: with β₂ = 0.999, a second moment changes by a thousandth per step, but
//! adjacent bfloat16 numbers differ by 1/256 to 1/128. Rounding is therefore stochastic: a number becomes one of the
//! two neighbours, with probabilities that preserve the mean. The random numbers depend only on step, moment and index.
//! Start with [`Moment`].

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// Numbers per block of [`MomentFormat::Int8`]; each block has one scale.
pub const BLOCK: usize = 256;

/// Storage format of moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MomentFormat {
    /// float32: 4 bytes per number.
    #[default]
    F32,
    /// bfloat16: 2 bytes per number.
    Bf16,
    /// 8-bit codes with one scale per block of [`BLOCK`] numbers (Dettmers et al. 2022): 1.016 bytes per number. The
    /// codes use dynamic tree quantisation (Dettmers 2016), see [`code_values`].
    Int8,
}

/// The meaning of a moment, which determines the 8-bit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MomentKind {
    /// A mean or a sum of gradients.
    Gradient,
    /// A mean of squared gradients. The codes represent the square root, which spans half as many powers of ten. A
    /// positive number never becomes 0, because an update divides by the root.
    Square,
}

/// The rounding mode for storing numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// Rounds to the nearest neighbour. Ties go to the even number in bfloat16, and to the lower 8-bit code.
    Nearest,
    /// Rounds to one of the two neighbours at random, with probabilities that preserve the mean. The value is the
    /// random key from [`stochastic`](Self::stochastic).
    Stochastic(u32),
}

/// An optimiser moment `[P]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    /// Meaning of the numbers.
    pub kind: MomentKind,
    /// The numbers, in a storage format.
    pub stored: Stored,
}

/// Numbers in a storage format.
#[derive(Debug, Clone, PartialEq)]
pub enum Stored {
    /// The numbers in float32, `[P]`.
    F32(Vec<f32>),
    /// The bits of the numbers in bfloat16, `[P]`.
    Bf16(Vec<u16>),
    /// 8-bit codes, with a scale per block.
    Int8 {
        /// Codes, `[P]`.
        codes: Vec<u8>,
        /// Scale of each block, `[⌈P / BLOCK⌉]`: the magnitude that the code value 1 represents.
        scales: Vec<f32>,
    },
}

/// A range of consecutive numbers in a moment, starting at a block boundary.
#[derive(Debug)]
pub struct MomentPart<'a> {
    kind: MomentKind,
    stored: PartStored<'a>,
}

#[derive(Debug)]
enum PartStored<'a> {
    F32(&'a mut [f32]),
    Bf16(&'a mut [u16]),
    Int8 { codes: &'a mut [u8], scales: &'a mut [f32] },
}

impl std::fmt::Display for MomentFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        })
    }
}

impl MomentFormat {
    /// Returns the storage size of `len` numbers, in bytes.
    #[must_use]
    pub fn bytes(self, len: usize) -> usize {
        match self {
            Self::F32 => 4 * len,
            Self::Bf16 => 2 * len,
            Self::Int8 => len + 4 * len.div_ceil(BLOCK),
        }
    }
}

impl Moment {
    /// Creates a moment of `len` zeros.
    #[must_use]
    pub fn zeros(kind: MomentKind, format: MomentFormat, len: usize) -> Self {
        let stored = match format {
            MomentFormat::F32 => Stored::F32(vec![0.0; len]),
            MomentFormat::Bf16 => Stored::Bf16(vec![0; len]),
            MomentFormat::Int8 => {
                Stored::Int8 { codes: vec![zero_code(kind); len], scales: vec![0.0; len.div_ceil(BLOCK)] }
            }
        };
        Self { kind, stored }
    }

    /// Rounds float32 numbers to the nearest numbers in a format. Numbers from [`to_floats`](Self::to_floats) give the
    /// same bits and codes again.
    #[must_use]
    pub fn of(kind: MomentKind, format: MomentFormat, numbers: Vec<f32>) -> Self {
        if format == MomentFormat::F32 {
            return Self { kind, stored: Stored::F32(numbers) };
        }
        let mut moment = Self::zeros(kind, format, numbers.len());
        for mut part in moment.parts(numbers.len().max(1).next_multiple_of(BLOCK)) {
            part.write(&numbers, Rounding::Nearest, 0);
        }
        moment
    }

    /// Converts the numbers to float32.
    #[must_use]
    pub fn to_floats(&self) -> Vec<f32> {
        match &self.stored {
            Stored::F32(numbers) => numbers.clone(),
            Stored::Bf16(bits) => bits.iter().copied().map(widened).collect(),
            Stored::Int8 { codes, scales } => {
                let mut numbers = vec![0.0; codes.len()];
                decode(self.kind, codes, scales, &mut numbers);
                numbers
            }
        }
    }

    /// Splits the moment into parts of `size` numbers, which must be a multiple of [`BLOCK`]. The last part may be
    /// smaller.
    ///
    /// # Panics
    /// If `size` is 0 or not a multiple of [`BLOCK`].
    pub fn parts(&mut self, size: usize) -> Vec<MomentPart<'_>> {
        assert!(size > 0 && size.is_multiple_of(BLOCK), "parts begin at blocks");
        let kind = self.kind;
        let part = |stored| MomentPart { kind, stored };
        match &mut self.stored {
            Stored::F32(numbers) => numbers.chunks_mut(size).map(|numbers| part(PartStored::F32(numbers))).collect(),
            Stored::Bf16(bits) => bits.chunks_mut(size).map(|bits| part(PartStored::Bf16(bits))).collect(),
            Stored::Int8 { codes, scales } => {
                let blocks = codes.chunks_mut(size).zip(scales.chunks_mut(size / BLOCK));
                blocks.map(|(codes, scales)| part(PartStored::Int8 { codes, scales })).collect()
            }
        }
    }

    /// Returns the storage size of the moment, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.stored {
            Stored::F32(numbers) => size_of_val(&numbers[..]),
            Stored::Bf16(bits) => size_of_val(&bits[..]),
            Stored::Int8 { codes, scales } => size_of_val(&codes[..]) + size_of_val(&scales[..]),
        }
    }
}

impl MomentPart<'_> {
    /// Returns the stored numbers if the format is float32; otherwise `None`.
    pub fn floats_mut(&mut self) -> Option<&mut [f32]> {
        match &mut self.stored {
            PartStored::F32(numbers) => Some(numbers),
            _ => None,
        }
    }

    /// Converts the numbers to float32 and writes them to `to`, which must have the same length.
    pub fn read(&self, to: &mut [f32]) {
        match &self.stored {
            PartStored::F32(numbers) => to.copy_from_slice(numbers),
            PartStored::Bf16(bits) => to.iter_mut().zip(&**bits).for_each(|(to, &bits)| *to = widened(bits)),
            PartStored::Int8 { codes, scales } => decode(self.kind, codes, scales, to),
        }
    }

    /// Rounds and stores `numbers`. `first` is the index of the first number within the moment.
    pub fn write(&mut self, numbers: &[f32], rounding: Rounding, first: usize) {
        match &mut self.stored {
            PartStored::F32(to) => to.copy_from_slice(numbers),
            PartStored::Bf16(to) => {
                for (index, (to, &number)) in to.iter_mut().zip(numbers).enumerate() {
                    *to = narrowed(number, rounding, first + index);
                }
            }
            PartStored::Int8 { codes, scales } => encode(self.kind, numbers, rounding, first, codes, scales),
        }
    }
}

impl Rounding {
    /// Returns the stochastic rounding of the moment with index `moment` after step `step`, counted from 1. The random
    /// bits are equal in every backend and for any number of threads.
    #[must_use]
    pub fn stochastic(step: u64, moment: usize) -> Self {
        // A run has fewer than 2³¹ steps. Repeated random numbers after that are harmless.
        Self::Stochastic(mixed((step as u32).wrapping_mul(2).wrapping_add(moment as u32)))
    }

    /// Returns the random bits for the number at `index`.
    fn bits(key: u32, index: usize) -> u32 {
        mixed(index as u32 ^ key)
    }

    /// Returns a threshold in `[0, 1)`. A number is rounded up if its distance from the lower neighbour, as a share of
    /// the gap between the neighbours, is above the threshold.
    fn share(self, index: usize) -> f32 {
        match self {
            Self::Nearest => 0.5,
            Self::Stochastic(key) => (Self::bits(key, index) >> 8) as f32 / (1 << 24) as f32,
        }
    }
}

/// Multipliers of the hash function for stochastic rounding.
pub const MIX_FACTORS: [u32; 2] = [0x7feb_352d, 0x846c_a68b];

/// A hash of 32 bits, bijective, in which each input bit flips about half of the output bits (`lowbias32` by Wellons).
fn mixed(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(MIX_FACTORS[0]);
    x ^= x >> 15;
    x = x.wrapping_mul(MIX_FACTORS[1]);
    x ^ (x >> 16)
}

/// Converts bfloat16 bits to a float32 number.
fn widened(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Rounds a float32 number to bfloat16 bits.
fn narrowed(number: f32, rounding: Rounding, index: usize) -> u16 {
    let bits = number.to_bits();
    let added = match rounding {
        // Adds half a unit in the last place, minus one float32 unit if the truncated number is even.
        Rounding::Nearest => 0x7fff + (bits >> 16 & 1),
        Rounding::Stochastic(key) => Rounding::bits(key, index) >> 16,
    };
    (bits.wrapping_add(added) >> 16) as u16
}

/// Returns the values of all codes for a moment kind, in ascending order and relative to the block scale.
///
/// The values follow dynamic tree quantisation (Dettmers 2016; Dettmers et al. 2022, section 2). Each of seven decades
/// below 1 has equally spaced values, twice as many as the next smaller decade. For gradients, 255 values are scaled to
/// end at ±1, with 0 in the middle. For roots of squares, there are the 256 values of the paper.
#[must_use]
pub fn code_values(kind: MomentKind) -> &'static [f32] {
    static OF_GRADIENTS: LazyLock<Vec<f32>> = LazyLock::new(|| {
        let positive = decades(0);
        let largest = positive.last().copied().unwrap_or(1.0);
        let negative = positive.iter().rev().map(|value| -value / largest);
        negative.chain([0.0]).chain(positive.iter().map(|value| value / largest)).map(|value| value as f32).collect()
    });
    static OF_SQUARES: LazyLock<Vec<f32>> =
        LazyLock::new(|| [0.0].into_iter().chain(decades(1)).chain([1.0]).map(|value| value as f32).collect());
    match kind {
        MomentKind::Gradient => &OF_GRADIENTS,
        MomentKind::Square => &OF_SQUARES,
    }
}

/// Returns, for each decade from 0 to 6, the midpoints of `2^(decade + more)` equal parts of `[0.1, 1]` times
/// `10^(decade - 6)`.
fn decades(more: i32) -> Vec<f64> {
    let of_decade = |decade: i32| {
        let parts = 1 << (decade + more);
        (0..parts).map(move |part| {
            let middle = (f64::from(part) + 0.5) / f64::from(parts);
            (0.1 + 0.9 * middle) * 10_f64.powi(decade - 6)
        })
    };
    (0..7).flat_map(of_decade).collect()
}

/// Returns the code that represents 0.
#[must_use]
pub fn zero_code(kind: MomentKind) -> u8 {
    match kind {
        MomentKind::Gradient => 127,
        MomentKind::Square => 0,
    }
}

fn decode(kind: MomentKind, codes: &[u8], scales: &[f32], to: &mut [f32]) {
    let values = code_values(kind);
    for ((codes, scale), to) in codes.chunks(BLOCK).zip(scales).zip(to.chunks_mut(BLOCK)) {
        for (to, &code) in to.iter_mut().zip(codes) {
            // Gradients have only 255 codes. The remaining code is never written.
            let value = values[usize::from(code).min(values.len() - 1)] * scale;
            *to = if kind == MomentKind::Square { value * value } else { value };
        }
    }
}

fn encode(kind: MomentKind, numbers: &[f32], rounding: Rounding, first: usize, codes: &mut [u8], scales: &mut [f32]) {
    let values = code_values(kind);
    let coded = |number: f32| if kind == MomentKind::Square { number.sqrt() } else { number };
    for (block, ((numbers, codes), scale)) in numbers.chunks(BLOCK).zip(codes.chunks_mut(BLOCK)).zip(scales).enumerate()
    {
        *scale = numbers.iter().map(|&number| coded(number).abs()).fold(0.0, f32::max);
        let divisor = scale.max(f32::MIN_POSITIVE);
        for (index, (code, &number)) in codes.iter_mut().zip(numbers).enumerate() {
            let value = coded(number) / divisor;
            let below = values.partition_point(|&of_code| of_code <= value).saturating_sub(1).min(values.len() - 2);
            let share = (value - values[below]) / (values[below + 1] - values[below]);
            let is_above = rounding.share(first + block * BLOCK + index) < share;
            let chosen = below + usize::from(is_above);
            let least = usize::from(kind == MomentKind::Square && value > 0.0);
            *code = chosen.max(least) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::{BLOCK, Moment, MomentFormat, MomentKind, Rounding, Stored, code_values, zero_code};

    const KINDS: [MomentKind; 2] = [MomentKind::Gradient, MomentKind::Square];
    const FORMATS: [MomentFormat; 3] = [MomentFormat::F32, MomentFormat::Bf16, MomentFormat::Int8];

    /// Returns random numbers for a moment kind, over many powers of ten and including 0.
    fn drawn(kind: MomentKind, len: usize, seed: u64) -> Vec<f32> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut draw = |index: usize| {
            let magnitude = 10_f32.powf(rng.random_range(-9.0..0.0));
            let signed = if rng.random_range(0..2) == 0 { magnitude } else { -magnitude };
            match kind {
                _ if index % 97 == 5 => 0.0,
                MomentKind::Gradient => signed,
                MomentKind::Square => magnitude,
            }
        };
        (0..len).map(&mut draw).collect()
    }

    /// Rounds numbers to a format as a single part, and converts the result to float32.
    fn rounded(kind: MomentKind, format: MomentFormat, numbers: &[f32], rounding: Rounding) -> Vec<f32> {
        let mut moment = Moment::zeros(kind, format, numbers.len());
        moment.parts(numbers.len().next_multiple_of(BLOCK))[0].write(numbers, rounding, 0);
        moment.to_floats()
    }

    #[test]
    fn codes_ascend_to_one_and_hold_zero() {
        for (kind, count) in [(MomentKind::Gradient, 255), (MomentKind::Square, 256)] {
            let values = code_values(kind);
            assert_eq!((values.len(), values[usize::from(zero_code(kind))], values[count - 1]), (count, 0.0, 1.0));
            assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "{values:?}");
        }
        let signed = code_values(MomentKind::Gradient);
        assert!(signed.iter().zip(signed.iter().rev()).all(|(value, mirrored)| *value == -mirrored));
    }

    #[test]
    fn a_number_becomes_one_of_its_two_neighbours() {
        for kind in KINDS {
            let numbers = drawn(kind, 1000, 3);
            for rounding in [Rounding::Nearest, Rounding::stochastic(7, 1)] {
                // Adjacent bfloat16 numbers differ by at most 1/128.
                let of_bf16 = rounded(kind, MomentFormat::Bf16, &numbers, rounding);
                for (number, rounded) in numbers.iter().zip(&of_bf16) {
                    assert!((number - rounded).abs() <= number.abs() / 128.0, "{rounded} instead of {number}");
                }
                let of_int8 = rounded(kind, MomentFormat::Int8, &numbers, rounding);
                let root = |number: f32| if kind == MomentKind::Square { number.sqrt() } else { number };
                for (block, rounded) in numbers.chunks(BLOCK).zip(of_int8.chunks(BLOCK)) {
                    let scale = block.iter().map(|&number| root(number).abs()).fold(0.0, f32::max);
                    for (&number, &rounded) in block.iter().zip(rounded) {
                        let (value, got) = (root(number) / scale, root(rounded) / scale);
                        let above = code_values(kind).partition_point(|&of_code| of_code <= value);
                        let ends = [above.saturating_sub(1), above.min(code_values(kind).len() - 1)];
                        let ends = ends.map(|code| code_values(kind)[code]);
                        let is_near = |end: f32| (got - end).abs() <= 1e-6 * end.abs();
                        assert!(ends.into_iter().any(is_near), "{got} instead of {value} between {ends:?}");
                        assert!(kind == MomentKind::Gradient || number == 0.0 || rounded > 0.0, "{number} became 0");
                    }
                }
            }
        }
    }

    #[test]
    fn stochastic_rounding_keeps_the_mean_where_rounding_to_the_nearest_does_not() {
        // A tenth of the gap above the lower neighbour, in bfloat16 and in 8-bit codes. The 1 next to it sets the
        // scale.
        let values = code_values(MomentKind::Gradient);
        let [lower, upper] = [200, 201].map(|code| values[code]);
        for (format, lower, upper) in [(MomentFormat::Bf16, 1.0, 1.0 + 1.0 / 128.0), (MomentFormat::Int8, lower, upper)]
        {
            let number = lower + 0.1 * (upper - lower);
            let numbers = [1.0, number];
            let steps = 20_000;
            let sum: f64 = (1..=steps)
                .map(|step| rounded(MomentKind::Gradient, format, &numbers, Rounding::stochastic(step, 0)))
                .map(|rounded| f64::from((rounded[1] - lower) / (upper - lower)))
                .sum();
            let share = sum / steps as f64;
            // With probability 0.1, five standard deviations of a share of 20,000 samples are 0.0106.
            assert!((share - 0.1).abs() < 0.0106, "{format}: a share of {share} became the upper neighbour");
            assert_eq!(rounded(MomentKind::Gradient, format, &numbers, Rounding::Nearest)[1], lower, "{format}");
        }
    }

    /// With β₂ = 0.999 and gradients that fell from 1 to 0.1, the second moment must follow the smaller gradients.
    #[test]
    fn a_second_moment_follows_smaller_gradients_which_rounding_to_the_nearest_never_does() {
        for format in [MomentFormat::Bf16, MomentFormat::Int8] {
            let after = |stochastic: bool| {
                let mut moment = Moment::of(MomentKind::Square, format, vec![1.0; 256]);
                for step in 1..=5000 {
                    let mut numbers = moment.to_floats();
                    // The first number stays unchanged, to keep the scale of the block.
                    numbers[1..].iter_mut().for_each(|square| *square += 0.001 * (0.01 - *square));
                    let rounding = if stochastic { Rounding::stochastic(step, 1) } else { Rounding::Nearest };
                    moment.parts(256)[0].write(&numbers, rounding, 0);
                }
                moment.to_floats()[1..].iter().map(|&square| f64::from(square)).sum::<f64>() / 255.0
            };
            // The expected value is 0.01 + 0.99 · 0.999⁵⁰⁰⁰ = 0.0167. 8-bit codes represent the root, and rounding the
            // root raises the mean square.
            let followed = after(true);
            assert!(followed > 0.0155 && followed < 0.0195, "{format}: {followed}");
            assert!(after(false) > 0.9, "{format}");
        }
    }

    #[test]
    fn numbers_of_a_format_keep_their_bits() {
        for (kind, format) in KINDS.iter().flat_map(|&kind| FORMATS.map(|format| (kind, format))) {
            let moment = Moment::of(kind, format, drawn(kind, 777, 5));
            assert_eq!(Moment::of(kind, format, moment.to_floats()), moment, "{kind:?} in {format}");
            assert_eq!(moment.bytes(), format.bytes(777));
            let zeros = Moment::zeros(kind, format, 777);
            assert_eq!((zeros.to_floats(), Moment::of(kind, format, vec![0.0; 777])), (vec![0.0; 777], zeros));
        }
    }

    #[test]
    fn parts_of_any_size_have_the_numbers_of_the_whole() {
        for (kind, format) in KINDS.iter().flat_map(|&kind| FORMATS.map(|format| (kind, format))) {
            let numbers = drawn(kind, 3000, 9);
            let written = |size: usize| {
                let mut moment = Moment::zeros(kind, format, numbers.len());
                for (part, numbers) in moment.parts(size).iter_mut().zip(numbers.chunks(size).enumerate()) {
                    let (index, numbers) = numbers;
                    part.write(numbers, Rounding::stochastic(3, 0), index * size);
                    let mut read = vec![0.0; numbers.len()];
                    part.read(&mut read);
                    assert_eq!(part.floats_mut().is_some(), format == MomentFormat::F32);
                }
                moment
            };
            assert_eq!(written(BLOCK), written(4 * BLOCK), "{kind:?} in {format}");
        }
    }

    #[test]
    fn numbers_that_are_not_finite_do_not_panic() {
        for (kind, format) in KINDS.iter().flat_map(|&kind| FORMATS.map(|format| (kind, format))) {
            let moment = Moment::of(kind, format, vec![f32::NAN, f32::INFINITY, -1.0, f32::NEG_INFINITY]);
            assert_eq!(moment.to_floats().len(), 4);
        }
        let stray = Moment { kind: MomentKind::Gradient, stored: Stored::Int8 { codes: vec![255], scales: vec![2.0] } };
        assert_eq!(stray.to_floats(), [2.0]);
    }
}
