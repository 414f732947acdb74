//! Computation of ratings from results, after Bradley and Terry 1952.
//!
//! Players have strengths θ in natural units; player i is expected to score σ(θᵢ − θⱼ) against j. A draw counts as half
//! a win and half a loss. Strengths are reported on the Elo scale, 400 · log₁₀ e per natural unit, with the anchor at
//! 0. The first move is not modelled: every opening is played from both sides. Start with `rate`.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::ledger::Tally;

/// Elo points per natural unit: 400 / ln 10.
const ELO_PER_UNIT: f64 = 173.717_792_761_249_46;

/// Half the width of a 95 % interval, in standard deviations.
const NORMAL_95: f64 = 1.959_963_984_540_054;

/// The weight, in variance, of the prior dispersion of 1: it counts as 16 pairs of games between equals.
const DISPERSION_WEIGHT: f64 = 8.0;

/// The maximum number of Newton steps; the likelihood is concave, so a dozen suffice from any start.
const STEPS_MAX: usize = 200;

/// The results of one player against another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pairing {
    /// The index of the first player.
    pub a: usize,
    /// The index of the second player.
    pub b: usize,
    /// The results of `a`.
    pub tally: Tally,
}

/// A strength with its 95 % confidence interval, in Elo.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rating {
    /// The most likely strength.
    pub elo: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl Rating {
    /// Returns the strength of the player with these results relative to its opponent, under a weak prior.
    #[must_use]
    pub fn over_opponent(tally: Tally) -> Self {
        rate(2, 1, &[Pairing { a: 0, b: 1, tally }], Prior::WEAK)[0]
    }

    /// Returns the strengths of all players relative to the first, which is at 0, from all their games under a weak
    /// prior.
    ///
    /// # Panics
    /// Without players, or if a pairing names one that does not exist, or a player against itself.
    #[must_use]
    pub fn over_first(players: usize, pairings: &[Pairing]) -> Vec<Self> {
        rate(players, 0, pairings, Prior::WEAK)
    }
}

/// The prior distribution of ratings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Prior {
    /// The standard deviation, in Elo, of the difference between two players that have met. Without a prior, a player
    /// that won every game would have an infinite rating; a few games outweigh a prior this wide.
    ///
    /// The prior applies to differences, not to strengths: if every player had a prior around the anchor, hundreds of
    /// versions of one run would together pull the whole scale towards it.
    pub(crate) deviation_elo: f64,
}

impl Prior {
    /// Returns a deviation of 1,500 Elo, the distance from random to perfect play in the games of this project.
    pub(crate) const WEAK: Self = Self { deviation_elo: 1500.0 };
}

/// Computes the ratings of `players` players that maximise the likelihood of all games under `prior`, with player
/// `anchor` at 0.
///
/// Intervals come from the curvature at the maximum (the inverse of the observed information) and apply to the
/// difference to the anchor. The information of the games is divided by their dispersion (quasi-likelihood; McCullagh
/// and Nelder 1989, section 9.2): the variance of pairs of games with sides exchanged, relative to that of independent
/// games without draws.
///
/// # Panics
/// If a pairing names a player that does not exist, or a player against itself.
pub(crate) fn rate(players: usize, anchor: usize, pairings: &[Pairing], prior: Prior) -> Vec<Rating> {
    assert!(anchor < players, "the anchor is a player");
    for pairing in pairings {
        assert!(pairing.a < players && pairing.b < players && pairing.a != pairing.b, "a pairing is of two players");
    }
    let precision = (prior.deviation_elo / ELO_PER_UNIT).powi(-2);
    let model = Model { players, anchor, pairings, links: links(players, anchor, pairings), precision };
    let strengths = model.maximise();
    let variances = model.information(&strengths, model.dispersion(&strengths)).inverse_diagonal();
    let rating = |(strength, variance): (&f64, f64)| {
        let elo = strength * ELO_PER_UNIT;
        let half = NORMAL_95 * variance.sqrt() * ELO_PER_UNIT;
        Rating { elo, low: elo - half, high: elo + half }
    };
    let mut ratings: Vec<Rating> = strengths.iter().zip(variances).map(rating).collect();
    ratings[anchor] = Rating { elo: 0.0, low: 0.0, high: 0.0 };
    ratings
}

