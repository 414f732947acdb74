//! What pooled heads compute of the features of the cells, for training and for evaluation. The formulas are those of
//! [`Layers`](::network::Layers).

use ::network::mean_scale;
use tch::{Kind, Tensor};

use crate::{Error, layers::Affine};

/// The dimension of the cells in `[B, H · W, C]`.
const CELLS: i64 = 1;

/// The means and the maxima `[B, C]` of features `[B, H · W, C]` over the cells.
pub(crate) fn means_and_maxima(cells: &Tensor) -> Result<[Tensor; 2], Error> {
    Ok([cells.f_mean_dim(&[CELLS][..], false, None::<Kind>)?, cells.f_amax(&[CELLS][..], false)?])
}

/// P(h) `[B, 3C]` of the features h of the cells, `[B, H · W, C]`.
pub(crate) fn pool(cells: &Tensor) -> Result<Tensor, Error> {
    let (_, number, _) = cells.size3()?;
    let [means, maxima] = means_and_maxima(cells)?;
    let scale = mean_scale(usize::try_from(number).expect("sizes are not negative"));
    Ok(Tensor::f_cat(&[&means, &means.f_mul_scalar(scale)?, &maxima], 1)?)
}

/// The logits `[B, H · W · k]` of the actions of cells, by a matrix `[k, C]` of the features of each cell,
/// `[B, H · W, C]`.
pub(crate) fn of_cells(matrix: &Affine, cells: &Tensor) -> Result<Tensor, Error> {
    Ok(matrix.linear(cells)?.f_flatten(1, 2)?)
}
