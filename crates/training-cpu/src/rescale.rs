//! Rescaling of latent states to `[0, 1]`, each over all numbers of the state.

use crate::vector::{Task, Vector};

/// Added to the range of a state, so that a constant state gives zeros.
const RANGE_EPSILON: f32 = 1e-5;

/// Writes `y = (x − min) / (max − min + ε)` for each position.
pub(crate) struct Forward<'a> {
    /// Numbers per position.
    pub(crate) position: usize,
    pub(crate) x: &'a [f32],
    pub(crate) y: &'a mut [f32],
}

impl Task for Forward<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { position, x, y } = self;
        for (x, y) in x.chunks_exact(position).zip(y.chunks_exact_mut(position)) {
            let [least, most] = extremes(x);
            let inverse = 1.0 / (most - least + RANGE_EPSILON);
            // NaN or an infinity gives NaN.
            y.iter_mut().zip(x).for_each(|(y, x)| *y = (x - least) * inverse);
        }
    }
}

/// Writes the gradient of x. Equal extremes share the gradient, as in libtorch.
///
/// With g the gradient of y and r the range: `∂x = g / r`. In addition the minimum gets `(Σ g y − Σ g) / r`, and the
/// maximum `−Σ g y / r`, each split evenly among equal numbers.
pub(crate) struct Backward<'a> {
    /// Numbers per position.
    pub(crate) position: usize,
    pub(crate) x: &'a [f32],
    pub(crate) y: &'a [f32],
    pub(crate) of_y: &'a [f32],
    pub(crate) of_x: &'a mut [f32],
}

impl Task for Backward<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { position, x, y, of_y, of_x } = self;
        let rows = x.chunks_exact(position).zip(y.chunks_exact(position));
        let gradients = of_y.chunks_exact(position).zip(of_x.chunks_exact_mut(position));
        for ((x, y), (of_y, of_x)) in rows.zip(gradients) {
            let [least, most] = extremes(x);
            let inverse = 1.0 / (most - least + RANGE_EPSILON);
            let (mut sum, mut by_y) = (0.0_f64, 0.0_f64);
            let (mut count_least, mut count_most) = (0_u32, 0_u32);
            for ((x, y), of_y) in x.iter().zip(y).zip(of_y) {
                sum += f64::from(*of_y);
                by_y += f64::from(of_y * y);
                count_least += u32::from(*x == least);
                count_most += u32::from(*x == most);
            }
            let of_least = ((by_y - sum) / f64::from(count_least.max(1))) as f32;
            let of_most = (by_y / f64::from(count_most.max(1))) as f32;
            for ((x, of_y), of_x) in x.iter().zip(of_y).zip(of_x) {
                let at_least = if *x == least { of_least } else { 0.0 };
                let at_most = if *x == most { of_most } else { 0.0 };
                *of_x = (of_y + at_least - at_most) * inverse;
            }
        }
    }
}

/// Returns the minimum and the maximum.
#[inline(always)]
fn extremes(x: &[f32]) -> [f32; 2] {
    let (mut least, mut most) = ([f32::INFINITY; 16], [f32::NEG_INFINITY; 16]);
    let (rows, rest) = x.as_chunks::<16>();
    for row in rows {
        for lane in 0..16 {
            least[lane] = if row[lane] < least[lane] { row[lane] } else { least[lane] };
            most[lane] = if row[lane] > most[lane] { row[lane] } else { most[lane] };
        }
    }
    let fold = |lanes: [f32; 16], choose: fn(f32, f32) -> f32| lanes.iter().chain(rest).copied().reduce(choose);
    [fold(least, f32::min).unwrap_or(0.0), fold(most, f32::max).unwrap_or(0.0)]
}
