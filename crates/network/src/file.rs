use std::collections::HashMap;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::{Error, Role, Tensor};

/// An entry of a safetensors file, ready to be written.
#[derive(Debug)]
pub struct Entry {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Entry {
    /// Creates the entry of a tensor, named `prefix` followed by the tensor name.
    ///
    /// # Panics
    /// If `values` does not hold exactly one number per element of the shape.
    #[must_use]
    pub fn tensor(prefix: &str, tensor: &Tensor, values: &[f32]) -> Self {
        assert_eq!(values.len(), tensor.numel(), "values of `{}`", tensor.name);
        Self {
            name: format!("{prefix}{}", tensor.name),
            dtype: Dtype::F32,
            shape: tensor.shape.clone(),
            bytes: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        }
    }

    /// Creates the entry of an integer that is not a weight, such as a step count.
    #[must_use]
    pub fn count(name: &str, value: u64) -> Self {
        Self { name: name.to_owned(), dtype: Dtype::U64, shape: vec![1], bytes: value.to_le_bytes().to_vec() }
    }

    /// Creates the entry of a number that is not a weight, such as the progress of a run.
    #[must_use]
    pub fn real(name: &str, value: f64) -> Self {
        Self { name: name.to_owned(), dtype: Dtype::F64, shape: vec![1], bytes: value.to_le_bytes().to_vec() }
    }
}

/// Serialises entries into the bytes of a file; the same entries always give the same bytes.
///
/// # Errors
/// [`Error::Format`] if two entries have the same name.
pub fn write(entries: impl IntoIterator<Item = Entry>) -> Result<Vec<u8>, Error> {
    write_with(&entries.into_iter().collect::<Vec<_>>(), None)
}

/// Serialises entries and the texts of the metadata, by name.
fn write_with(entries: &[Entry], notes: Option<HashMap<String, String>>) -> Result<Vec<u8>, Error> {
    let mut views = Vec::with_capacity(entries.len());
    for entry in entries {
        let view = TensorView::new(entry.dtype, entry.shape.clone(), &entry.bytes).map_err(format_error)?;
        views.push((entry.name.as_str(), view));
    }
    safetensors::serialize(views, notes).map_err(format_error)
}

/// Returns the text `name` in the metadata of a file; `None` if the file has no such text.
///
/// # Errors
/// [`Error::Format`] if the bytes are not a safetensors file.
pub fn note(bytes: &[u8], name: &str) -> Result<Option<String>, Error> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(format_error)?;
    Ok(header.metadata().as_ref().and_then(|notes| notes.get(name)).cloned())
}

/// Returns a file with bfloat16 in place of float32, each number rounded to the nearest one, ties to even. The file has
/// half the size and the same metadata.
///
/// # Errors
/// [`Error::Format`] if the bytes are not a safetensors file, [`Error::BadNumber`] for a number without a finite
/// neighbour in bfloat16.
pub fn in_bfloat16(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let file = SafeTensors::deserialize(bytes).map_err(format_error)?;
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(format_error)?;
    let mut entries = Vec::new();
    for (name, view) in file.iter() {
        let (name, shape, bytes) = (name.to_owned(), view.shape().to_vec(), view.data());
        entries.push(match view.dtype() {
            Dtype::F32 => {
                let values = bytes.as_chunks().0.iter().map(|&chunk| f32::from_le_bytes(chunk));
                let rounded = values.map(|value| {
                    let bits = rounded_to_bfloat16(value);
                    bits.map(u16::to_le_bytes).ok_or_else(|| Error::BadNumber { name: name.clone(), value })
                });
                let bytes = rounded.collect::<Result<Vec<[u8; 2]>, Error>>()?.concat();
                Entry { name, dtype: Dtype::BF16, shape, bytes }
            }
            dtype => Entry { name, dtype, shape, bytes: bytes.to_vec() },
        });
    }
    write_with(&entries, header.metadata().clone())
}

