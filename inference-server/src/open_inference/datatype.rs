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

    /// What the protocol calls it.
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
    /// The range is one of the elements that there are: whoever calls has counted them.
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
mod tests;
