//! Tests against a search over all probabilities, and in simulated matches.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Error, Settings, Sprt, State, counts, score};
use crate::ledger::Tally;

fn settings(elo0: f64, elo1: f64) -> Settings {
    Settings { elo0, elo1, alpha: 0.05, beta: 0.05 }
}

fn test(elo0: f64, elo1: f64) -> Sprt {
    Sprt::new(settings(elo0, elo1)).unwrap()
}

fn near(got: f64, expected: f64, tolerance: f64) {
    assert!((got - expected).abs() <= tolerance, "got {got}, expected {expected} ± {tolerance}");
}

/// Maximises Σ nᵢ ln pᵢ over probabilities with this mean by search: along every direction in which three results
/// exchange probability at the same sum and mean, with smaller and smaller steps. Slow, and independent of the
/// formula with a multiplier.
fn searched(counts: &[f64; 5], mean: f64) -> f64 {
    let likelihood = |p: &[f64; 5]| {
        let is_inside = p.iter().all(|&p| p > 0.0);
        if is_inside { counts.iter().zip(p).map(|(n, p)| n * p.ln()).sum::<f64>() } else { f64::NEG_INFINITY }
    };
    let triples = (0..5).flat_map(|i| (i + 1..5).flat_map(move |j| (j + 1..5).map(move |k| (i, j, k))));
    let directions: Vec<[f64; 5]> = triples
        .map(|(i, j, k)| {
            let mut direction = [0.0; 5];
            direction[j] = -1.0;
            direction[i] = (k - j) as f64 / (k - i) as f64;
            direction[k] = (j - i) as f64 / (k - i) as f64;
            direction
        })
        .collect();
    // The binomial distribution of four draws has this mean.
    let q = 1.0 - mean;
    let mut p = [q.powi(4), 4.0 * q.powi(3) * mean, 6.0 * q * q * mean * mean, 4.0 * q * mean.powi(3), mean.powi(4)];
    let mut best = likelihood(&p);
    let mut step = 0.1;
    while step > 1e-9 {
        let mut has_moved = false;
        for (direction, sign) in directions.iter().flat_map(|direction| [(direction, step), (direction, -step)]) {
            let mut next = p;
            next.iter_mut().zip(direction).for_each(|(p, d)| *p += sign * d);
            let reached = likelihood(&next);
            if reached > best {
                (p, best, has_moved) = (next, reached, true);
            }
        }
        if !has_moved {
            step /= 2.0;
        }
    }
    best
}

#[test]
fn the_ratio_is_that_of_likelihoods_maximised_by_a_search_over_all_probabilities() {
    for pairs in [[3, 9, 40, 12, 5], [10, 0, 31, 0, 14], [0, 0, 20, 3, 0], [25, 14, 9, 3, 1], [0, 1, 2, 30, 60]] {
        let tally = Tally { pairs };
        for (elo0, elo1) in [(0.0, 20.0), (-30.0, 30.0), (5.0, 120.0)] {
            let counts = counts(tally);
            let expected = searched(&counts, score(elo1)) - searched(&counts, score(elo0));
            near(test(elo0, elo1).log_likelihood_ratio(tally), expected, 1e-6);
        }
    }
}

/// With two results alone, wins and losses of pairs, the mean fixes both probabilities.
#[test]
fn pairs_that_are_won_or_lost_have_the_ratio_of_the_binomial_distribution() {
    let (score0, score1) = (score(0.0), score(50.0));
    let expected = 30.0 * (score1 / score0).ln() + 20.0 * ((1.0 - score1) / (1.0 - score0)).ln();
    near(test(0.0, 50.0).log_likelihood_ratio(Tally { pairs: [20, 0, 0, 0, 30] }), expected, 0.02);
}

#[test]
fn without_games_nothing_is_decided_and_the_bounds_are_those_of_wald() {
    let test = test(0.0, 5.0);
    assert_eq!((test.log_likelihood_ratio(Tally::default()), test.state(Tally::default())), (0.0, State::Continue));
    near(test.bounds().high, 19_f64.ln(), 1e-12);
    near(test.bounds().low, -19_f64.ln(), 1e-12);
    let uneven = Sprt::new(Settings { alpha: 0.01, beta: 0.2, ..settings(0.0, 5.0) }).unwrap();
    near(uneven.bounds().high, 80_f64.ln(), 1e-12);
    near(uneven.bounds().low, (0.2_f64 / 0.99).ln(), 1e-12);
}

#[test]
fn exchanged_players_exchange_the_hypotheses() {
    let tally = Tally { pairs: [4, 7, 30, 11, 8] };
    let ratio = test(-10.0, 35.0).log_likelihood_ratio(tally);
    near(test(-35.0, 10.0).log_likelihood_ratio(tally.reversed()), -ratio, 1e-9);
}

