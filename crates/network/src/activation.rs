//! Activation functions: by definition in float64, and in float32 for the loops of kernels.
//!
//! A loop over [`Function`] is generic, so that the compiler vectorises it with the instructions of the surrounding
//! code; [`with_function!`](crate::with_function) chooses the function outside the loop. The exponential is a
//! polynomial for the same reason: the library function would need a call per number.

use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};

use weights::Activation;

/// Coefficient of x³ in the tanh form of GELU.
pub const GELU_CUBE: f64 = 0.044_715;
/// 2 √(2 / π): `(1 + tanh(a)) / 2 = sigmoid(2a)`.
pub const GELU_SCALE: f64 = SQRT_2 * FRAC_2_SQRT_PI;

/// Returns the value of an activation, by definition.
#[must_use]
pub fn value(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Relu => x.max(0.0),
        Activation::Mish => x * softplus(x).tanh(),
        Activation::Silu => x * sigmoid(x),
        Activation::Gelu => x * sigmoid(gelu_logit(x)),
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Returns ln(1 + eˣ).
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn gelu_logit(x: f64) -> f64 {
    GELU_SCALE * (x + GELU_CUBE * x * x * x)
}

/// An activation in float32. NaN stays NaN, so that a training step or an evaluation that is not finite is detected.
///
/// Every function is inlined and has no branch.
pub trait Function: Copy {
    /// Returns the value at `x`.
    fn value(self, x: f32) -> f32;

    /// Returns the gradient of `x` from the gradient of the value `y`.
    fn passed(self, gradient: f32, x: f32, y: f32) -> f32;
}

/// Evaluates an expression with `$function` as the [`Function`] of an activation.
#[macro_export]
macro_rules! with_function {
    ($activation:expr, $function:ident => $body:expr) => {
        match $activation {
            $crate::Activation::Relu => {
                let $function = $crate::activation::Relu;
                $body
            }
            $crate::Activation::Mish => {
                let $function = $crate::activation::Mish;
                $body
            }
            $crate::Activation::Silu => {
                let $function = $crate::activation::Silu;
                $body
            }
            $crate::Activation::Gelu => {
                let $function = $crate::activation::Gelu;
                $body
            }
        }
    };
}

/// [`Activation::Relu`].
#[derive(Debug, Clone, Copy)]
pub struct Relu;
/// [`Activation::Mish`].
#[derive(Debug, Clone, Copy)]
pub struct Mish;
/// [`Activation::Silu`].
#[derive(Debug, Clone, Copy)]
pub struct Silu;
/// [`Activation::Gelu`].
#[derive(Debug, Clone, Copy)]
pub struct Gelu;

impl Function for Relu {
    #[inline(always)]
    fn value(self, x: f32) -> f32 {
        if x <= 0.0 { 0.0 } else { x }
    }

    #[inline(always)]
    fn passed(self, gradient: f32, _x: f32, y: f32) -> f32 {
        if y <= 0.0 { 0.0 } else { gradient }
    }
}

/// With w = eˣ and n = w (w + 2): `tanh(ln(1 + w)) = n / (n + 2)`.
impl Function for Mish {
    #[inline(always)]
    fn value(self, x: f32) -> f32 {
        let n = mish_ratio(x);
        x * (n / (n + 2.0))
    }

    #[inline(always)]
    fn passed(self, gradient: f32, x: f32, _y: f32) -> f32 {
        let w = exp(below(x, MISH_LINEAR_FROM));
        let n = w * (w + 2.0);
        let inverse = 1.0 / (n + 2.0);
        gradient * (n + x * (4.0 * w * (w + 1.0) * inverse)) * inverse
    }
}

/// From this x on tanh rounds to 1, while squares of exponentials are still finite.
const MISH_LINEAR_FROM: f32 = 20.0;

#[inline(always)]
fn mish_ratio(x: f32) -> f32 {
    let w = exp(below(x, MISH_LINEAR_FROM));
    w * (w + 2.0)
}

impl Function for Silu {
    #[inline(always)]
    fn value(self, x: f32) -> f32 {
        x * logistic(x)
    }

    #[inline(always)]
    fn passed(self, gradient: f32, x: f32, _y: f32) -> f32 {
        let share = logistic(x);
        gradient * (share * (1.0 + x * (1.0 - share)))
    }
}

impl Function for Gelu {
    #[inline(always)]
    fn value(self, x: f32) -> f32 {
        x * logistic(narrow_gelu_logit(x))
    }

    #[inline(always)]
    fn passed(self, gradient: f32, x: f32, _y: f32) -> f32 {
        let x = below(-below(-x, GELU_BOUND), GELU_BOUND);
        let share = logistic(narrow_gelu_logit(x));
        let slope = GELU_SCALE as f32 * (1.0 + 3.0 * GELU_CUBE as f32 * x * x);
        gradient * (share + x * share * (1.0 - share) * slope)
    }
}

/// Beyond this distance from 0 the derivative of GELU is 0 or 1; within it all terms are finite.
const GELU_BOUND: f32 = 16.0;

#[inline(always)]
fn narrow_gelu_logit(x: f32) -> f32 {
    GELU_SCALE as f32 * (x + GELU_CUBE as f32 * x * x * x)
}

/// Returns sigmoid(x).
#[inline(always)]
fn logistic(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Returns the smaller number; NaN stays NaN.
#[inline(always)]
fn below(x: f32, bound: f32) -> f32 {
    if x >= bound { bound } else { x }
}

/// Returns eˣ with a relative error below 2e-7 for x from −87 to 88; x is clamped to this range.
///
/// With n the integer nearest to x / ln 2, `eˣ = 2ⁿ e^(x − n ln 2)`. The second factor is a polynomial (Cephes,
/// Moshier 1984), the first an exponent.
#[inline(always)]
#[must_use]
pub fn exp(x: f32) -> f32 {
    /// Adding this leaves the nearest integer of a small number in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts; the first has few digits, so that products with integers are exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    let x = below(-below(-x, 87.0), 88.0);
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = (x - n * LN_2[0]) - n * LN_2[1];
    let mut sum = 1.987_569_1e-4;
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        sum = sum * r + coefficient;
    }
    let power = f32::from_bits(rounded.to_bits().wrapping_add(127) << 23);
    (sum * r * r + r + 1.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of every magnitude, including the ends of ranges.
    fn numbers() -> impl Iterator<Item = f32> {
        let fine = (-40_000..=40_000).map(|index| index as f32 * 7.3e-4);
        fine.chain([0.0, -0.0, 1e-30, -1e-30, 19.99, 20.01, 88.0, 100.0, 1e4, -87.0, -88.0, -100.0, -1e4, 1e9, -1e9])
    }

    /// Returns the derivative of an activation, by definition; for ReLU 0 at 0.
    fn derivative(activation: Activation, x: f64) -> f64 {
        match activation {
            Activation::Relu => f64::from(u8::from(x > 0.0)),
            Activation::Mish => {
                let tanh = softplus(x).tanh();
                tanh + x * (1.0 - tanh * tanh) * sigmoid(x)
            }
            Activation::Silu => sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x))),
            Activation::Gelu => {
                let share = sigmoid(gelu_logit(x));
                share + x * share * (1.0 - share) * GELU_SCALE * (1.0 + 3.0 * GELU_CUBE * x * x)
            }
        }
    }

    #[test]
    fn functions_in_float32_agree_with_their_definitions() {
        for activation in Activation::ALL {
            with_function!(activation, f => for x in numbers() {
                let y = f.value(x);
                let expected = value(activation, f64::from(x));
                let scale = f64::from(x).abs().max(1e-3);
                assert!((f64::from(y) - expected).abs() <= 1e-6 * scale, "{activation}({x}) is {y}, not {expected}");
                let slope = f.passed(1.0, x, y);
                let expected = derivative(activation, f64::from(x));
                assert!((f64::from(slope) - expected).abs() <= 3e-6, "{activation}'({x}) is {slope}, not {expected}");
            });
        }
    }

    #[test]
    fn a_derivative_is_the_slope_of_its_function() {
        for activation in Activation::ALL {
            for x in (-60..=60).map(|index| f64::from(index) * 0.1 + 0.05) {
                let step = 1e-6;
                let slope = (value(activation, x + step) - value(activation, x - step)) / (2.0 * step);
                let got = derivative(activation, x);
                assert!((got - slope).abs() < 1e-8, "{activation}'({x}) is {got}, the slope {slope}");
            }
        }
    }

    #[test]
    fn functions_are_zero_at_zero_and_nan_of_nan() {
        for activation in Activation::ALL {
            with_function!(activation, f => {
                assert_eq!(f.value(0.0), 0.0, "{activation}");
                assert!(f.value(f32::NAN).is_nan(), "{activation}");
                assert!(f.passed(f32::NAN, 1.0, 1.0).is_nan(), "{activation}");
                assert!(f.value(f32::INFINITY).is_infinite(), "{activation}");
            });
        }
    }

    #[test]
    fn the_exponential_is_accurate_over_its_whole_range() {
        for x in (-86_999..=87_999).map(|index| index as f32 * 1e-3) {
            let (got, expected) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((got - expected).abs() <= 2e-7 * expected, "exp({x}) is {got}, not {expected}");
        }
        assert!(exp(f32::NAN).is_nan() && exp(f32::INFINITY).is_finite() && exp(f32::NEG_INFINITY) > 0.0);
    }
}
