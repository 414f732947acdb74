use super::Normed;
use crate::vector::{Task, Vector};

/// NaN stays NaN, so that a step that is not finite is detected.
#[inline(always)]
pub(super) fn relu(value: f32) -> f32 {
    if value <= 0.0 { 0.0 } else { value }
}

/// The gradient before a ReLU with output `y`.
#[inline(always)]
pub(super) fn passed(gradient: f32, y: f32) -> f32 {
    if y <= 0.0 { 0.0 } else { gradient }
}

/// `y = relu(n + skip)`.
pub(super) struct Forward<'a> {
    pub(super) normed: Normed<'a>,
    pub(super) skip: Option<&'a [f32]>,
    pub(super) y: &'a mut [f32],
}

impl Task for Forward<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { normed, skip, y } = self;
        let channels = normed.channels();
        let (slope, constant) = (&normed.norm.slope[..channels], &normed.norm.constant[..channels]);
        let rows = normed.z.chunks_exact(channels).zip(y.chunks_exact_mut(channels));
        match skip {
            Some(skip) => {
                for ((z, y), skip) in rows.zip(skip.chunks_exact(channels)) {
                    for c in 0..channels {
                        y[c] = relu(slope[c] * z[c] + constant[c] + skip[c]);
                    }
                }
            }
            None => {
                for (z, y) in rows {
                    for c in 0..channels {
                        y[c] = relu(slope[c] * z[c] + constant[c]);
                    }
                }
            }
        }
    }
}

/// Adds the gradient of a second use of y to its gradient, and zeroes it where y is zero.
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
