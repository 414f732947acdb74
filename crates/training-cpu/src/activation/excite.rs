use network::activation::Function;

use super::Normed;
use crate::vector::{Task, Vector};

/// Writes the mean of n over the cells, `[B, C]`.
pub(super) struct Squeeze<'a> {
    pub(super) normed: Normed<'a>,
    pub(super) squeezed: &'a mut [f32],
}

impl Task for Squeeze<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { normed, squeezed } = self;
        let channels = normed.channels();
        squeezed.fill(0.0);
        let positions = normed.z.chunks_exact(normed.position());
        for (z, squeezed) in positions.zip(squeezed.chunks_exact_mut(channels)) {
            for z in z.chunks_exact(channels) {
                squeezed.iter_mut().zip(z).for_each(|(sum, z)| *sum += z);
            }
            let line = normed.norm.slope.iter().zip(&normed.norm.constant);
            for (mean, (slope, constant)) in squeezed.iter_mut().zip(line) {
                *mean = slope * *mean / normed.cells as f32 + constant;
            }
        }
    }
}

/// Applies the sigmoid to the first C terms and writes `y = f(terms[:C] · n + terms[C:] + skip)`.
pub(super) struct Forward<'a, F> {
    pub(super) function: F,
    pub(super) normed: Normed<'a>,
    pub(super) skip: Option<&'a [f32]>,
    /// `[B, 2C]`.
    pub(super) terms: &'a mut [f32],
    pub(super) y: &'a mut [f32],
}

impl<F: Function> Task for Forward<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { function, normed, skip, terms, y } = self;
        let (channels, position) = (normed.channels(), normed.position());
        let skip = skip.expect("an excited block has a skip connection");
        let mut line = vec![[0.0; 2]; channels];
        let positions = normed.z.chunks_exact(position).zip(skip.chunks_exact(position));
        let positions = positions.zip(y.chunks_exact_mut(position)).zip(terms.chunks_exact_mut(2 * channels));
        for (((z, skip), y), terms) in positions {
            let (scale, shift) = terms.split_at_mut(channels);
            for c in 0..channels {
                scale[c] = 1.0 / (1.0 + (-scale[c]).exp());
                line[c] = [normed.norm.slope[c] * scale[c], normed.norm.constant[c] * scale[c] + shift[c]];
            }
            let rows = z.chunks_exact(channels).zip(skip.chunks_exact(channels)).zip(y.chunks_exact_mut(channels));
            for ((z, skip), y) in rows {
                for c in 0..channels {
                    y[c] = function.value(line[c][0] * z[c] + line[c][1] + skip[c]);
                }
            }
        }
    }
}

/// Writes the gradient of the terms before the sigmoid, `[B, 2C]`, from the gradient of y before the activation.
pub(super) struct SumTerms<'a> {
    pub(super) normed: Normed<'a>,
    /// `[B, 2C]`; the first half is after the sigmoid.
    pub(super) terms: &'a [f32],
    pub(super) of_y: &'a [f32],
    pub(super) of_terms: &'a mut [f32],
}

impl Task for SumTerms<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { normed, terms, of_y, of_terms } = self;
        let (channels, position) = (normed.channels(), normed.position());
        of_terms.fill(0.0);
        let positions = normed.z.chunks_exact(position).zip(of_y.chunks_exact(position));
        let terms = terms.chunks_exact(2 * channels).zip(of_terms.chunks_exact_mut(2 * channels));
        for ((z, of_y), (terms, of_terms)) in positions.zip(terms) {
            let (of_scale, of_shift) = of_terms.split_at_mut(channels);
            for (z, of_y) in z.chunks_exact(channels).zip(of_y.chunks_exact(channels)) {
                for c in 0..channels {
                    of_scale[c] += of_y[c] * (normed.norm.slope[c] * z[c] + normed.norm.constant[c]);
                    of_shift[c] += of_y[c];
                }
            }
            for c in 0..channels {
                of_scale[c] *= terms[c] * (1.0 - terms[c]);
            }
        }
    }
}

/// Writes the gradient of n: `of_n = of_y · terms[:C] + of_squeezed / cells`.
pub(super) struct Backward<'a> {
    pub(super) normed: Normed<'a>,
    /// `[B, 2C]`; the first half is after the sigmoid.
    pub(super) terms: &'a [f32],
    /// `[B, C]`.
    pub(super) of_squeezed: &'a [f32],
    pub(super) of_y: &'a [f32],
    pub(super) of_n: &'a mut [f32],
}

impl Task for Backward<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { normed, terms, of_squeezed, of_y, of_n } = self;
        let (channels, position) = (normed.channels(), normed.position());
        let positions = of_y.chunks_exact(position).zip(of_n.chunks_exact_mut(position));
        let terms = terms.chunks_exact(2 * channels).zip(of_squeezed.chunks_exact(channels));
        for ((of_y, of_n), (terms, of_squeezed)) in positions.zip(terms) {
            for (of_y, of_n) in of_y.chunks_exact(channels).zip(of_n.chunks_exact_mut(channels)) {
                for c in 0..channels {
                    of_n[c] = of_y[c] * terms[c] + of_squeezed[c] / normed.cells as f32;
                }
            }
        }
    }
}
