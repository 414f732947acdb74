use std::ops::Range;

use training::Observations;

/// A range of adjacent channels within cells `[cells, channels]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// First channel of the range.
    pub(crate) first: usize,
    /// Channels per cell.
    pub(crate) channels: usize,
}

/// Writes the observation numbers `planes`, `[C, cells]`, as `[cells, C]` at `place` within cells.
pub(crate) fn observe(observations: &Observations, planes: Range<usize>, cells: usize, place: Place, to: &mut [f32]) {
    match observations {
        Observations::Bytes(bytes) => by_cell(&bytes[planes], cells, place, to),
        Observations::Floats(floats) => by_cell(&floats[planes], cells, place, to),
    }
}

/// Writes planes `[C, cells]` as `[cells, C]` at `place` within cells.
pub(crate) fn by_cell<T: Copy + Into<f32>>(planes: &[T], cells: usize, place: Place, to: &mut [f32]) {
    for (plane, values) in planes.chunks_exact(cells).enumerate() {
        for (cell, &value) in values.iter().enumerate() {
            to[cell * place.channels + place.first + plane] = value.into();
        }
    }
}

/// Writes the channels at `place` within cells as planes `[C, cells]`.
pub(crate) fn by_plane(from: &[f32], cells: usize, place: Place, planes: &mut [f32]) {
    for (plane, values) in planes.chunks_exact_mut(cells).enumerate() {
        for (cell, value) in values.iter_mut().enumerate() {
            *value = from[cell * place.channels + place.first + plane];
        }
    }
}
