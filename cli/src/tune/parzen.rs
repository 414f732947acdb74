//! The Parzen estimator of TPE (Bergstra et al. 2011, "Algorithms for Hyper-Parameter Optimization"): estimates the
//! density of a coordinate from 0 to 1 from observations.

use rand::{Rng, RngExt};
use rand_distr::StandardNormal;

/// Number of observations from which on the minimum width of kernels stays constant.
const OBSERVATIONS_MAX: usize = 100;
/// Maximum number of draws from a normal distribution for one value in [0, 1]. For any kernel, a draw is in this range
/// with a probability of at least 1/3, so that all draws miss with a probability below 1e-11.
const DRAWS_MAX: usize = 64;

/// A probability density of a coordinate on [0, 1].
#[derive(Debug, Clone)]
pub(super) enum Density {
    /// The density of numbers: a mixture of truncated normal distributions with equal weights.
    Numbers(Vec<Kernel>),
    /// The probability of each choice. Each choice occupies an equal part of [0, 1].
    Choices(Vec<f64>),
}

/// A normal distribution truncated to [0, 1].
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    mean: f64,
    deviation: f64,
}

impl Density {
    /// Estimates the density of numbers. Each observation has a kernel. The width is the larger distance to the two
    /// neighbours (or bounds), but at least 1 / (n + 1) with n + 1 limited to 100, and at most 1. The prior is another
    /// kernel in the middle with a width of 1, which keeps the density well above 0 everywhere.
    pub(super) fn of_numbers(coordinates: impl Iterator<Item = f64>) -> Self {
        let mut means: Vec<f64> = coordinates.collect();
        means.sort_by(f64::total_cmp);
        let narrowest = 1.0 / (means.len() + 1).min(OBSERVATIONS_MAX) as f64;
        let kernel = |index: usize| {
            let mean = means[index];
            let below = if index == 0 { 0.0 } else { means[index - 1] };
            let above = means.get(index + 1).copied().unwrap_or(1.0);
            Kernel { mean, deviation: (mean - below).max(above - mean).clamp(narrowest, 1.0) }
        };
        let prior = Kernel { mean: 0.5, deviation: 1.0 };
        Self::Numbers((0..means.len()).map(kernel).chain([prior]).collect())
    }

    /// Estimates the probabilities of `count` choices from observed choices. The prior adds one observation per choice.
    pub(super) fn of_choices(observed: impl Iterator<Item = usize>, count: usize) -> Self {
        let mut counts = vec![1.0; count];
        observed.for_each(|choice| counts[choice] += 1.0);
        let all: f64 = counts.iter().sum();
        Self::Choices(counts.into_iter().map(|count| count / all).collect())
    }

    /// Returns the density at a coordinate from 0 to 1.
    pub(super) fn at(&self, coordinate: f64) -> f64 {
        match self {
            Self::Numbers(kernels) => {
                kernels.iter().map(|kernel| kernel.at(coordinate)).sum::<f64>() / kernels.len() as f64
            }
            Self::Choices(probabilities) => {
                let choice = (coordinate * probabilities.len() as f64) as usize;
                probabilities[choice.min(probabilities.len() - 1)] * probabilities.len() as f64
            }
        }
    }

    /// Draws a random coordinate from the density. For choices, this is the midpoint of the chosen part.
    pub(super) fn draw(&self, rng: &mut impl Rng) -> f64 {
        match self {
            Self::Numbers(kernels) => kernels[rng.random_range(0..kernels.len())].draw(rng),
            Self::Choices(probabilities) => {
                let mut left: f64 = rng.random();
                let drawn = probabilities.iter().position(|probability| {
                    left -= probability;
                    left < 0.0
                });
                // Rounding may leave the sum of the probabilities slightly below 1.
                let choice = drawn.unwrap_or(probabilities.len() - 1);
                (choice as f64 + 0.5) / probabilities.len() as f64
            }
        }
    }
}

impl Kernel {
    fn at(self, coordinate: f64) -> f64 {
        let from_mean = (coordinate - self.mean) / self.deviation;
        let density = (-0.5 * from_mean * from_mean).exp() / (self.deviation * (2.0 * std::f64::consts::PI).sqrt());
        density / (self.below(1.0) - self.below(0.0))
    }

