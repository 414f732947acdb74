//! Flat buffers to safetensors and back. What is read is checked: names, shapes, element type, finite numbers.

use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::{
    Error,
    layout::{Entry, Form},
};

/// A named piece of a safetensors file, ready to be written.
pub(crate) struct Piece {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Piece {
    /// One number that is not a weight, such as a step count.
    pub(crate) fn count(name: &str, value: u64) -> Self {
        Self { name: name.to_owned(), dtype: Dtype::U64, shape: vec![1], bytes: value.to_le_bytes().to_vec() }
    }

    /// One number that is not a weight, such as the progress of a run.
    pub(crate) fn real(name: &str, value: f64) -> Self {
        Self { name: name.to_owned(), dtype: Dtype::F64, shape: vec![1], bytes: value.to_le_bytes().to_vec() }
    }
}

/// The tensors that `entries` place in `flat`, with `prefix` before each name, in the order everyone else uses.
pub(crate) fn pieces<'a>(prefix: &str, entries: &'a [Entry], flat: &'a [f32]) -> impl Iterator<Item = Piece> + 'a {
    let prefix = prefix.to_owned();
    entries.iter().map(move |entry| {
        let values = to_public(entry, &flat[entry.offset..][..entry.len]);
        Piece {
            name: format!("{prefix}{}", entry.name),
            dtype: Dtype::F32,
            shape: entry.shape.iter().map(|&n| usize::try_from(n).expect("dimensions were checked")).collect(),
            bytes: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        }
    })
}

/// The file: the same pieces always give the same bytes.
pub(crate) fn write(pieces: impl IntoIterator<Item = Piece>) -> Result<Vec<u8>, Error> {
    let pieces: Vec<Piece> = pieces.into_iter().collect();
    let mut views = Vec::with_capacity(pieces.len());
    for piece in &pieces {
        let view = TensorView::new(piece.dtype, piece.shape.clone(), &piece.bytes).map_err(format_error)?;
        views.push((piece.name.as_str(), view));
    }
    safetensors::serialize(views, None).map_err(format_error)
}

/// A file being read. Every tensor is taken once; [`finish`](Self::finish) refuses what nobody took.
pub(crate) struct Reader<'a> {
    file: SafeTensors<'a>,
    taken: Vec<String>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        Ok(Self { file: SafeTensors::deserialize(bytes).map_err(format_error)?, taken: Vec::new() })
    }

    /// The flat buffer of `entries`, each found under `prefix` and its name.
    pub(crate) fn flat(&mut self, prefix: &str, entries: &[Entry]) -> Result<Vec<f32>, Error> {
        // Grows with what is in the file: an architecture may ask for more than any machine has.
        let mut flat = Vec::new();
        for entry in entries {
            let name = format!("{prefix}{}", entry.name);
            let shape: Vec<usize> =
                entry.shape.iter().map(|&n| usize::try_from(n).expect("dimensions were checked")).collect();
            let bytes = self.take(&name, Dtype::F32, &shape)?;
            let values: Vec<f32> = bytes.as_chunks().0.iter().map(|&chunk| f32::from_le_bytes(chunk)).collect();
            let bad = |value: &&f32| !value.is_finite() || (entry.form == Form::Variance && **value < 0.0);
            if let Some(&value) = values.iter().find(bad) {
                return Err(Error::BadNumber { name, value });
            }
            flat.extend(to_flat(entry, &values));
        }
        Ok(flat)
    }

    pub(crate) fn count(&mut self, name: &str) -> Result<u64, Error> {
        self.take(name, Dtype::U64, &[1]).map(|bytes| u64::from_le_bytes(bytes.as_chunks().0[0]))
    }

    pub(crate) fn real(&mut self, name: &str) -> Result<f64, Error> {
        self.take(name, Dtype::F64, &[1]).map(|bytes| f64::from_le_bytes(bytes.as_chunks().0[0]))
    }

    pub(crate) fn finish(self) -> Result<(), Error> {
        let unexpected = self.file.names().into_iter().filter(|name| !self.taken.iter().any(|taken| taken == name));
        match unexpected.min() {
            Some(name) => Err(Error::UnexpectedTensor { name: name.to_owned() }),
            None => Ok(()),
        }
    }

    /// The bytes of a tensor, as many as `shape` asks for: the format itself ties length to shape and type.
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

/// `[out, height, width, in]` to `[out, in, height, width]` for convolutions; a copy for everything else.
fn to_public(entry: &Entry, flat: &[f32]) -> Vec<f32> {
    match convolution(entry) {
        Some((inputs, taps)) => transpose_each(flat, taps, inputs),
        None => flat.to_vec(),
    }
}

fn to_flat(entry: &Entry, public: &[f32]) -> Vec<f32> {
    match convolution(entry) {
        Some((inputs, taps)) => transpose_each(public, inputs, taps),
        None => public.to_vec(),
    }
}

/// Input channels and taps of a convolution.
fn convolution(entry: &Entry) -> Option<(usize, usize)> {
    (entry.form == Form::Convolution).then(|| {
        let outputs = usize::try_from(entry.shape[0]).expect("dimensions were checked");
        let inputs = usize::try_from(entry.shape[1]).expect("dimensions were checked");
        (inputs, entry.len / (outputs * inputs))
    })
}

/// Transposes every `[rows, columns]` matrix of `values` to `[columns, rows]`.
pub(crate) fn transpose_each(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut transposed = Vec::with_capacity(values.len());
    for matrix in values.chunks_exact(rows * columns) {
        for column in 0..columns {
            transposed.extend((0..rows).map(|row| matrix[row * columns + column]));
        }
    }
    transposed
}

/// Observations `[B, C, cells]` as `[B, cells, C]`, replacing what `to`, which is as long, held.
pub(crate) fn channels_last(observations: &[f32], planes: usize, cells: usize, to: &mut [f32]) {
    for (from, to) in observations.chunks_exact(planes * cells).zip(to.chunks_exact_mut(planes * cells)) {
        for (plane, values) in from.chunks_exact(cells).enumerate() {
            for (cell, &value) in values.iter().enumerate() {
                to[cell * planes + plane] = value;
            }
        }
    }
}
