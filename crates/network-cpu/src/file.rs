use safetensors::{Dtype, SafeTensors};

use crate::Error;

/// A published version being read. Every tensor is taken once; [`finish`](Self::finish) refuses what nobody took.
pub(crate) struct Reader<'a> {
    file: SafeTensors<'a>,
    taken: Vec<String>,
}

impl<'a> Reader<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`Error::Format`].
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let file = SafeTensors::deserialize(bytes).map_err(|error| Error::Format(error.to_string()))?;
        Ok(Self { file, taken: Vec::new() })
    }

    /// The numbers of a float32 tensor, all finite.
    ///
    /// # Errors
    /// A tensor that is not there, not of that shape, or holds a number that is not finite.
    pub(crate) fn take(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Error> {
        let name = name.to_owned();
        let Ok(view) = self.file.tensor(&name) else { return Err(Error::MissingTensor { name }) };
        if view.dtype() != Dtype::F32 || view.shape() != shape {
            let (expected, got) = (format!("F32 {shape:?}"), format!("{:?} {:?}", view.dtype(), view.shape()));
            return Err(Error::Shape { name, expected, got });
        }
        let values: Vec<f32> = view.data().as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        if let Some(&value) = values.iter().find(|value| !value.is_finite()) {
            return Err(Error::BadNumber { name, value });
        }
        self.taken.push(name);
        Ok(values)
    }

    /// Refuses tensors that nobody took.
    ///
    /// # Errors
    /// [`Error::UnexpectedTensor`].
    pub(crate) fn finish(self) -> Result<(), Error> {
        let unexpected = self.file.names().into_iter().filter(|name| !self.taken.iter().any(|taken| taken == name));
        match unexpected.min() {
            Some(name) => Err(Error::UnexpectedTensor { name: name.to_owned() }),
            None => Ok(()),
        }
    }
}