/// Returns the expected score, 0 to 1, of a player rated `elo` against one rated `opponent_elo`.
pub(crate) fn expected_score(elo: f64, opponent_elo: f64) -> f64 {
    sigmoid((elo - opponent_elo) / ELO_PER_UNIT)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Computes ln σ(x) without underflow.
fn ln_sigmoid(x: f64) -> f64 {
    if x < 0.0 { x - x.exp().ln_1p() } else { -(-x).exp().ln_1p() }
}

struct Model<'a> {
    players: usize,
    anchor: usize,
    pairings: &'a [Pairing],
    /// The pairs of players to which the prior applies.
    links: Vec<(usize, usize)>,
    /// The precision 1 / σ² of the prior, in natural units.
    precision: f64,
}

/// Returns the pairs of players that have met, each once. In every group of players that no chain of games links to the
/// anchor, the first is paired with the anchor.
fn links(players: usize, anchor: usize, pairings: &[Pairing]) -> Vec<(usize, usize)> {
    let met: BTreeSet<_> = pairings.iter().map(|&Pairing { a, b, .. }| (a.min(b), a.max(b))).collect();
    let mut links: Vec<(usize, usize)> = met.into_iter().collect();
    let mut group: Vec<usize> = (0..players).collect();
    let join = |group: &mut Vec<usize>, from: usize, to: usize| {
        group.iter_mut().filter(|of| **of == from).for_each(|of| *of = to);
    };
    for &(a, b) in &links {
        let (from, to) = (group[a], group[b]);
        join(&mut group, from, to);
    }
    for player in 0..players {
        if group[player] != group[anchor] {
            links.push((player, anchor));
            let (from, to) = (group[player], group[anchor]);
            join(&mut group, from, to);
        }
    }
    links
}

impl Model<'_> {
    /// Maximises the likelihood by Newton's method with halved steps; the anchor stays at 0.
    fn maximise(&self) -> Vec<f64> {
        let mut strengths = vec![0.0; self.players];
        let mut likelihood = self.log_likelihood(&strengths);
        for _ in 0..STEPS_MAX {
            let step = self.information(&strengths, 1.0).solve(&self.gradient(&strengths));
            let largest = step.iter().fold(0.0_f64, |largest, step| largest.max(step.abs()));
            if largest < 1e-10 {
                break;
            }
            let mut scale = 1.0;
            loop {
                let next: Vec<f64> = strengths.iter().zip(&step).map(|(at, step)| at + scale * step).collect();
                let reached = self.log_likelihood(&next);
                if reached >= likelihood {
                    (strengths, likelihood) = (next, reached);
                    break;
                }
                scale /= 2.0;
                if scale < 1e-12 {
                    return strengths;
                }
            }
        }
        strengths
    }

    fn log_likelihood(&self, strengths: &[f64]) -> f64 {
        let games: f64 = self
            .pairings
            .iter()
            .map(|pairing| {
                let difference = strengths[pairing.a] - strengths[pairing.b];
                let (games, points) = (pairing.games(), pairing.tally.points());
                points * ln_sigmoid(difference) + (games - points) * ln_sigmoid(-difference)
            })
            .sum();
        let apart = |&(a, b): &(usize, usize)| (strengths[a] - strengths[b]).powi(2);
        games - 0.5 * self.precision * self.links.iter().map(apart).sum::<f64>()
    }

    fn gradient(&self, strengths: &[f64]) -> Vec<f64> {
        let mut gradient = vec![0.0; self.players];
        for &(a, b) in &self.links {
            let pull = self.precision * (strengths[a] - strengths[b]);
            gradient[a] -= pull;
            gradient[b] += pull;
        }
        for pairing in self.pairings {
            let expected = pairing.games() * sigmoid(strengths[pairing.a] - strengths[pairing.b]);
            gradient[pairing.a] += pairing.tally.points() - expected;
            gradient[pairing.b] -= pairing.tally.points() - expected;
        }
        gradient[self.anchor] = 0.0;
        gradient
    }

    /// Returns the variance of pairs of games around their expectation, as a multiple of that of independent games
    /// without draws.
    fn dispersion(&self, strengths: &[f64]) -> f64 {
        let (mut observed, mut independent) = (DISPERSION_WEIGHT, DISPERSION_WEIGHT);
        for pairing in self.pairings {
            let expected = sigmoid(strengths[pairing.a] - strengths[pairing.b]);
            observed += pairing.tally.squared_error(expected);
            independent += pairing.games() * expected * (1.0 - expected);
        }
        observed / independent
    }

    /// Returns the negative second derivative of the log-likelihood, with the part of the games divided by
    /// `dispersion`; the anchor's row is that of the identity.
    fn information(&self, strengths: &[f64], dispersion: f64) -> Symmetric {
        let mut matrix = Symmetric::zero(self.players);
        let mut couple = |a: usize, b: usize, weight: f64| {
            matrix.add(a, a, weight);
            matrix.add(b, b, weight);
            matrix.add(a.max(b), a.min(b), -weight);
        };
        for &(a, b) in &self.links {
            couple(a, b, self.precision);
        }
        for pairing in self.pairings {
            let expected = sigmoid(strengths[pairing.a] - strengths[pairing.b]);
            couple(pairing.a, pairing.b, pairing.games() * expected * (1.0 - expected) / dispersion);
        }
        matrix.isolate(self.anchor);
        matrix
    }
}

