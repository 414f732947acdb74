/// 64 bytes: a cache line, a vector register, a row of a matrix tile.
///
/// The [`Format`] determines the content of the sixteen words: 16 float32 channels of a pixel, 32 bfloat16 channels, or
/// 64 integers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u32; WORDS]);

/// Words of a line, and lanes of a group of outputs.
pub(crate) const WORDS: usize = 16;

/// Floating-point channels of a line at most.
pub(crate) const CHANNELS_MAX: usize = 2 * WORDS;

/// Integers of a line.
pub(crate) const INTEGERS: usize = 4 * WORDS;

/// The packing of channels into the words of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// One float32 per word.
    F32,
    /// Two bfloat16 per word, the even channel in the low half.
    Bf16,
    /// Four integers of eight bits per word, the first in the lowest: 0 to 255 as inputs, -127 to 127 as weights.
    I8,
}

impl Format {
    /// Channels in a word.
    pub(crate) fn per_word(self) -> usize {
        match self {
            Self::F32 => 1,
            Self::Bf16 => 2,
            Self::I8 => 4,
        }
    }

    /// The format of sums of products, once a bias has been added.
    pub(crate) fn of_outputs(self) -> Self {
        match self {
            Self::I8 => Self::F32,
            float => float,
        }
    }

    /// Channels in a line.
    pub(crate) fn per_line(self) -> usize {
        WORDS * self.per_word()
    }

    /// Lines that hold `channels` of one pixel.
    pub(crate) fn lines(self, channels: usize) -> usize {
        channels.div_ceil(self.per_line())
    }
}

/// The nearest bfloat16, ties to even, as its 16 bits. NaN and infinity stay what they are.
#[inline(always)]
pub(crate) fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16;
    // Rounding could carry a NaN's payload into the sign: it is cut instead, and stays a NaN.
    (if value.is_nan() { (bits >> 16) | 0x40 } else { rounded }) as u16
}

/// The float32 of the same value.
#[inline(always)]
pub(crate) fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

impl Line {
    /// The value of channel `index` of the line.
    #[cfg(test)]
    pub(crate) fn get(&self, format: Format, index: usize) -> f32 {
        match format {
            Format::F32 => f32::from_bits(self.0[index]),
            Format::Bf16 => from_bf16((self.0[index / 2] >> (16 * (index % 2))) as u16),
            Format::I8 => f32::from((self.0[index / 4] >> (8 * (index % 4))) as u8),
        }
    }

    /// Sets channel `index` of the line, rounded to the format.
    #[inline(always)]
    pub(crate) fn set(&mut self, format: Format, index: usize, value: f32) {
        match format {
            Format::F32 => self.0[index] = value.to_bits(),
            Format::Bf16 => {
                let shift = 16 * (index % 2);
                let word = &mut self.0[index / 2];
                *word = *word & !(0xFFFF << shift) | u32::from(to_bf16(value)) << shift;
            }
            Format::I8 => {
                let shift = 8 * (index % 4);
                let word = &mut self.0[index / 4];
                *word = *word & !(0xFF << shift) | (value.round_ties_even() as i32 as u32 & 0xFF) << shift;
            }
        }
    }

    /// All channels of a floating-point format; float32 leaves the upper half zero.
    #[inline(always)]
    pub(crate) fn unpack(&self, format: Format) -> [f32; CHANNELS_MAX] {
        let mut values = [0.0; CHANNELS_MAX];
        match format {
            Format::F32 => (0..WORDS).for_each(|word| values[word] = f32::from_bits(self.0[word])),
            Format::Bf16 => {
                for (word, values) in self.0.iter().zip(values.as_chunks_mut::<2>().0) {
                    *values = [from_bf16(*word as u16), from_bf16((*word >> 16) as u16)];
                }
            }
            Format::I8 => unreachable!("integers are multiplied and nothing else"),
        }
        values
    }

    /// The inverse, rounded to the format.
    #[inline(always)]
    pub(crate) fn pack(&mut self, format: Format, values: &[f32; CHANNELS_MAX]) {
        match format {
            Format::F32 => (0..WORDS).for_each(|word| self.0[word] = values[word].to_bits()),
            Format::Bf16 => {
                for (word, [even, odd]) in self.0.iter_mut().zip(values.as_chunks::<2>().0) {
                    *word = u32::from(to_bf16(*even)) | u32::from(to_bf16(*odd)) << 16;
                }
            }
            Format::I8 => unreachable!("integers are multiplied and nothing else"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bfloat16_rounds_to_nearest_ties_to_even() {
        for bits in (0..=u32::MAX).step_by(65_521) {
            let value = f32::from_bits(bits);
            if value.is_finite() {
                assert_eq!(to_bf16(value), half::bf16::from_f32(value).to_bits(), "{value}");
            }
        }
        assert_eq!(from_bf16(to_bf16(1.0 + 1.0 / 256.0)), 1.0);
        assert_eq!(from_bf16(to_bf16(1.0 + 3.0 / 256.0)), 1.0 + 4.0 / 256.0);
    }

    #[test]
    fn what_is_not_finite_stays_so() {
        for value in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::from_bits(0x7F80_0001)] {
            assert!(!from_bf16(to_bf16(value)).is_finite(), "{value}");
        }
    }

    #[test]
    fn a_channel_is_read_as_it_was_set_and_its_neighbours_stay() {
        for format in [Format::F32, Format::Bf16] {
            let mut line = Line::default();
            for index in 0..format.per_line() {
                line.set(format, index, index as f32 - 7.5);
            }
            for index in 0..format.per_line() {
                assert_eq!(line.get(format, index), index as f32 - 7.5);
            }
        }
    }
}
