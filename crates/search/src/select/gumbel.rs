//! Gumbel below the root: visits follow the improved policy.

use crate::completed_values::{MixedValue, Sigma};
use crate::edges::{LANES, Octet, UNAVAILABLE};
use crate::select::exponential::exp_of_negative;
use crate::select::lanes::{Choice, first_lane, greatest, lanes, sum};
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
pub(crate) fn best(octets: &[Octet], terms: Terms<impl Rescale>, scratch: &mut Vec<[f32; LANES]>) -> Option<Choice> {
    let Counts { visits, visits_max, mixed } = count(octets, terms.scale);
    let unvisited = mixed.mix(terms.network_value);
    let total = improve(octets, terms, terms.sigma.factor(visits_max), unvisited, scratch);
    let to_policy = if total > 0.0 { 1.0 / total } else { 0.0 };
    let to_share = 1.0 / (1.0 + visits);
    let (mut best, mut best_score) = (None, UNAVAILABLE);
    for (number, (octet, shares)) in octets.iter().zip(scratch).enumerate() {
        let scores = lanes(|lane| {
            let lag = shares[lane] * to_policy - octet.count[lane] * to_share;
            if octet.value[lane] == UNAVAILABLE { UNAVAILABLE } else { lag }
        });
        let greatest = greatest(&scores);
        if greatest > best_score {
            best = Some(Choice { octet: number, lane: first_lane(&scores, greatest) });
            best_score = greatest;
        }
    }
    best
}

/// What the visits of a node's edges come to.
struct Counts {
    visits: f32,
    visits_max: f32,
    mixed: MixedValue,
}

#[inline(always)]
fn count(octets: &[Octet], scale: impl Rescale) -> Counts {
    let mut counts = Counts { visits: 0.0, visits_max: 0.0, mixed: MixedValue::default() };
    for octet in octets {
        // Neither unvisited (NaN) nor unavailable.
        let if_valued = |lane: usize, part: f32| if octet.value[lane] > UNAVAILABLE { part } else { 0.0 };
        let priors = lanes(|lane| if_valued(lane, octet.prior[lane]));
        let visits = lanes(|lane| if_valued(lane, octet.count[lane]));
        let values = lanes(|lane| if_valued(lane, octet.prior[lane] * scale.apply(octet.value[lane])));
        counts.mixed.add_all(sum(&priors), sum(&visits), sum(&values));
        counts.visits += sum(&octet.count);
        counts.visits_max = counts.visits_max.max(greatest(&octet.count));
    }
    counts
}

/// Replaces `shares` with the improved policy of each edge, up to a factor; returns their sum.
#[inline(always)]
fn improve(
    octets: &[Octet],
    terms: Terms<impl Rescale>,
    factor: f32,
    unvisited: f32,
    shares: &mut Vec<[f32; LANES]>,
) -> f32 {
    shares.clear();
    let mut greatest_sigma = UNAVAILABLE;
    for octet in octets {
        let sigmas = lanes(|lane| {
            let value = octet.value[lane];
            let sigma = factor * if value.is_nan() { unvisited } else { terms.scale.apply(value) };
            if octet.prior[lane] > 0.0 { sigma } else { UNAVAILABLE }
        });
        greatest_sigma = greatest_sigma.max(greatest(&sigmas));
        shares.push(sigmas);
    }
    let mut total = 0.0;
    for (octet, shares) in octets.iter().zip(shares) {
        let sigmas = *shares;
        *shares = lanes(|lane| {
            let share = octet.prior[lane] * exp_of_negative(sigmas[lane] - greatest_sigma);
            if sigmas[lane] > UNAVAILABLE { share } else { 0.0 }
        });
        total += sum(shares);
    }
    total
}

#[cfg(test)]
mod tests;
