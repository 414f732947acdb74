//! Flat buffers to the entries of a file and back.

use network::{Entry as FileEntry, Reader, Role};

use crate::{Error, layout::Entry};

/// The tensors that `entries` place in `flat`, with `prefix` before each name.
pub(crate) fn file_entries<'a>(
    prefix: &'a str,
    entries: &'a [Entry],
    flat: &'a [f32],
) -> impl Iterator<Item = FileEntry> + 'a {
    entries.iter().map(move |entry| FileEntry::tensor(prefix, &entry.tensor, &to_public(entry, &flat[entry.range()])))
}

/// The flat buffer of `entries`, each found under `prefix` and its name.
pub(crate) fn flat(reader: &mut Reader<'_>, prefix: &str, entries: &[Entry]) -> Result<Vec<f32>, Error> {
    // Grows with what is in the file: an architecture may need more than any machine has.
    let mut flat = Vec::new();
    for entry in entries {
        flat.extend(to_flat(entry, &reader.tensor(prefix, &entry.tensor)?));
    }
    Ok(flat)
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
    let [outputs, inputs, ..] = entry.tensor.shape[..] else { return None };
    (entry.tensor.role == Role::Convolution).then(|| (inputs, entry.len / (outputs * inputs)))
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
