//! Lists the tensors of the model, and reads elements in the encoding of the protocol.

use std::ops::Range;

use half::{bf16, f16};
use proto::open_inference::v2::DataType;

use crate::engine::Model;

/// The input tensors of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// Observations `[B, C, H, W]`, between 0 and 1.
    Observations,
    /// Legal actions, `[B, A]`. Without this tensor, all actions are legal.
    Legal,
}

impl Input {
    pub(super) const ALL: [Self; 2] = [Self::Observations, Self::Legal];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Observations => "observations",
            Self::Legal => "legal",
        }
    }

    /// Returns the accepted datatypes; metadata lists the first.
    pub(super) const fn datatypes(self) -> &'static [DataType] {
        match self {
            Self::Observations => {
                &[DataType::TypeFp32, DataType::TypeFp16, DataType::TypeBf16, DataType::TypeUint8, DataType::TypeBool]
            }
            Self::Legal => &[DataType::TypeBool],
        }
    }

    /// Returns the tensor shape without the batch dimension.
    pub(super) fn dims(self, model: &Model) -> Vec<i64> {
        match self {
            Self::Observations => [model.shape.planes, model.shape.height, model.shape.width].map(dim).to_vec(),
            Self::Legal => vec![dim(model.actions)],
        }
    }
}

/// The output tensors of a model, all in FP32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// Priors `[B, A]` that sum to one over the legal actions; 0 for all others.
    Priors,
    /// Win, draw and loss probabilities for the player to move, `[B, 3]`.
    Wdl,
    /// Win − loss, in −1 to 1, `[B, 1]`.
    Value,
}

impl Output {
    pub(super) const ALL: [Self; 3] = [Self::Priors, Self::Wdl, Self::Value];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Priors => "priors",
            Self::Wdl => "wdl",
            Self::Value => "value",
        }
    }

    /// Returns the number of elements per position.
    pub(super) fn width(self, actions: usize) -> i64 {
        match self {
            Self::Priors => dim(actions),
            Self::Wdl => 3,
            Self::Value => 1,
        }
    }
}

/// Converts a size to a dimension of a tensor. Networks and boards are far too small to exceed the range of the type.
pub(super) fn dim(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// Returns the name of a datatype in tensors; configurations use a prefix.
pub(super) fn name_of(datatype: DataType) -> &'static str {
    datatype.as_str_name().trim_start_matches("TYPE_")
}

/// Returns the number of bytes per element in raw contents, for input datatypes.
pub(super) const fn bytes_of(datatype: DataType) -> usize {
    match datatype {
        DataType::TypeFp32 => 4,
        DataType::TypeFp16 | DataType::TypeBf16 => 2,
        _ => 1,
    }
}

/// The elements of one tensor, row-major.
#[derive(Debug, Clone, Copy)]
pub(super) enum Elements<'a> {
    /// Raw contents, little-endian and unpadded.
    Raw(DataType, &'a [u8]),
    Floats(&'a [f32]),
    /// The list that UINT8 shares with wider types.
    Unsigned(&'a [u32]),
    Flags(&'a [bool]),
}

impl Elements<'_> {
    /// Converts the elements in `range` to floats; `values` has the same length.
    ///
    /// The caller has checked that the range lies within the elements.
    pub(super) fn read(self, range: Range<usize>, values: &mut [f32]) {
        match self {
            Self::Floats(floats) => values.copy_from_slice(&floats[range]),
            Self::Unsigned(numbers) => convert(&numbers[range], values, |&number| number as f32),
            Self::Flags(flags) => convert(&flags[range], values, |&flag| f32::from(u8::from(flag))),
            Self::Raw(datatype, bytes) => {
                let bytes = &bytes[range.start * bytes_of(datatype)..range.end * bytes_of(datatype)];
                match datatype {
                    DataType::TypeFp32 => convert_raw(bytes, values, f32::from_le_bytes),
                    DataType::TypeFp16 => convert_raw(bytes, values, |pair| f16::from_le_bytes(pair).to_f32()),
                    DataType::TypeBf16 => convert_raw(bytes, values, |pair| bf16::from_le_bytes(pair).to_f32()),
                    _ => convert(bytes, values, |&byte| f32::from(byte)),
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
                (DataType::TypeFp16, half::f16::from_bits(bits).to_f32()),
                (DataType::TypeBf16, half::bf16::from_bits(bits).to_f32()),
            ] {
                let mut value = [9.0];
                Elements::Raw(datatype, &bits.to_le_bytes()).read(0..1, &mut value);
                let same = value[0].to_bits() == expected.to_bits() || (value[0].is_nan() && expected.is_nan());
                assert!(same, "{} {bits:#06x}: {} is not {expected}", name_of(datatype), value[0]);
            }
        }
    }

    #[test]
    fn a_range_is_read_from_every_kind_of_contents() {
        let raw_floats: Vec<u8> = [0.5_f32, 0.25, 1.0, 0.0].into_iter().flat_map(f32::to_le_bytes).collect();
        let raw_halves: Vec<u8> =
            [0.5, 0.25, 1.0, 0.0].map(half::f16::from_f32).into_iter().flat_map(half::f16::to_le_bytes).collect();
        let cases: [(Elements<'_>, [f32; 2]); 6] = [
            (Elements::Raw(DataType::TypeFp32, &raw_floats), [0.25, 1.0]),
            (Elements::Raw(DataType::TypeFp16, &raw_halves), [0.25, 1.0]),
            (Elements::Raw(DataType::TypeUint8, &[7, 0, 200, 1]), [0.0, 200.0]),
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
    fn datatypes_have_the_names_of_the_protocol() {
        let names: Vec<&str> = Input::Observations.datatypes().iter().map(|&datatype| name_of(datatype)).collect();
        assert_eq!(names, ["FP32", "FP16", "BF16", "UINT8", "BOOL"]);
    }
}
