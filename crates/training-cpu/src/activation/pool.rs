use network::activation::Function;

use super::Normed;
use crate::vector::{Task, Vector};

/// Writes `y[:G] = f(n[:G])` and squeezes it to `[mean, max]` over the cells, `[B, 2G]`.
pub(super) struct Squeeze<'a, F> {
    pub(super) function: F,
    pub(super) normed: Normed<'a>,
    pub(super) squeezed: &'a mut [f32],
    pub(super) y: &'a mut [f32],
}

impl<F: Function> Task for Squeeze<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { function, normed, squeezed, y } = self;
        let (channels, position) = (normed.channels(), normed.position());
        let pooled = squeezed.len() / (normed.z.len() / position) / 2;
        let (slope, constant) = (&normed.norm.slope, &normed.norm.constant);
        let positions = normed.z.chunks_exact(position).zip(y.chunks_exact_mut(position));
        for ((z, y), squeezed) in positions.zip(squeezed.chunks_exact_mut(2 * pooled)) {
            let (mean, max) = squeezed.split_at_mut(pooled);
            mean.fill(0.0);
            max.fill(f32::NEG_INFINITY);
            for (z, y) in z.chunks_exact(channels).zip(y.chunks_exact_mut(channels)) {
                for c in 0..pooled {
                    y[c] = function.value(slope[c] * z[c] + constant[c]);
                    mean[c] += y[c];
                    // NaN stays NaN.
                    max[c] = if y[c] <= max[c] { max[c] } else { y[c] };
                }
            }
            mean.iter_mut().for_each(|mean| *mean /= normed.cells as f32);
        }
    }
}

/// Writes `y[G:] = f(n[G:] + terms)`.
pub(super) struct Forward<'a, F> {
    pub(super) function: F,
    pub(super) normed: Normed<'a>,
    /// `[B, C − G]`.
    pub(super) terms: &'a [f32],
    pub(super) y: &'a mut [f32],
}

impl<F: Function> Task for Forward<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { function, normed, terms, y } = self;
        let (channels, position) = (normed.channels(), normed.position());
        let shifted = terms.len() / (normed.z.len() / position);
        let pooled = channels - shifted;
        let (slope, constant) = (&normed.norm.slope[pooled..], &normed.norm.constant[pooled..]);
        let positions = normed.z.chunks_exact(position).zip(y.chunks_exact_mut(position));
        for ((z, y), terms) in positions.zip(terms.chunks_exact(shifted)) {
            for (z, y) in z.chunks_exact(channels).zip(y.chunks_exact_mut(channels)) {
                let (z, y) = (&z[pooled..], &mut y[pooled..]);
                for c in 0..shifted {
                    y[c] = function.value(slope[c] * z[c] + constant[c] + terms[c]);
                }
            }
        }
    }
}

/// Sums the gradient of `y[G:]` over the cells: `[B, C − G]`.
pub(super) struct SumTerms<'a> {
    pub(super) normed: Normed<'a>,
    pub(super) of_y: &'a [f32],
    pub(super) of_terms: &'a mut [f32],
}

impl Task for SumTerms<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { normed, of_y, of_terms } = self;
        let (channels, position) = (normed.channels(), normed.position());
        let shifted = of_terms.len() / (of_y.len() / position);
        of_terms.fill(0.0);
        for (of_y, of_terms) in of_y.chunks_exact(position).zip(of_terms.chunks_exact_mut(shifted)) {
            for of_y in of_y.chunks_exact(channels) {
                of_terms.iter_mut().zip(&of_y[channels - shifted..]).for_each(|(of_term, of_y)| *of_term += of_y);
            }
        }
    }
}

/// Adds the gradients of means and maxima to the gradient of `y[:G]`. Cells with equal maxima share the gradient, as
/// in libtorch.
pub(super) struct Backward<'a, F> {
    pub(super) function: F,
    pub(super) normed: Normed<'a>,
    /// `[B, 2G]`.
    pub(super) squeezed: &'a [f32],
    /// `[B, 2G]`.
    pub(super) of_squeezed: &'a [f32],
    pub(super) y: &'a [f32],
    pub(super) of_y: &'a mut [f32],
}

impl<F: Function> Task for Backward<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { function, normed, squeezed, of_squeezed, y, of_y } = self;
        let (channels, position) = (normed.channels(), normed.position());
        let features = squeezed.len() / (y.len() / position);
        let pooled = features / 2;
        let (slope, constant) = (&normed.norm.slope, &normed.norm.constant);
        let values = normed.z.chunks_exact(position).zip(y.chunks_exact(position));
        let positions = values.zip(of_y.chunks_exact_mut(position));
        let features = squeezed.chunks_exact(features).zip(of_squeezed.chunks_exact(features));
        let mut of_max = vec![0.0; pooled];
        for (((z, y), of_y), (squeezed, of_squeezed)) in positions.zip(features) {
            let max = &squeezed[pooled..];
            for (c, of_max) in of_max.iter_mut().enumerate() {
                let shares = y.chunks_exact(channels).filter(|y| y[c] == max[c]).count();
                *of_max = of_squeezed[pooled + c] / shares.max(1) as f32;
            }
            for ((z, y), of_y) in
                z.chunks_exact(channels).zip(y.chunks_exact(channels)).zip(of_y.chunks_exact_mut(channels))
            {
                for c in 0..pooled {
                    let of_max = if y[c] == max[c] { of_max[c] } else { 0.0 };
                    let of_feature = of_squeezed[c] / normed.cells as f32 + of_max;
                    of_y[c] += function.passed(of_feature, slope[c] * z[c] + constant[c], y[c]);
                }
            }
        }
    }
}
