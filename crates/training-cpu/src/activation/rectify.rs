use network::activation::Function;

use super::{Normed, Shifts};
use crate::vector::{Task, Vector};

/// ReLU that passes NaN on, so that a step that is not finite is detected.
#[inline(always)]
pub(super) fn relu(value: f32) -> f32 {
    if value <= 0.0 { 0.0 } else { value }
}

/// Returns the gradient before a ReLU with output `y`.
#[inline(always)]
pub(super) fn passed(gradient: f32, y: f32) -> f32 {
    if y <= 0.0 { 0.0 } else { gradient }
}

/// Writes `y = f(n + skip)`.
pub(super) struct Forward<'a, F> {
    pub(super) function: F,
    pub(super) normed: Normed<'a>,
    pub(super) skip: Option<&'a [f32]>,
    pub(super) y: &'a mut [f32],
}

impl<F: Function> Task for Forward<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { function, normed, skip, y } = self;
        let channels = normed.channels();
        let (slope, constant) = (&normed.norm.slope[..channels], &normed.norm.constant[..channels]);
        let rows = normed.z.chunks_exact(channels).zip(y.chunks_exact_mut(channels));
        match skip {
            Some(skip) => {
                for ((z, y), skip) in rows.zip(skip.chunks_exact(channels)) {
                    for c in 0..channels {
                        y[c] = function.value(slope[c] * z[c] + constant[c] + skip[c]);
                    }
                }
            }
            None => {
                for (z, y) in rows {
                    for c in 0..channels {
                        y[c] = function.value(slope[c] * z[c] + constant[c]);
                    }
                }
            }
        }
    }
}

/// Adds the gradient of a second use of y, and zeroes the sum where y is zero.
pub(crate) struct Rectify<'a> {
    pub(crate) besides: Option<&'a [f32]>,
    pub(crate) y: &'a [f32],
    pub(crate) of_y: &'a mut [f32],
}

impl Task for Rectify<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { besides, y, of_y } = self;
        match besides {
            Some(besides) => {
                for ((of_y, besides), y) in of_y.iter_mut().zip(besides).zip(y) {
                    *of_y = passed(*of_y + besides, *y);
                }
            }
            None => of_y.iter_mut().zip(y).for_each(|(of_y, y)| *of_y = passed(*of_y, *y)),
        }
    }
}

/// Adds the gradient for a second use of y, and multiplies the sum by the slope of f at `n + skip`, where [`Shifts`]
/// have transformed n.
pub(super) struct Differentiate<'a, F> {
    pub(super) function: F,
    pub(super) normed: Normed<'a>,
    pub(super) shifts: Shifts<'a>,
    pub(super) skip: Option<&'a [f32]>,
    pub(super) besides: Option<&'a [f32]>,
    pub(super) y: &'a [f32],
    pub(super) of_y: &'a mut [f32],
}

impl<F: Function> Task for Differentiate<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { function, normed, shifts, skip, besides, y, of_y } = self;
        if let Some(besides) = besides {
            of_y.iter_mut().zip(besides).for_each(|(of_y, besides)| *of_y += besides);
        }
        let (channels, position) = (normed.channels(), normed.position());
        let mut line = vec![[0.0; 2]; channels];
        for (index, of_y) in of_y.chunks_exact_mut(position).enumerate() {
            shifts.line(normed, index, &mut line);
            let here = index * position..(index + 1) * position;
            let rows = normed.z[here.clone()].chunks_exact(channels).zip(y[here.clone()].chunks_exact(channels));
            for (cell, ((z, y), of_y)) in rows.zip(of_y.chunks_exact_mut(channels)).enumerate() {
                match skip.map(|skip| &skip[here.clone()][cell * channels..][..channels]) {
                    Some(skip) => {
                        for c in 0..channels {
                            of_y[c] = function.passed(of_y[c], line[c][0] * z[c] + line[c][1] + skip[c], y[c]);
                        }
                    }
                    None => {
                        for c in 0..channels {
                            of_y[c] = function.passed(of_y[c], line[c][0] * z[c] + line[c][1], y[c]);
                        }
                    }
                }
            }
        }
    }
}