    /// Returns the cumulative probability of the untruncated normal distribution at a coordinate.
    fn below(self, coordinate: f64) -> f64 {
        0.5 * (1.0 + libm::erf((coordinate - self.mean) / (self.deviation * std::f64::consts::SQRT_2)))
    }

    fn draw(self, rng: &mut impl Rng) -> f64 {
        let draws = (0..DRAWS_MAX).map(|_| self.mean + self.deviation * rng.sample::<f64, _>(StandardNormal));
        draws.into_iter().find(|drawn| (0.0..=1.0).contains(drawn)).unwrap_or(self.mean)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const CELLS: usize = 10_000;

    /// Returns the midpoints of [`CELLS`] equal cells of [0, 1].
    fn middles() -> impl Iterator<Item = f64> {
        (0..CELLS).map(|cell| (cell as f64 + 0.5) / CELLS as f64)
    }

    fn mass(density: &Density) -> f64 {
        middles().map(|coordinate| density.at(coordinate)).sum::<f64>() / CELLS as f64
    }

    /// Compares with the formula in the paper. The kernels are derived by hand, and a sum replaces the error function.
    #[test]
    fn the_density_is_the_mixture_of_normal_distributions_that_are_cut_off_at_the_ends() {
        let density = Density::of_numbers([0.6, 0.1, 0.2].into_iter());
        // Widths: 0.1 has the minimum 1/4, since both distances are 0.1; 0.2 has the distance 0.4 to the neighbour 0.6;
        // 0.6 has the distance 0.4 to the bound 1.
        let kernels = [(0.1, 0.25), (0.2, 0.4), (0.6, 0.4), (0.5, 1.0)];
        let normal =
            |x: f64, (mean, deviation): (f64, f64)| (-(x - mean).powi(2) / (2.0 * deviation * deviation)).exp();
        let inside = kernels.map(|kernel| middles().map(|x| normal(x, kernel)).sum::<f64>() / CELLS as f64);
        for x in [0.0, 0.05, 0.1, 0.33, 0.6, 0.99, 1.0] {
            let direct: f64 = kernels.iter().zip(inside).map(|(&kernel, inside)| normal(x, kernel) / inside).sum();
            let (direct, got) = (direct / 4.0, density.at(x));
            assert!((got - direct).abs() < 1e-6, "at {x}: {got}, not {direct}");
        }
    }

    #[test]
    fn the_mass_of_every_density_is_one() {
        let crowded = (0..300).map(|i| 0.5 + f64::from(i) * 1e-5);
        for density in [
            Density::of_numbers(std::iter::empty()),
            Density::of_numbers([0.0, 1.0, 1.0].into_iter()),
            Density::of_numbers(crowded),
            Density::of_choices([0, 2, 2].into_iter(), 4),
        ] {
            assert!((mass(&density) - 1.0).abs() < 1e-3, "{} of {density:?}", mass(&density));
        }
    }

    #[test]
    fn choices_are_counted_once_more_than_observed() {
        let Density::Choices(probabilities) = Density::of_choices([1, 1, 2].into_iter(), 3) else { unreachable!() };
        assert_eq!(probabilities, [1.0 / 6.0, 3.0 / 6.0, 2.0 / 6.0]);
    }

    /// With 20,000 draws in ten cells, the standard error of a share is below 0.0036. The tolerance of 0.015 is more
    /// than four standard errors.
    #[test]
    fn draws_have_the_density() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        for density in
            [Density::of_numbers([0.02, 0.3, 0.31].into_iter()), Density::of_choices([4, 4, 9].into_iter(), 10)]
        {
            let mut counts = [0_u32; 10];
            for _ in 0..20_000 {
                counts[((density.draw(&mut rng) * 10.0) as usize).min(9)] += 1;
            }
            for (cell, count) in counts.into_iter().enumerate() {
                let within = middles().filter(|x| (x * 10.0) as usize == cell);
                let expected = within.map(|x| density.at(x)).sum::<f64>() / CELLS as f64;
                let share = f64::from(count) / 20_000.0;
                assert!((share - expected).abs() < 0.015, "cell {cell}: {share}, not {expected}");
            }
        }
    }
}
