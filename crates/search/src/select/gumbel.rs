//! Gumbel below the root: visits follow the improved policy.

use crate::completed_values::{MixedValue, Sigma};
use crate::edges::{LANES, Octet, UNAVAILABLE};
use crate::select::lanes::{Choice, exp_of_negative, first_lane, greatest, lanes, sum};
use crate::value_range::{Rescale, Scale, Unscaled};

/// The terms common to all edges of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<R> {
    pub(crate) sigma: Sigma,
    /// The network value of the node, without rescaling.
    pub(crate) network_value: f32,
    pub(crate) scale: R,
}

/// The rescaling of completed action values, which may differ from node to node.
pub(crate) trait RescaleNode: Copy {
    type Scale: Rescale;

    /// Returns the rescaling for a node with the edges `octets` and the value `unvisited` for unvisited actions.
    fn at(self, octets: &[Octet], unvisited: f32) -> Self::Scale;
}

impl RescaleNode for Unscaled {
    type Scale = Self;

    #[inline(always)]
    fn at(self, _: &[Octet], _: f32) -> Self {
        self
    }
}

/// The rescaling by the value range of the tree, the same at every node.
impl RescaleNode for Scale {
    type Scale = Self;

    #[inline(always)]
    fn at(self, _: &[Octet], _: f32) -> Self {
        self
    }
}

/// The rescaling by the least and greatest completed value of each node, as in Gumbel MuZero (mctx,
/// `qtransform_completed_by_mix_value`). Unavailable edges are excluded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spanning;

impl RescaleNode for Spanning {
    type Scale = Scale;

    fn at(self, octets: &[Octet], unvisited: f32) -> Scale {
        let (mut least, mut greatest_value) = (f32::INFINITY, f32::NEG_INFINITY);
        for octet in octets {
            let completed = |lane: usize| if octet.value[lane].is_nan() { unvisited } else { octet.value[lane] };
            greatest_value = greatest_value.max(greatest(&lanes(completed)));
            let negated = lanes(|lane| if octet.value[lane] == UNAVAILABLE { UNAVAILABLE } else { -completed(lane) });
            least = least.min(-greatest(&negated));
        }
        Scale::spanning(least, greatest_value)
    }
}

