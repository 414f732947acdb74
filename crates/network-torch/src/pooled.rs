//! Pooled heads on the features of cells, for training and for evaluation, as defined in
//! [`Layers`](::network::Layers).

use ::network::mean_scale;
use tch::{Kind, Tensor};

use crate::{Error, layers::Affine};

/// Cell dimension of `[B, H · W, C]`.
const CELLS: i64 = 1;

/// Returns means and maxima `[B, C]` over the cells of features `[B, H · W, C]`.
pub(crate) fn means_and_maxima(cells: &Tensor) -> Result<[Tensor; 2], Error> {
    Ok([cells.f_mean_dim(&[CELLS][..], false, None::<Kind>)?, cells.f_amax(&[CELLS][..], false)?])
}

/// Returns P(h) `[B, 3C]` for cell features h `[B, H · W, C]`.
pub(crate) fn pool(cells: &Tensor) -> Result<Tensor, Error> {
    let (_, number, _) = cells.size3()?;
    let [means, maxima] = means_and_maxima(cells)?;
    let scale = mean_scale(usize::try_from(number).expect("sizes are not negative"));
    Ok(Tensor::f_cat(&[&means, &means.f_mul_scalar(scale)?, &maxima], 1)?)
}

/// Returns the logits `[B, H · W · k]` of the cells' actions: a matrix `[k, C]` applied to each cell's features
/// `[B, H · W, C]`.
pub(crate) fn of_cells(matrix: &Affine, cells: &Tensor) -> Result<Tensor, Error> {
    Ok(matrix.linear(cells)?.f_flatten(1, 2)?)
}
