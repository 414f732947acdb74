use super::*;
use crate::edges::{Edges, UNVISITED};
use crate::value_range::Scale;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const SIGMA: Sigma = Sigma { c_visit: 50.0, c_scale: 1.0 };

fn choose(values: &[f32], counts: &[f32], priors: &[f32]) -> Option<usize> {
    let terms = Terms { sigma: SIGMA, network_value: 0.1, scale: Scale::IDENTITY };
    let choice = best(Edges::of(values, counts, priors).all(), terms, &mut Vec::new());
    choice.map(|Choice { octet, lane }| octet * LANES + lane)
}

/// Danihelka et al. 2022, equation 14, in f64 with logarithms.
fn expected(values: &[f32], counts: &[f32], priors: &[f32]) -> Vec<f64> {
    let all = || values.iter().zip(counts).zip(priors).map(|((&q, &n), &p)| (f64::from(q), f64::from(n), f64::from(p)));
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
fn an_action_without_prior_can_still_be_the_only_one() {
    assert_eq!(choose(&[UNVISITED], &[0.0], &[0.0]), Some(0));
}

#[test]
fn ties_go_to_the_lowest_action() {
    assert_eq!(choose(&[UNVISITED; 3], &[0.0; 3], &[0.25; 3]), Some(0));
}
