use network::activation::Function;

use crate::vector::{Task, Vector};

/// Computes `y = f(x)` elementwise.
pub(crate) struct Apply<'a, F> {
    pub(crate) function: F,
    pub(crate) x: &'a [f32],
    pub(crate) y: &'a mut [f32],
}

impl<F: Function> Task for Apply<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { function, x, y } = self;
        y.iter_mut().zip(x).for_each(|(y, x)| *y = function.value(*x));
    }
}

/// Turns the gradient of y into the gradient of x.
pub(crate) struct OfApply<'a, F> {
    pub(crate) function: F,
    pub(crate) x: &'a [f32],
    pub(crate) y: &'a [f32],
    pub(crate) gradient: &'a mut [f32],
}

impl<F: Function> Task for OfApply<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { function, x, y, gradient } = self;
        for ((gradient, x), y) in gradient.iter_mut().zip(x).zip(y) {
            *gradient = function.passed(*gradient, *x, *y);
        }
    }
}