impl Pairing {
    fn games(&self) -> f64 {
        self.tally.games() as f64
    }
}

/// A symmetric positive definite matrix, stored as its lower triangle.
struct Symmetric {
    size: usize,
    lower: Vec<f64>,
}

impl Symmetric {
    fn zero(size: usize) -> Self {
        Self { size, lower: vec![0.0; size * size] }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.lower[row * self.size + column]
    }

    /// Adds to an entry on or below the diagonal: `row ≥ column`.
    fn add(&mut self, row: usize, column: usize, value: f64) {
        self.lower[row * self.size + column] += value;
    }

    /// Replaces row and column of `index` by those of the identity.
    fn isolate(&mut self, index: usize) {
        for other in 0..self.size {
            let (row, column) = (index.max(other), index.min(other));
            self.lower[row * self.size + column] = if other == index { 1.0 } else { 0.0 };
        }
    }

    /// Computes the lower triangle L of the Cholesky decomposition L · Lᵀ.
    fn cholesky(mut self) -> Self {
        for row in 0..self.size {
            for column in 0..=row {
                let mut value = self.at(row, column);
                for k in 0..column {
                    value -= self.at(row, k) * self.at(column, k);
                }
                let diagonal = row == column;
                let entry =
                    if diagonal { value.max(f64::MIN_POSITIVE).sqrt() } else { value / self.at(column, column) };
                self.lower[row * self.size + column] = entry;
            }
        }
        self
    }

    /// Solves A · x = b.
    fn solve(self, b: &[f64]) -> Vec<f64> {
        let lower = self.cholesky();
        lower.back(lower.forward(b))
    }

    /// Computes the diagonal of A⁻¹, column by column: |L⁻¹ eᵢ|².
    fn inverse_diagonal(self) -> Vec<f64> {
        let lower = self.cholesky();
        let column = |index: usize| {
            let mut unit = vec![0.0; lower.size];
            unit[index] = 1.0;
            lower.forward(&unit).iter().map(|value| value * value).sum()
        };
        (0..lower.size).map(column).collect()
    }

    fn forward(&self, b: &[f64]) -> Vec<f64> {
        let mut x = b.to_vec();
        for row in 0..self.size {
            for k in 0..row {
                x[row] -= self.at(row, k) * x[k];
            }
            x[row] /= self.at(row, row);
        }
        x
    }

    fn back(&self, mut x: Vec<f64>) -> Vec<f64> {
        for row in (0..self.size).rev() {
            for k in row + 1..self.size {
                x[row] -= self.at(k, row) * x[k];
            }
            x[row] /= self.at(row, row);
        }
        x
    }
}

#[cfg(test)]
mod tests {
    //! Tests of ratings against closed forms, against a grid, and in extreme cases.

    use super::{DISPERSION_WEIGHT, ELO_PER_UNIT, NORMAL_95, Pairing, Prior, Rating, expected_score, ln_sigmoid, rate};
    use crate::ledger::Tally;

    /// A prior of negligible weight, because the closed forms below have none.
    const FLAT: Prior = Prior { deviation_elo: 1e7 };

    /// Returns a tally of openings won, shared and lost by `a`, each with both of its games.
    fn pairing(a: usize, b: usize, won: u64, shared: u64, lost: u64) -> Pairing {
        Pairing { a, b, tally: Tally { pairs: [lost, 0, shared, 0, won] } }
    }

    fn near(got: f64, expected: f64, tolerance: f64) {
        assert!((got - expected).abs() <= tolerance, "got {got}, expected {expected} ± {tolerance}");
    }

