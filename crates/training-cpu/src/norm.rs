use network::NORM_EPSILON;

use crate::Path;
use crate::vector::{Task, Vector};

/// Share of the latest batch in the running statistics.
const MOMENTUM: f32 = 0.1;

/// Means and squared distances over a range of activation rows `[N, C]`: one thread's part of the statistics.
#[derive(Debug, Clone, Default)]
pub(crate) struct Moments {
    rows: usize,
    /// `[C]`.
    mean: Vec<f32>,
    /// `[C]`: sums of squared distances from the mean.
    squares: Vec<f32>,
}

/// Batch norm in training, `γ · (z − μ) / σ + β` with mean and standard deviation of each channel over the batch
/// (Ioffe and Szegedy 2015), as a line `slope · z + constant` per channel. All fields are `[C]`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Norm {
    rows: usize,
    pub(crate) mean: Vec<f32>,
    /// Biased: divided by the number of rows.
    variance: Vec<f32>,
    /// `1 / √(variance + ε)`.
    inverse: Vec<f32>,
    pub(crate) slope: Vec<f32>,
    pub(crate) constant: Vec<f32>,
}

/// Sums over a range of rows for the gradients of a batch norm, with g the output gradient; `[C]` each.
#[derive(Debug, Clone, Default)]
pub(crate) struct GradientSums {
    /// `Σ g`.
    pub(crate) shift: Vec<f32>,
    /// `Σ g (z − μ)`.
    pub(crate) scale: Vec<f32>,
}

/// Input gradient of a batch norm as a function of g and z in each channel: `slope · g + of_z · z + constant`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Combination {
    pub(crate) slope: Vec<f32>,
    pub(crate) of_z: Vec<f32>,
    pub(crate) constant: Vec<f32>,
}

impl Moments {
    /// Computes the moments of `z` `[N, C]`.
    pub(crate) fn of(path: Path, z: &[f32], channels: usize) -> Self {
        let rows = z.len() / channels;
        let mut mean = vec![0.0; channels];
        path.run(AddRows { rows: z, to: &mut mean });
        mean.iter_mut().for_each(|mean| *mean /= rows as f32);
        let mut squares = vec![0.0; channels];
        path.run(AddSquares { rows: z, mean: &mean, to: &mut squares });
        Self { rows, mean, squares }
    }

    /// Returns whether all moments differ by less than `tolerance`, relative to the standard deviation.
    #[cfg(test)]
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn is_close_to(&self, other: &Self, tolerance: f32) -> bool {
        let pairs = self.mean.iter().zip(&other.mean).zip(self.squares.iter().zip(&other.squares));
        self.rows == other.rows
            && pairs.into_iter().all(|((mean, of_other), (squares, other_squares))| {
                let deviation = (other_squares / self.rows as f32).sqrt();
                (mean - of_other).abs() <= tolerance * deviation
                    && (squares - other_squares).abs() <= tolerance * other_squares
            })
    }

    /// Computes the moments of `rows` rows from the sums and the sums of squares, `[C]` each.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn of_sums(rows: usize, sums: &[f32], squares: &[f32]) -> Self {
        let mean = |sum: &f32| f64::from(*sum) / rows as f64;
        // NaN stays NaN.
        let about_mean = |(sum, square): (&f32, &f32)| {
            let distance = f64::from(*square) - f64::from(*sum) * mean(sum);
            if distance < 0.0 { 0.0 } else { distance as f32 }
        };
        Self {
            rows,
            mean: sums.iter().map(|sum| mean(sum) as f32).collect(),
            squares: sums.iter().zip(squares).map(about_mean).collect(),
        }
    }
}

impl Norm {
    /// Returns the identity, for use after another norm.
    pub(crate) fn identity(channels: usize) -> Self {
        let zeros = vec![0.0; channels];
        Self { mean: zeros.clone(), constant: zeros, slope: vec![1.0; channels], ..Self::default() }
    }

    /// Returns the norm of a batch with these `parts`, with scale γ and shift β, `[C]`.
    pub(crate) fn new(parts: &[Moments], scale: &[f32], shift: &[f32]) -> Self {
        let rows: usize = parts.iter().map(|part| part.rows).sum();
        let mean = |channel: usize| {
            let sum: f64 = parts.iter().map(|part| part.rows as f64 * f64::from(part.mean[channel])).sum();
            sum / rows as f64
        };
        let variance = |channel: usize| {
            let mean = mean(channel);
            let squares = parts.iter().map(|part| {
                let distance = f64::from(part.mean[channel]) - mean;
                f64::from(part.squares[channel]) + part.rows as f64 * distance * distance
            });
            squares.sum::<f64>() / rows as f64
        };
        let channels = 0..scale.len();
        let means: Vec<f64> = channels.clone().map(mean).collect();
        let variances: Vec<f64> = channels.clone().map(variance).collect();
        let inverse: Vec<f64> = variances.iter().map(|variance| 1.0 / (variance + NORM_EPSILON).sqrt()).collect();
        let slope = channels.clone().map(|c| (f64::from(scale[c]) * inverse[c]) as f32).collect();
        let constant = channels.map(|c| (f64::from(shift[c]) - means[c] * f64::from(scale[c]) * inverse[c]) as f32);
        let narrow = |numbers: &[f64]| numbers.iter().map(|&number| number as f32).collect();
        Self {
            rows,
            constant: constant.collect(),
            mean: narrow(&means),
            variance: narrow(&variances),
            inverse: narrow(&inverse),
            slope,
        }
    }

