//! Dirichlet and Gumbel noise at the root of an exploring search.

use rand::Rng;
use rand_distr::{Distribution, Gamma, Gumbel};

use crate::settings::Dirichlet;

/// Mixes Dirichlet noise into `priors`: `(1 − f) · P + f · Dir(total / legal)`, where `legal` is the number of priors.
///
/// The sum of the priors stays 1. With a fraction of zero, no random numbers are drawn.
pub(crate) fn add_dirichlet(priors: &mut [f32], settings: Dirichlet, scratch: &mut Vec<f32>, rng: &mut impl Rng) {
    if settings.fraction <= 0.0 || settings.total_concentration <= 0.0 {
        return;
    }
    let alpha = f64::from(settings.total_concentration) / priors.len() as f64;
    let Ok(gamma) = Gamma::new(alpha, 1.0) else { return };
    scratch.clear();
    scratch.extend(priors.iter().map(|_| gamma.sample(rng) as f32));
    let total: f64 = scratch.iter().map(|&draw| f64::from(draw)).sum();
    // With a very small concentration, every sample can round to zero.
    let (scale, floor) = if total > 0.0 { (1.0 / total, 0.0) } else { (0.0, 1.0 / priors.len() as f64) };
    for (prior, &draw) in priors.iter_mut().zip(scratch.iter()) {
        let share = (f64::from(draw) * scale + floor) as f32;
        *prior = (1.0 - settings.fraction) * *prior + settings.fraction * share;
    }
}

/// Replaces `noise` with `len` samples from the standard Gumbel distribution.
pub(crate) fn draw_gumbel(noise: &mut Vec<f32>, len: usize, rng: &mut impl Rng) {
    let standard = Gumbel::new(0.0, 1.0).expect("the standard Gumbel distribution exists");
    noise.clear();
    noise.extend((0..len).map(|_| {
        let draw: f64 = standard.sample(rng);
        draw as f32
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::toy::Silent;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn noisy(priors: &[f32], total_concentration: f32, fraction: f32, seed: u64) -> Vec<f32> {
        let mut noisy = priors.to_vec();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        add_dirichlet(&mut noisy, Dirichlet { total_concentration, fraction }, &mut Vec::new(), &mut rng);
        noisy
    }

    #[test]
    fn noisy_priors_sum_to_one() {
        for seed in 0..100 {
            for legal in [1, 2, 7, 82, 362] {
                let noisy = noisy(&vec![1.0 / legal as f32; legal], 10.83, 0.25, seed);
                assert!((noisy.iter().sum::<f32>() - 1.0).abs() < 1e-4);
                assert!(noisy.iter().all(|prior| prior.is_finite() && *prior >= 0.0));
            }
        }
    }

    #[test]
    fn a_prior_keeps_its_share() {
        for seed in 0..100 {
            let noisy = noisy(&[0.9, 0.1, 0.0], 10.83, 0.25, seed);
            assert!(noisy[0] >= 0.75 * 0.9 && noisy[1] >= 0.75 * 0.1);
        }
    }

    /// The variance of one coordinate of Dir(α, …, α) over K is `(K − 1) / (K² (Kα + 1))`.
    #[test]
    fn the_concentration_is_shared_among_the_legal_actions() {
        let (legal, draws) = (7_usize, 20_000_u64);
        let squares = |seed| {
            let first = f64::from(noisy(&vec![0.0; legal], 10.83, 1.0, seed)[0]);
            (first - 1.0 / legal as f64).powi(2)
        };
        let variance = (0..draws).map(squares).sum::<f64>() / draws as f64;
        let expected = 6.0 / (49.0 * (10.83 + 1.0));
        // The standard error of a variance from 20 000 samples is about 1.5 % here; the tolerance is five standard
        // errors.
        assert!((variance / expected - 1.0).abs() < 0.075, "{variance} against {expected}");
    }

    #[test]
    fn draws_that_all_vanish_leave_a_distribution() {
        for seed in 0..20 {
            let noisy = noisy(&[0.5, 0.5], 1e-30, 0.25, seed);
            assert!((noisy.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{noisy:?}");
        }
    }

    #[test]
    fn a_noise_fraction_of_zero_draws_no_random_number() {
        let mut priors = [0.5, 0.5];
        let dirichlet = Dirichlet { total_concentration: 10.83, fraction: 0.0 };
        add_dirichlet(&mut priors, dirichlet, &mut Vec::new(), &mut Silent);
        assert_eq!(priors, [0.5, 0.5]);
    }

    /// The standard Gumbel distribution has mean γ and variance π²/6.
    #[test]
    fn gumbel_noise_is_standard() {
        let mut noise = Vec::new();
        draw_gumbel(&mut noise, 50_000, &mut ChaCha8Rng::seed_from_u64(1));
        let mean = noise.iter().map(|&g| f64::from(g)).sum::<f64>() / 50_000.0;
        let variance = noise.iter().map(|&g| (f64::from(g) - mean).powi(2)).sum::<f64>() / 50_000.0;
        // The tolerances are five standard errors: 1.28/√50000 for the mean, about 1.2 % for the variance.
        assert!((mean - 0.5772).abs() < 0.03 && (variance - 1.6449).abs() < 0.1, "{mean} {variance}");
    }
}