    /// The closed form of two players: θ = ln(score / (games − score)), with variance φ / (n p (1 − p)), where φ is the
    /// variance of pairs of games over that of independent ones.
    #[test]
    fn two_players_have_the_closed_form() {
        for (won, shared, lost) in [(30, 0, 10), (7, 6, 27), (50, 0, 50), (1, 0, 99), (1, 200, 0)] {
            let rating = rate(2, 0, &[pairing(1, 0, won, shared, lost)], FLAT)[1];
            let n = 2.0 * (won + shared + lost) as f64;
            let [won, shared, lost] = [won, shared, lost].map(|pairs| pairs as f64);
            let p = (2.0 * won + shared) / n;
            near(rating.elo, 400.0 * (p / (1.0 - p)).log10(), 1e-4);
            let squares = won * (2.0 - 2.0 * p).powi(2) + shared * (1.0 - 2.0 * p).powi(2) + lost * (2.0 * p).powi(2);
            let dispersion = (DISPERSION_WEIGHT + squares) / (DISPERSION_WEIGHT + n * p * (1.0 - p));
            let half = NORMAL_95 * ELO_PER_UNIT * (dispersion / (n * p * (1.0 - p))).sqrt();
            near(rating.high - rating.elo, half, 1e-3);
            near(rating.elo - rating.low, half, 1e-3);
        }
    }

    /// No point of a fine grid is more likely than the ratings of three players.
    #[test]
    fn no_point_of_a_grid_is_more_likely_than_the_answer() {
        let pairings = [pairing(0, 1, 3, 2, 9), pairing(1, 2, 4, 0, 6), pairing(2, 0, 11, 1, 1)];
        let prior = Prior { deviation_elo: 400.0 };
        let ratings = rate(3, 0, &pairings, prior);
        let likelihood = |elo: [f64; 3]| -> f64 {
            let games = pairings.iter().map(|p| {
                let difference = (elo[p.a] - elo[p.b]) / ELO_PER_UNIT;
                let (won, lost) = (p.tally.points(), p.tally.reversed().points());
                won * ln_sigmoid(difference) + lost * ln_sigmoid(-difference)
            });
            let apart = |p: &Pairing| 0.5 * ((elo[p.a] - elo[p.b]) / prior.deviation_elo).powi(2);
            games.sum::<f64>() - pairings.iter().map(apart).sum::<f64>()
        };
        let best = likelihood([0.0, ratings[1].elo, ratings[2].elo]);
        let mut peak = (f64::NEG_INFINITY, 0.0, 0.0);
        for x in (-1000..=1000).step_by(5).map(f64::from) {
            for y in (-1000..=1000).step_by(5).map(f64::from) {
                let here = likelihood([0.0, x, y]);
                assert!(here <= best + 1e-9, "({x}, {y}) is more likely than {ratings:?}");
                if here > peak.0 {
                    peak = (here, x, y);
                }
            }
        }
        near(ratings[1].elo, peak.1, 5.0);
        near(ratings[2].elo, peak.2, 5.0);
    }

    #[test]
    fn the_anchor_is_at_zero_and_all_shift_with_it() {
        let pairings = [pairing(0, 1, 12, 0, 8), pairing(1, 2, 12, 0, 8)];
        let (from_first, from_last) = (rate(3, 0, &pairings, FLAT), rate(3, 2, &pairings, FLAT));
        assert_eq!(from_first[0], Rating { elo: 0.0, low: 0.0, high: 0.0 });
        for (a, b) in from_first.iter().zip(&from_last) {
            near(a.elo - b.elo, from_first[2].elo, 1e-3);
        }
    }

    #[test]
    fn a_player_that_won_every_game_is_strong_and_finite_and_its_interval_is_wide() {
        let few = rate(2, 0, &[pairing(1, 0, 5, 0, 0)], Prior::WEAK)[1];
        let many = rate(2, 0, &[pairing(1, 0, 500, 0, 0)], Prior::WEAK)[1];
        assert!(few.elo > 200.0 && few.elo < many.elo && many.elo < 3000.0, "{few:?} {many:?}");
        assert!(few.high - few.low > 800.0, "{few:?}");
    }

    #[test]
    fn a_player_without_games_has_the_interval_of_the_prior() {
        let idle = rate(3, 0, &[pairing(0, 1, 5, 0, 5)], Prior::WEAK)[2];
        near(idle.elo, 0.0, 1e-9);
        near(idle.high, NORMAL_95 * Prior::WEAK.deviation_elo, 1e-6);
    }

