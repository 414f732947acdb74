//! Layer norm (Ba et al. 2016) of rows `[N, units]`, followed by an optional skip connection and ReLU.

use network::NORM_EPSILON;

use crate::norm::GradientSums;
use crate::vector::{Task, Vector};

/// Partial sums of a row that are accumulated side by side.
const LANES: usize = 16;

/// Writes `y = γ (z − μ) / σ + β`, or `relu(y + skip)` if it rectifies.
pub(crate) struct Forward<'a> {
    /// `[N, units]`.
    pub(crate) z: &'a [f32],
    /// γ, `[units]`.
    pub(crate) scale: &'a [f32],
    /// β, `[units]`.
    pub(crate) shift: &'a [f32],
    /// `[N, units]`.
    pub(crate) skip: Option<&'a [f32]>,
    pub(crate) rectifies: bool,
    /// `[N, 2]`: μ and 1 / σ.
    pub(crate) moments: &'a mut [f32],
    /// `[N, units]`.
    pub(crate) y: &'a mut [f32],
}

impl Task for Forward<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { z, scale, shift, skip, rectifies, moments, y } = self;
        let units = scale.len();
        let (shift, moments) = (&shift[..units], moments.as_chunks_mut::<2>().0);
        let rows = z.chunks_exact(units).zip(y.chunks_exact_mut(units)).zip(moments);
        for (row, ((z, y), moments)) in rows.enumerate() {
            let mean = sum(units, |unit| z[unit]) / units as f32;
            let squares = sum(units, |unit| (z[unit] - mean) * (z[unit] - mean));
            let inverse = (f64::from(squares) / units as f64 + NORM_EPSILON).sqrt().recip() as f32;
            *moments = [mean, inverse];
            for unit in 0..units {
                y[unit] = (z[unit] - mean) * inverse * scale[unit] + shift[unit];
            }
            if let Some(skip) = skip {
                y.iter_mut().zip(&skip[row * units..]).for_each(|(y, skip)| *y += skip);
            }
            if rectifies {
                y.iter_mut().for_each(|y| *y = if *y <= 0.0 { 0.0 } else { *y });
            }
        }
    }
}

/// Writes the gradient of z from the gradient of the output before the skip connection and ReLU, and returns the sums
/// for the gradients of β and γ.
///
/// With ẑ the normalised z and g the output gradient: `∂z = (gγ − mean of gγ − ẑ · mean of gγẑ) / σ`.
pub(crate) struct Backward<'a> {
    /// `[N, units]`.
    pub(crate) z: &'a [f32],
    /// γ, `[units]`.
    pub(crate) scale: &'a [f32],
    /// `[N, 2]`: μ and 1 / σ.
    pub(crate) moments: &'a [f32],
    /// `[N, units]`.
    pub(crate) gradient: &'a [f32],
    /// `[N, units]`.
    pub(crate) of_z: &'a mut [f32],
}

impl Task for Backward<'_> {
    type Output = GradientSums;

    #[inline(always)]
    unsafe fn run<V: Vector>(self) -> GradientSums {
        let Self { z, scale, moments, gradient, of_z } = self;
        let units = scale.len();
        let mut sums = GradientSums { shift: vec![0.0; units], scale: vec![0.0; units] };
        let (of_shift, of_scale) = (&mut sums.shift[..units], &mut sums.scale[..units]);
        let rows = z.chunks_exact(units).zip(gradient.chunks_exact(units)).zip(of_z.chunks_exact_mut(units));
        for (((z, gradient), of_z), &[mean, inverse]) in rows.zip(moments.as_chunks::<2>().0) {
            for unit in 0..units {
                let normalised = (z[unit] - mean) * inverse;
                of_shift[unit] += gradient[unit];
                of_scale[unit] += gradient[unit] * normalised;
            }
            let share = inverse / units as f32;
            let sum_of = sum(units, |unit| gradient[unit] * scale[unit]);
            let sum_by = sum(units, |unit| gradient[unit] * scale[unit] * (z[unit] - mean)) * inverse;
            for unit in 0..units {
                let normalised = (z[unit] - mean) * inverse;
                of_z[unit] = gradient[unit] * scale[unit] * inverse - (sum_of + normalised * sum_by) * share;
            }
        }
        sums
    }
}

/// Returns the sum of `term` over the units of a row.
#[inline(always)]
fn sum(units: usize, term: impl Fn(usize) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let whole = units / LANES * LANES;
    for first in (0..whole).step_by(LANES) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += term(first + lane);
        }
    }
    (whole..units).fold(lanes.iter().sum(), |sum: f32, unit| sum + term(unit))
}
