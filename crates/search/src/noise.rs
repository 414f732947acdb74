//! Noise at an explored root.

use rand::Rng;
use rand_distr::{Distribution, Gamma, Gumbel};

use crate::settings::Dirichlet;

/// Mixes Dirichlet noise into `priors`, shaped by their number: `(1 − f) · P + f · Dir(total / legal)`.
///
/// Priors that sum to one still do. A fraction of zero draws nothing.
pub(crate) fn add_dirichlet(priors: &mut [f32], settings: Dirichlet, scratch: &mut Vec<f32>, rng: &mut impl Rng) {
    if settings.fraction <= 0.0 || settings.total_concentration <= 0.0 {
        return;
    }
    let alpha = f64::from(settings.total_concentration) / priors.len() as f64;
    let Ok(gamma) = Gamma::new(alpha, 1.0) else { return };
    scratch.clear();
    scratch.extend(priors.iter().map(|_| gamma.sample(rng) as f32));
    let total: f64 = scratch.iter().map(|&draw| f64::from(draw)).sum();
    // With a tiny concentration every draw can round to zero.
    let (scale, floor) = if total > 0.0 { (1.0 / total, 0.0) } else { (0.0, 1.0 / priors.len() as f64) };
    for (prior, &draw) in priors.iter_mut().zip(scratch.iter()) {
        let share = (f64::from(draw) * scale + floor) as f32;
        *prior = (1.0 - settings.fraction) * *prior + settings.fraction * share;
    }
}

/// Replaces `noise` with `len` draws of the standard Gumbel distribution.
pub(crate) fn draw_gumbel(noise: &mut Vec<f32>, len: usize, rng: &mut impl Rng) {
    let standard = Gumbel::new(0.0, 1.0).expect("the standard Gumbel distribution exists");
    noise.clear();
    noise.extend((0..len).map(|_| {
        let draw: f64 = standard.sample(rng);
        draw as f32
    }));
}

#[cfg(test)]
mod tests;
