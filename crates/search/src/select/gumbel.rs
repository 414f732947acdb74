//! Gumbel below the root: visits follow the improved policy.

use crate::completed_values::{MixedValue, Sigma};
use crate::edges::{Octet, UNAVAILABLE};
use crate::value_range::Rescale;

/// What is the same for all edges of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<R> {
    pub(crate) sigma: Sigma,
    /// The network's value of the node, already rescaled.
    pub(crate) network_value: f32,
    pub(crate) scale: R,
}

/// The available edge whose visit share lags most behind the improved policy,
/// `argmax_a π′(a) − N(a) / (1 + ΣN)` with `π′ = softmax(logits + σ(completed Q))`; ties go to the lowest action.
///
/// Danihelka et al. 2022, section 5. The softmax is taken as `P · exp(σ − max σ)`, which needs no logarithm. Edges that
/// may not be taken have no share.
pub(crate) fn best(octets: &[Octet], terms: Terms<impl Rescale>, scratch: &mut Vec<f32>) -> Option<usize> {
    let values = || octets.iter().flat_map(|octet| octet.value);
    let counts = || octets.iter().flat_map(|octet| octet.count);
    let priors = || octets.iter().flat_map(|octet| octet.prior);
    let mut mixed = MixedValue::default();
    let mut visits_max = 0.0_f32;
    let mut visits = 0.0_f32;
    for ((value, count), prior) in values().zip(counts()).zip(priors()) {
        visits += count;
        visits_max = visits_max.max(count);
        // Neither unvisited (NaN) nor unavailable.
        if value > UNAVAILABLE {
            mixed.add(prior, count, terms.scale.apply(value));
        }
    }
    let unvisited = mixed.mix(terms.network_value);
    let factor = terms.sigma.factor(visits_max);

    scratch.clear();
    let mut greatest = f32::NEG_INFINITY;
    for (value, prior) in values().zip(priors()) {
        let q = if value.is_nan() { unvisited } else { terms.scale.apply(value) };
        let sigma = factor * q;
        if prior > 0.0 {
            greatest = greatest.max(sigma);
        }
        scratch.push(sigma);
    }
    let mut total = 0.0_f32;
    for (share, prior) in scratch.iter_mut().zip(priors()) {
        *share = if prior > 0.0 && *share > UNAVAILABLE { prior * (*share - greatest).exp() } else { 0.0 };
        total += *share;
    }

    let to_policy = if total > 0.0 { 1.0 / total } else { 0.0 };
    let to_share = 1.0 / (1.0 + visits);
    let mut best = None;
    let mut best_score = f32::NEG_INFINITY;
    for (at, ((&share, count), value)) in scratch.iter().zip(counts()).zip(values()).enumerate() {
        let score = share * to_policy - count * to_share;
        if value != UNAVAILABLE && score > best_score {
            best_score = score;
            best = Some(at);
        }
    }
    best
}

#[cfg(test)]
mod tests;