    /// Moves running statistics towards the batch statistics, with the unbiased variance, as libtorch does.
    pub(crate) fn update(&self, mean: &mut [f32], variance: &mut [f32]) {
        let correction = self.rows as f32 / self.rows.saturating_sub(1).max(1) as f32;
        for (running, newest) in mean.iter_mut().zip(&self.mean) {
            *running = MOMENTUM * newest + (1.0 - MOMENTUM) * *running;
        }
        for (running, newest) in variance.iter_mut().zip(&self.variance) {
            *running = MOMENTUM * newest * correction + (1.0 - MOMENTUM) * *running;
        }
    }

    /// Returns the input gradient from the sums of all parts; adds the gradients of scale and shift, `[C]`.
    ///
    /// With ẑ the normalised z: `∂β = Σ g`, `∂γ = Σ g ẑ`, `∂z = γ / σ · (g − ∂β / N − ẑ ∂γ / N)`.
    pub(crate) fn combination(
        &self,
        parts: &[GradientSums],
        of_scale: &mut [f32],
        of_shift: &mut [f32],
    ) -> Combination {
        let mut combination = Combination { slope: self.slope.clone(), ..Combination::default() };
        for c in 0..self.mean.len() {
            let sum = |values: fn(&GradientSums) -> &[f32]| -> f64 {
                parts.iter().map(|part| f64::from(values(part)[c])).sum()
            };
            let [slope, inverse, rows] = [f64::from(self.slope[c]), f64::from(self.inverse[c]), self.rows as f64];
            let shift = sum(|part| &part.shift);
            let scale = sum(|part| &part.scale) * inverse;
            of_shift[c] += shift as f32;
            of_scale[c] += scale as f32;
            let of_z = -slope * inverse * scale / rows;
            combination.of_z.push(of_z as f32);
            combination.constant.push((-slope * shift / rows - of_z * f64::from(self.mean[c])) as f32);
        }
        combination
    }
}

impl Combination {
    /// Writes the gradient of z `[N, C]` from the output gradient `[N, C]`.
    pub(crate) fn apply(&self, path: Path, gradient: &[f32], z: &[f32], of_z: &mut [f32]) {
        path.run(Combine { combination: self, gradient, z, of_z });
    }
}

/// Adds every row `[C]` of `rows` to `to`.
struct AddRows<'a> {
    rows: &'a [f32],
    to: &'a mut [f32],
}

impl Task for AddRows<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        for row in self.rows.chunks_exact(self.to.len()) {
            self.to.iter_mut().zip(row).for_each(|(to, value)| *to += value);
        }
    }
}

/// Adds the squared distances of every row `[C]` from `mean` to `to`.
struct AddSquares<'a> {
    rows: &'a [f32],
    mean: &'a [f32],
    to: &'a mut [f32],
}

impl Task for AddSquares<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        for row in self.rows.chunks_exact(self.to.len()) {
            for ((to, value), mean) in self.to.iter_mut().zip(row).zip(self.mean) {
                *to += (value - mean) * (value - mean);
            }
        }
    }
}

struct Combine<'a> {
    combination: &'a Combination,
    gradient: &'a [f32],
    z: &'a [f32],
    of_z: &'a mut [f32],
}

impl Task for Combine<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { combination: Combination { slope, of_z: by_z, constant }, gradient, z, of_z } = self;
        let channels = slope.len();
        let (by_z, constant) = (&by_z[..channels], &constant[..channels]);
        let rows = gradient.chunks_exact(channels).zip(z.chunks_exact(channels));
        for ((gradient, z), of_z) in rows.zip(of_z.chunks_exact_mut(channels)) {
            for c in 0..channels {
                of_z[c] = slope[c] * gradient[c] + by_z[c] * z[c] + constant[c];
            }
        }
    }
}

impl GradientSums {
    /// Returns sums of 0.
    pub(crate) fn zeros(channels: usize) -> Self {
        Self { shift: vec![0.0; channels], scale: vec![0.0; channels] }
    }

    /// Adds the sums over `gradient` and `z`, `[N, C]` each, for a norm with this mean.
    pub(crate) fn add(&mut self, path: Path, gradient: &[f32], z: &[f32], mean: &[f32]) {
        path.run(Sums { gradient, z, mean, sums: self });
    }
}

struct Sums<'a> {
    gradient: &'a [f32],
    z: &'a [f32],
    mean: &'a [f32],
    sums: &'a mut GradientSums,
}

impl Task for Sums<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { gradient, z, mean, sums } = self;
        let channels = mean.len();
        let (shift, scale) = (&mut sums.shift[..channels], &mut sums.scale[..channels]);
        for (gradient, z) in gradient.chunks_exact(channels).zip(z.chunks_exact(channels)) {
            for c in 0..channels {
                shift[c] += gradient[c];
                scale[c] += gradient[c] * (z[c] - mean[c]);
            }
        }
    }
}