#[test]
fn results_split_into_batches_are_judged_as_their_sum() {
    let test = test(0.0, 30.0);
    let (one, other) = (Tally { pairs: [1, 4, 20, 9, 3] }, Tally { pairs: [0, 2, 11, 8, 2] });
    let mut sum = one;
    sum += other;
    let whole = Tally { pairs: [1, 6, 31, 17, 5] };
    assert_eq!(test.log_likelihood_ratio(sum), test.log_likelihood_ratio(whole));
}

#[test]
fn one_result_alone_decides_in_its_direction_and_the_ratio_is_finite() {
    let test = test(0.0, 50.0);
    assert_eq!(test.state(Tally { pairs: [0, 0, 0, 0, 400] }), State::AcceptH1);
    assert_eq!(test.state(Tally { pairs: [400, 0, 0, 0, 0] }), State::AcceptH0);
    for pairs in [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, u64::MAX]] {
        assert!(test.log_likelihood_ratio(Tally { pairs }).is_finite(), "{pairs:?}");
    }
}

#[test]
fn settings_out_of_range_are_refused_and_named() {
    for (elo0, elo1) in [(0.0, 0.0), (5.0, 0.0), (0.0, f64::NAN), (f64::NEG_INFINITY, 0.0), (0.0, 2000.0)] {
        let error = Sprt::new(settings(elo0, elo1)).unwrap_err();
        assert!(matches!(error, Error::Hypotheses { .. }), "{error}");
    }
    for rate in [0.0, 0.5, -0.1, f64::NAN] {
        let error = Sprt::new(Settings { beta: rate, ..settings(0.0, 5.0) }).unwrap_err().to_string();
        assert!(error.starts_with("beta: must be above 0"), "{error}");
    }
}

/// The distribution of results in a game pair with sides exchanged.
struct Pairs {
    /// Share of drawn games.
    draws: f64,
    /// Advantage in expected score of the side favoured by an opening, each side in half of the openings. It makes
    /// the two games of a pair differ.
    bias: f64,
    /// Share of pairs in which the second game has the result of the first, which makes them agree.
    same: f64,
}

impl Pairs {
    /// Returns the probabilities of 0 to 4 half points, with an expected score of `score`.
    fn probabilities(&self, score: f64) -> [f64; 5] {
        let game = |score: f64| {
            let win = score - self.draws / 2.0;
            [1.0 - win - self.draws, self.draws, win]
        };
        let mut probabilities = [0.0; 5];
        for bias in [-self.bias, self.bias] {
            let (one, other) = (game(score + bias), game(score - bias));
            for (i, one) in one.into_iter().enumerate() {
                for (j, other) in other.into_iter().enumerate() {
                    probabilities[i + j] += 0.5 * (1.0 - self.same) * one * other;
                }
                probabilities[2 * i] += 0.5 * self.same * one;
            }
        }
        probabilities
    }

    /// Plays matches between players that differ by `elo` until each match is decided, and returns the share in which
    /// H1 was accepted. The test is evaluated after every fourth pair.
    fn share_of_h1(&self, test: &Sprt, elo: f64, matches: u32, rng: &mut ChaCha8Rng) -> f64 {
        let probabilities = self.probabilities(score(elo));
        assert!(probabilities.iter().all(|&p| p >= 0.0), "{probabilities:?}");
        let mut accepted = 0;
        for _ in 0..matches {
            let mut tally = Tally::default();
            let state = loop {
                for _ in 0..4 {
                    let mut draw: f64 = rng.random();
                    let below = |p: &f64| {
                        draw -= p;
                        draw < 0.0
                    };
                    tally.count(probabilities.iter().position(below).unwrap_or(4));
                }
                match test.state(tally) {
                    State::Continue => {}
                    decided => break decided,
                }
            };
            accepted += u32::from(state == State::AcceptH1);
        }
        f64::from(accepted) / f64::from(matches)
    }
}

/// Over 1,500 matches per case, error rates are at most 6.5 % for a stated 5 %: the standard error at 5 % is 0.6
/// points.
#[test]
fn error_rates_in_simulated_matches_are_the_stated_ones_for_any_draw_rate_and_correlation() {
    let test = test(0.0, 60.0);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for pairs in [
        Pairs { draws: 0.0, bias: 0.0, same: 0.0 },
        Pairs { draws: 0.7, bias: 0.0, same: 0.0 },
        Pairs { draws: 0.2, bias: 0.25, same: 0.0 },
        Pairs { draws: 0.3, bias: 0.0, same: 0.5 },
    ] {
        let wrong1 = pairs.share_of_h1(&test, 0.0, 1500, &mut rng);
        let wrong0 = 1.0 - pairs.share_of_h1(&test, 60.0, 1500, &mut rng);
        let Pairs { draws, bias, same } = pairs;
        assert!(wrong1 <= 0.065 && wrong0 <= 0.065, "draws {draws}, bias {bias}, same {same}: {wrong1} {wrong0}");
        assert!(wrong1 > 0.01 && wrong0 > 0.01, "the test decides early, so it must err: {wrong1} {wrong0}");
    }
}
