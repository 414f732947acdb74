//! Arrays as `bytes`, from which the package makes NumPy arrays. A failed allocation is a `MemoryError`.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Returns bytes `[rows, len]`; `write` fills each row, zeros before, without the interpreter lock.
pub(crate) fn bytes<'py>(
    py: Python<'py>,
    rows: usize,
    len: usize,
    write: impl Fn(usize, &mut [u8]) + Sync,
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, rows * len, |bytes| {
        py.detach(|| bytes.chunks_exact_mut(len).enumerate().for_each(|(index, row)| write(index, row)));
        Ok(())
    })
}

/// Returns float32 `[rows, len]`; `write` fills each row, without the interpreter lock.
pub(crate) fn floats<'py>(
    py: Python<'py>,
    rows: usize,
    len: usize,
    write: impl Fn(usize, &mut [f32]) + Sync,
) -> PyResult<Bound<'py, PyBytes>> {
    bytes(py, rows, len * size_of::<f32>(), |index, row| {
        let mut values = vec![0.0_f32; len];
        write(index, &mut values);
        let (row, _) = row.as_chunks_mut::<4>();
        row.iter_mut().zip(values).for_each(|(bytes, value)| *bytes = value.to_ne_bytes());
    })
}
