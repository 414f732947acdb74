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
    let entries: Vec<Entry> = entries.into_iter().collect();
    let mut views = Vec::with_capacity(entries.len());
    for entry in &entries {
        let view = TensorView::new(entry.dtype, entry.shape.clone(), &entry.bytes).map_err(format_error)?;
        views.push((entry.name.as_str(), view));
    }
    safetensors::serialize(views, None).map_err(format_error)
}

/// Returns the text `name` in the metadata of a file; `None` if the file has no such text.
///
/// # Errors
/// [`Error::Format`] if the bytes are not a safetensors file.
pub fn note(bytes: &[u8], name: &str) -> Result<Option<String>, Error> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(format_error)?;
    Ok(header.metadata().as_ref().and_then(|notes| notes.get(name)).cloned())
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

    /// Returns the values of a tensor, from the entry named `prefix` followed by the tensor name; all are finite, and
    /// variances are not negative.
    ///
    /// # Errors
    /// Names the tensor that is missing, has another shape or type, or holds a bad number.
    pub fn tensor(&mut self, prefix: &str, tensor: &Tensor) -> Result<Vec<f32>, Error> {
        let name = format!("{prefix}{}", tensor.name);
        let bytes = self.take(&name, Dtype::F32, &tensor.shape)?;
        let values: Vec<f32> = bytes.as_chunks().0.iter().map(|&chunk| f32::from_le_bytes(chunk)).collect();
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
        self.take(name, Dtype::U64, &[1]).map(|bytes| u64::from_le_bytes(bytes.as_chunks().0[0]))
    }

    /// Returns a number that is not a weight.
    ///
    /// # Errors
    /// Names the entry if it is missing or of another type.
    pub fn real(&mut self, name: &str) -> Result<f64, Error> {
        self.take(name, Dtype::F64, &[1]).map(|bytes| f64::from_le_bytes(bytes.as_chunks().0[0]))
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

    /// Returns the bytes of an entry. The length matches `shape`: the format itself checks it against shape and type.
    fn take(&mut self, name: &str, dtype: Dtype, shape: &[usize]) -> Result<&'a [u8], Error> {
        let view = self.file.tensor(name).map_err(|_| Error::MissingTensor { name: name.to_owned() })?;
        if view.dtype() != dtype || view.shape() != shape {
            return Err(Error::Shape {
                name: name.to_owned(),
                expected: format!("{dtype:?} {shape:?}"),
                got: format!("{:?} {:?}", view.dtype(), view.shape()),
            });
        }
        self.taken.push(name.to_owned());
        Ok(view.data())
    }
}

fn format_error(error: safetensors::SafeTensorError) -> Error {
    Error::Format(error.to_string())
}
