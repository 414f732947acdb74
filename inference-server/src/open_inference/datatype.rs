//! The elements of a tensor, as the protocol carries them.

use std::ops::Range;

use half::{bf16, f16};

/// A datatype that inputs may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Datatype {
    Fp32,
    Fp16,
    Bf16,
    Uint8,
    Bool,
}

impl Datatype {
    /// The datatype that the protocol calls so.
    pub(super) fn parse(text: &str) -> Option<Self> {
        [Self::Fp32, Self::Fp16, Self::Bf16, Self::Uint8, Self::Bool]
            .into_iter()
            .find(|datatype| datatype.name() == text)
    }

    /// Returns the protocol's name for it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "FP32",
            Self::Fp16 => "FP16",
            Self::Bf16 => "BF16",
            Self::Uint8 => "UINT8",
            Self::Bool => "BOOL",
        }
    }

    /// The bytes of an element in raw contents.
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::Fp32 => 4,
            Self::Fp16 | Self::Bf16 => 2,
            Self::Uint8 | Self::Bool => 1,
        }
    }
}

/// The elements of one tensor, row-major.
#[derive(Debug, Clone, Copy)]
pub(super) enum Elements<'a> {
    /// Little-endian and unpadded.
    Raw(Datatype, &'a [u8]),
    Floats(&'a [f32]),
    /// The list that UINT8 shares with wider types.
    Unsigned(&'a [u32]),
    Flags(&'a [bool]),
}

impl Elements<'_> {
    /// Writes the elements of `range`, as many as `values` has, as numbers.
    ///
    /// The range lies within the elements: the caller has counted them.
    pub(super) fn read(self, range: Range<usize>, values: &mut [f32]) {
        match self {
            Self::Floats(floats) => values.copy_from_slice(&floats[range]),
            Self::Unsigned(numbers) => convert(&numbers[range], values, |&number| number as f32),
            Self::Flags(flags) => convert(&flags[range], values, |&flag| f32::from(u8::from(flag))),
            Self::Raw(datatype, bytes) => {
                let bytes = &bytes[range.start * datatype.bytes()..range.end * datatype.bytes()];
                match datatype {
                    Datatype::Fp32 => convert_raw(bytes, values, f32::from_le_bytes),
                    Datatype::Fp16 => convert_raw(bytes, values, |pair| f16::from_le_bytes(pair).to_f32()),
                    Datatype::Bf16 => convert_raw(bytes, values, |pair| bf16::from_le_bytes(pair).to_f32()),
                    Datatype::Uint8 | Datatype::Bool => convert(bytes, values, |&byte| f32::from(byte)),
                }
            }
        }
    }
}

fn convert<T>(elements: &[T], values: &mut [f32], number: impl Fn(&T) -> f32) {
    for (value, element) in values.iter_mut().zip(elements) {
        *value = number(element);
    }
}

fn convert_raw<const N: usize>(bytes: &[u8], values: &mut [f32], number: impl Fn([u8; N]) -> f32) {
    let (elements, _) = bytes.as_chunks::<N>();
    convert(elements, values, |&element| number(element));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_16_bits_is_read_exactly() {
        for bits in 0..=u16::MAX {
            for (datatype, expected) in [
                (Datatype::Fp16, half::f16::from_bits(bits).to_f32()),
                (Datatype::Bf16, half::bf16::from_bits(bits).to_f32()),
            ] {
                let mut value = [9.0];
                Elements::Raw(datatype, &bits.to_le_bytes()).read(0..1, &mut value);
                let same = value[0].to_bits() == expected.to_bits() || (value[0].is_nan() && expected.is_nan());
                assert!(same, "{} {bits:#06x}: {} is not {expected}", datatype.name(), value[0]);
            }
        }
    }

    #[test]
    fn a_range_is_read_from_every_kind_of_contents() {
        let raw_floats: Vec<u8> = [0.5_f32, 0.25, 1.0, 0.0].into_iter().flat_map(f32::to_le_bytes).collect();
        let raw_halves: Vec<u8> =
            [0.5, 0.25, 1.0, 0.0].map(half::f16::from_f32).into_iter().flat_map(half::f16::to_le_bytes).collect();
        let cases: [(Elements<'_>, [f32; 2]); 6] = [
            (Elements::Raw(Datatype::Fp32, &raw_floats), [0.25, 1.0]),
            (Elements::Raw(Datatype::Fp16, &raw_halves), [0.25, 1.0]),
            (Elements::Raw(Datatype::Uint8, &[7, 0, 200, 1]), [0.0, 200.0]),
            (Elements::Floats(&[0.5, 0.25, 1.0, 0.0]), [0.25, 1.0]),
            (Elements::Unsigned(&[3, 1, 0, 1]), [1.0, 0.0]),
            (Elements::Flags(&[false, true, false, true]), [1.0, 0.0]),
        ];
        for (elements, expected) in cases {
            let mut values = [9.0; 2];
            elements.read(1..3, &mut values);
            assert_eq!(values, expected, "{elements:?}");
        }
    }

    #[test]
    fn a_datatype_is_what_the_protocol_calls_it() {
        for datatype in [Datatype::Fp32, Datatype::Fp16, Datatype::Bf16, Datatype::Uint8, Datatype::Bool] {
            assert_eq!(Datatype::parse(datatype.name()), Some(datatype));
        }
        assert_eq!(Datatype::parse("fp32"), None);
        assert_eq!(Datatype::parse(""), None);
    }
}