/// Returns the upper half of the nearest float32 number with a lower half of zeros; `None` unless both are finite.
fn rounded_to_bfloat16(value: f32) -> Option<u16> {
    // Without this check, the bits of a NaN could carry into the sign, and become a zero.
    let bits = value.is_finite().then_some(value.to_bits())?;
    // Half of the last place that stays, less one where that place is even.
    let rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    f32::from_bits(rounded << 16).is_finite().then_some(rounded as u16)
}

/// Reader of a safetensors file. Each entry is taken once, and [`finish`](Self::finish) rejects a file with entries
/// that were not taken.
#[derive(Debug)]
pub struct Reader<'a> {
    file: SafeTensors<'a>,
    taken: Vec<String>,
}

impl<'a> Reader<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`Error::Format`] if the bytes are not a safetensors file.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        Ok(Self { file: SafeTensors::deserialize(bytes).map_err(format_error)?, taken: Vec::new() })
    }

    /// Returns the values of a tensor in float32 or bfloat16, from the entry named `prefix` followed by the tensor
    /// name; all are finite, and variances are not negative.
    ///
    /// # Errors
    /// Names the tensor that is missing, has another shape or type, or holds a bad number.
    pub fn tensor(&mut self, prefix: &str, tensor: &Tensor) -> Result<Vec<f32>, Error> {
        let name = format!("{prefix}{}", tensor.name);
        let (dtype, bytes) = self.take(&name, &[Dtype::F32, Dtype::BF16], &tensor.shape)?;
        let values: Vec<f32> = match dtype {
            Dtype::BF16 => bytes.as_chunks().0.iter().map(|&chunk| from_bfloat16(u16::from_le_bytes(chunk))).collect(),
            _ => bytes.as_chunks().0.iter().map(|&chunk| f32::from_le_bytes(chunk)).collect(),
        };
        let is_bad = |value: &&f32| !value.is_finite() || (tensor.role == Role::NormVariance && **value < 0.0);
        match values.iter().find(is_bad) {
            Some(&value) => Err(Error::BadNumber { name, value }),
            None => Ok(values),
        }
    }

    /// Returns whether the file has an entry of this name.
    #[must_use]
    pub fn holds(&self, name: &str) -> bool {
        self.file.tensor(name).is_ok()
    }

    /// Returns an integer that is not a weight.
    ///
    /// # Errors
    /// Names the entry if it is missing or of another type.
    pub fn count(&mut self, name: &str) -> Result<u64, Error> {
        self.take(name, &[Dtype::U64], &[1]).map(|(_, bytes)| u64::from_le_bytes(bytes.as_chunks().0[0]))
    }

    /// Returns a number that is not a weight.
    ///
    /// # Errors
    /// Names the entry if it is missing or of another type.
    pub fn real(&mut self, name: &str) -> Result<f64, Error> {
        self.take(name, &[Dtype::F64], &[1]).map(|(_, bytes)| f64::from_le_bytes(bytes.as_chunks().0[0]))
    }

    /// Rejects a file with entries that were not taken.
    ///
    /// # Errors
    /// [`Error::UnexpectedTensor`] names the first such entry.
    pub fn finish(self) -> Result<(), Error> {
        let unexpected = self.file.names().into_iter().filter(|name| !self.taken.iter().any(|taken| taken == name));
        match unexpected.min() {
            Some(name) => Err(Error::UnexpectedTensor { name: name.to_owned() }),
            None => Ok(()),
        }
    }

    /// Returns the element type and the bytes of an entry with one of these types. The length matches `shape`: the
    /// format itself checks it against shape and type.
    fn take(&mut self, name: &str, dtypes: &[Dtype], shape: &[usize]) -> Result<(Dtype, &'a [u8]), Error> {
        let view = self.file.tensor(name).map_err(|_| Error::MissingTensor { name: name.to_owned() })?;
        if !dtypes.contains(&view.dtype()) || view.shape() != shape {
            let expected: Vec<String> = dtypes.iter().map(|dtype| format!("{dtype:?}")).collect();
            return Err(Error::Shape {
                name: name.to_owned(),
                expected: format!("{} {shape:?}", expected.join(" or ")),
                got: format!("{:?} {:?}", view.dtype(), view.shape()),
            });
        }
        self.taken.push(name.to_owned());
        Ok((view.dtype(), view.data()))
    }
}