    /// Versions that lose few games do not change the ratings of the fixed players below them.
    #[test]
    fn more_and_more_versions_do_not_move_the_ratings_below_them() {
        let ladder = [pairing(1, 0, 14, 0, 2), pairing(2, 1, 12, 0, 4)];
        let with = |versions: usize| {
            let of = |version: usize| {
                let below = if version == 3 { 2 } else { version - 1 };
                [pairing(version, 2, 16, 0, 0), pairing(version, below, 9, 0, 7)].into_iter().take(if below == 2 {
                    1
                } else {
                    2
                })
            };
            let pairings: Vec<Pairing> = ladder.into_iter().chain((3..3 + versions).flat_map(of)).collect();
            rate(3 + versions, 0, &pairings, Prior::WEAK)
        };
        let (few, many) = (with(2), with(100));
        for player in 1..3 {
            near(many[player].elo, few[player].elo, 0.01);
        }
        assert!(many[102].elo > many[3].elo);
    }

    #[test]
    fn players_that_have_met_each_other_only_are_near_the_anchor_together() {
        let ratings = rate(4, 0, &[pairing(0, 1, 5, 0, 5), pairing(2, 3, 5, 0, 5)], Prior::WEAK);
        near(ratings[2].elo, 0.0, 1e-6);
        near(ratings[3].elo, 0.0, 1e-6);
        assert!(ratings[2].high > 2000.0, "{ratings:?}");
    }

    #[test]
    fn the_weak_prior_moves_a_rating_of_forty_games_by_less_than_a_tenth_of_its_interval() {
        let pairings = [pairing(1, 0, 30, 0, 10)];
        let (flat, weak) = (rate(2, 0, &pairings, FLAT)[1], rate(2, 0, &pairings, Prior::WEAK)[1]);
        assert!((flat.elo - weak.elo).abs() < 0.1 * (flat.high - flat.low), "{flat:?} {weak:?}");
    }

    #[test]
    fn more_games_make_the_interval_narrower_by_the_square_root() {
        let width = |factor: u64| {
            // The score is 0.6, and pairs have the variance of two independent games.
            let tally = Tally { pairs: [4, 0, 12, 0, 9].map(|pairs| pairs * factor) };
            let rating = rate(2, 0, &[Pairing { a: 1, b: 0, tally }], FLAT)[1];
            rating.high - rating.low
        };
        near(width(1) / width(4), 2.0, 1e-3);
    }

    #[test]
    fn a_pairing_that_is_split_in_two_gives_the_same_ratings() {
        let whole = rate(2, 0, &[pairing(1, 0, 3, 0, 0)], Prior::WEAK);
        let split = rate(2, 0, &[pairing(1, 0, 1, 0, 0), pairing(0, 1, 0, 0, 2)], Prior::WEAK);
        near(split[1].elo, whole[1].elo, 1e-6);
        near(split[1].high, whole[1].high, 1e-6);
    }

    #[test]
    fn the_prior_of_players_that_have_met_has_the_configured_width() {
        let met = rate(2, 0, &[pairing(1, 0, 0, 0, 0), pairing(0, 1, 0, 0, 0)], Prior::WEAK)[1];
        near(met.high, NORMAL_95 * Prior::WEAK.deviation_elo, 1e-6);
    }

    #[test]
    fn openings_that_both_players_win_once_rate_them_as_equal() {
        let width = |tally: Tally| {
            let rating = rate(2, 0, &[Pairing { a: 1, b: 0, tally }], FLAT)[1];
            rating.high - rating.low
        };
        assert!(width(Tally { pairs: [0, 0, 50, 0, 0] }) < 0.5 * width(Tally { pairs: [25, 0, 0, 0, 25] }));
    }

    #[test]
    fn a_hundred_players_in_a_chain_are_rated() {
        let pairings: Vec<Pairing> = (1..100).map(|player| pairing(player, player - 1, 15, 0, 5)).collect();
        let ratings = rate(100, 0, &pairings, FLAT);
        // Each player is ln 3 above the one below.
        for (player, rating) in ratings.iter().enumerate() {
            near(rating.elo, player as f64 * 400.0 * 3_f64.log10(), 0.1);
        }
    }

    #[test]
    fn four_hundred_points_are_odds_of_ten_to_one() {
        near(expected_score(1200.0, 800.0), 10.0 / 11.0, 1e-12);
    }
}