/// Returns the available edge visited least relative to the improved policy: `argmax_a π′(a) − N(a) / (1 + ΣN)` with
/// `π′ = softmax(logits + σ(completed Q))`. Ties go to the lowest action. Returns `None` if no edge is available.
///
/// Danihelka et al. 2022, section 5. The softmax is computed as normalised `P · exp(σ − max σ)`, which needs no
/// logarithm. Unavailable edges get probability 0.
pub(crate) fn best(
    octets: &[Octet],
    terms: Terms<impl RescaleNode>,
    scratch: &mut Vec<[f32; LANES]>,
) -> Option<Choice> {
    let Counts { visits, visits_max, mixed } = count(octets);
    let unvisited = mixed.mix(terms.network_value);
    let scale = terms.scale.at(octets, unvisited);
    let total = improve(octets, scale, terms.sigma.factor(visits_max), unvisited, scratch);
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

/// Visit and value totals over the edges of a node.
struct Counts {
    visits: f32,
    visits_max: f32,
    mixed: MixedValue,
}

#[inline(always)]
fn count(octets: &[Octet]) -> Counts {
    let mut counts = Counts { visits: 0.0, visits_max: 0.0, mixed: MixedValue::default() };
    for octet in octets {
        // The comparison is false for unvisited (NaN) and unavailable edges.
        let if_valued = |lane: usize, part: f32| if octet.value[lane] > UNAVAILABLE { part } else { 0.0 };
        let priors = lanes(|lane| if_valued(lane, octet.prior[lane]));
        let visits = lanes(|lane| if_valued(lane, octet.count[lane]));
        let values = lanes(|lane| if_valued(lane, octet.prior[lane] * octet.value[lane]));
        counts.mixed.add_all(sum(&priors), sum(&visits), sum(&values));
        counts.visits += sum(&octet.count);
        counts.visits_max = counts.visits_max.max(greatest(&octet.count));
    }
    counts
}

/// Replaces `shares` with the unnormalised improved policy over the edges. Returns the sum.
#[inline(always)]
fn improve(octets: &[Octet], scale: impl Rescale, factor: f32, unvisited: f32, shares: &mut Vec<[f32; LANES]>) -> f32 {
    shares.clear();
    let unvisited = scale.apply(unvisited);
    let mut greatest_sigma = UNAVAILABLE;
    for octet in octets {
        let sigmas = lanes(|lane| {
            let value = octet.value[lane];
            let sigma = factor * if value.is_nan() { unvisited } else { scale.apply(value) };
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
mod tests {
    use super::*;
    use crate::edges::{Edges, UNVISITED};
    use crate::settings::{ValueRange, ValueSpan};
    use crate::value_range::Bounds;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const SIGMA: Sigma = Sigma { c_visit: 50.0, c_scale: 1.0, span: ValueSpan::Node };

    fn choose(values: &[f32], counts: &[f32], priors: &[f32]) -> Option<usize> {
        choose_by(Unscaled, values, counts, priors)
    }

    fn choose_by(scale: impl RescaleNode, values: &[f32], counts: &[f32], priors: &[f32]) -> Option<usize> {
        let terms = Terms { sigma: SIGMA, network_value: 0.1, scale };
        let choice = best(Edges::of(values, counts, priors).all(), terms, &mut Vec::new());
        choice.map(|Choice { octet, lane }| octet * LANES + lane)
    }

    /// Danihelka et al. 2022, equation 14, in f64 with logarithms.
    fn expected(values: &[f32], counts: &[f32], priors: &[f32]) -> Vec<f64> {
        let all =
            || values.iter().zip(counts).zip(priors).map(|((&q, &n), &p)| (f64::from(q), f64::from(n), f64::from(p)));
        let total: f64 = all().map(|(_, n, _)| n).sum();
        let mass: f64 = all().filter(|(q, ..)| !q.is_nan()).map(|(.., p)| p).sum();
        let weighted: f64 = all().filter(|(q, ..)| !q.is_nan()).map(|(q, _, p)| p * q).sum();
        let mixed = if mass > 0.0 { (0.1 + total * weighted / mass) / (1.0 + total) } else { 0.1 };
        let most = all().map(|(_, n, _)| n).fold(0.0, f64::max);
        let shares: Vec<f64> =
            all().map(|(q, _, p)| (p.ln() + (50.0 + most) * if q.is_nan() { mixed } else { q }).exp()).collect();
        let sum: f64 = shares.iter().sum();
        all().zip(shares).map(|((_, n, _), share)| share / sum - n / (1.0 + total)).collect()
    }

    #[test]
    fn the_choice_is_the_one_that_lags_most_behind_the_improved_policy() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        for _ in 0..2000 {
            let len = rng.random_range(1..8);
            let counts: Vec<f32> = (0..len).map(|_| f32::from(rng.random_range(0..6_u8))).collect();
            let draw = |n: &f32| if *n > 0.0 { rng.random_range(-1.0..1.0) } else { UNVISITED };
            let values: Vec<f32> = counts.iter().map(draw).collect();
            let mut priors: Vec<f32> = (0..len).map(|_| rng.random_range(0.01..1.0)).collect();
            let total: f32 = priors.iter().sum();
            priors.iter_mut().for_each(|prior| *prior /= total);
            let scores = expected(&values, &counts, &priors);
            let greatest = scores.iter().copied().fold(f64::MIN, f64::max);
            let chosen = choose(&values, &counts, &priors).unwrap();
            assert!(greatest - scores[chosen] < 1e-5, "{scores:?}, chosen {chosen}");
        }
    }

    #[test]
    fn unavailable_edges_have_no_share() {
        assert_eq!(choose(&[UNAVAILABLE, UNVISITED], &[5.0, 0.0], &[0.9, 0.1]), Some(1));
        assert_eq!(choose(&[UNAVAILABLE; 2], &[0.0; 2], &[0.5; 2]), None);
    }

    #[test]
    fn unavailable_edges_have_no_share_while_all_values_in_the_tree_are_equal() {
        let flat = Bounds::new(ValueRange::Normalised).scale_or_flat();
        for at in 0..LANES {
            let mut values = [0.5; LANES];
            values[at] = UNAVAILABLE;
            let chosen = choose_by(flat, &values, &[1.0; LANES], &[0.125; LANES]);
            assert_eq!(chosen, Some(usize::from(at == 0)), "unavailable: {at}");
        }
        assert_eq!(choose_by(flat, &[UNAVAILABLE; 2], &[0.0; 2], &[0.5; 2]), None);
    }

    #[test]
    fn a_single_action_with_a_prior_of_zero_is_chosen() {
        assert_eq!(choose(&[UNVISITED], &[0.0], &[0.0]), Some(0));
    }

    #[test]
    fn values_span_zero_to_one_at_each_node_whatever_their_unit() {
        let choices = |unit: f32| choose_by(Spanning, &[7.0 * unit, 9.0 * unit], &[1.0, 3.0], &[0.7, 0.3]);
        assert_eq!([1e-3, 1.0, 1e3].map(choices), [Some(1); 3]);
        assert_eq!(choose(&[7e-3, 9e-3], &[1.0, 3.0], &[0.7, 0.3]), Some(0));
        let edges = Edges::of(&[3.0, UNVISITED, 5.0, UNAVAILABLE], &[1.0, 0.0, 1.0, 1.0], &[0.25; 4]);
        let scale = Spanning.at(edges.all(), -1.0);
        assert_eq!([-1.0, 2.0, 5.0].map(|value| scale.apply(value)), [0.0, 0.5, 1.0]);
    }

    #[test]
    fn ties_go_to_the_lowest_action() {
        assert_eq!(choose(&[UNVISITED; 3], &[0.0; 3], &[0.25; 3]), Some(0));
    }
}