/// Converts a bfloat16 number, which is the upper half of a float32 number.
fn from_bfloat16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

fn format_error(error: safetensors::SafeTensorError) -> Error {
    Error::Format(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file with the tensor `a` of the shape `[2, 2]`.
    fn file(dtype: Dtype, bytes: &[u8]) -> Vec<u8> {
        safetensors::serialize([("a", TensorView::new(dtype, vec![2, 2], bytes).unwrap())], None).unwrap()
    }

    fn read(bytes: &[u8], role: Role) -> Result<Vec<f32>, Error> {
        let mut reader = Reader::new(bytes)?;
        let values = reader.tensor("", &Tensor { name: "a".to_owned(), shape: vec![2, 2], role })?;
        reader.finish().map(|()| values)
    }

    #[test]
    fn bfloat16_is_read_as_the_float32_numbers_that_it_stands_for() {
        // Sign, 8 bits of the exponent with the bias 127, and 7 bits of the fraction.
        let bits: [u16; 4] = [0x3f80, 0xc049, 0x0001, 0x7f7f];
        let explicit = |bits: u16| {
            let (exponent, fraction) = (i32::from(bits >> 7 & 0xff), f64::from(bits & 0x7f) / 128.0);
            let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
            let value =
                if exponent == 0 { fraction * 2_f64.powi(-126) } else { (1.0 + fraction) * 2_f64.powi(exponent - 127) };
            (sign * value) as f32
        };
        let bytes = bits.map(u16::to_le_bytes).concat();
        let values = read(&file(Dtype::BF16, &bytes), Role::Linear).unwrap();
        assert_eq!(values, bits.map(explicit));
        assert_eq!(values[..2], [1.0, -3.140_625]);
    }

    #[test]
    fn numbers_in_bfloat16_are_checked_like_numbers_in_float32() {
        for (bits, role) in [(0x7fc0, Role::Linear), (0x7f80, Role::Linear), (0xbf80, Role::NormVariance)] {
            let bytes = [0x3f80, bits, 0, 0].map(u16::to_le_bytes).concat();
            let error = read(&file(Dtype::BF16, &bytes), role).unwrap_err();
            assert!(matches!(error, Error::BadNumber { .. }), "{error}");
        }
    }

    #[test]
    fn numbers_are_rounded_to_the_nearest_ones_in_bfloat16_and_metadata_stay() {
        for (bits, rounded) in
            [(0x3f80_8000, 0x3f80), (0x3f81_8000, 0x3f82), (0x3f80_8001, 0x3f81), (0xff7f_0000, 0xff7f)]
        {
            assert_eq!(rounded_to_bfloat16(f32::from_bits(bits)), Some(rounded), "{bits:x}");
        }
        let of = |value: f32| {
            let bytes = [value, 1.0, -0.0, 0.5].map(f32::to_le_bytes).concat();
            let view = TensorView::new(Dtype::F32, vec![2, 2], &bytes).unwrap();
            let notes = HashMap::from([("training_step".to_owned(), "40".to_owned())]);
            in_bfloat16(&safetensors::serialize([("a", view)], Some(notes)).unwrap())
        };
        let file = of(-2.0).unwrap();
        assert_eq!(read(&file, Role::Linear).unwrap(), [-2.0, 1.0, -0.0, 0.5]);
        assert_eq!(note(&file, "training_step").unwrap().as_deref(), Some("40"));
        for bad in [f32::MAX, f32::NEG_INFINITY, f32::NAN, -f32::NAN, f32::from_bits(0x7fff_ffff)] {
            assert!(matches!(of(bad), Err(Error::BadNumber { .. })), "{bad}");
        }
    }

    #[test]
    fn another_number_format_is_refused_by_its_name() {
        let error = read(&file(Dtype::F16, &[0; 8]), Role::Linear).unwrap_err().to_string();
        assert_eq!(error, "tensor `a` is F16 [2, 2], expected F32 or BF16 [2, 2]");
    }
}
