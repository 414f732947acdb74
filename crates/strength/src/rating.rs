//! Computes ratings from results, after Bradley and Terry 1952.
//!
//! Players have strengths θ in natural units; player i is expected to score σ(θᵢ − θⱼ) against j. A draw counts as half
//! a win and half a loss. Strengths are reported on the Elo scale, 400 · log₁₀ e per natural unit; the strengths of
//! some players are known. The first move is not modelled: every opening is played from both sides. Start with `rate`.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::ledger::Tally;

/// Elo points per natural unit: 400 / ln 10.
pub const ELO_PER_UNIT: f64 = 173.717_792_761_249_46;

/// Half the width of a 95 % interval, in standard deviations.
pub const NORMAL_95: f64 = 1.959_963_984_540_054;

/// Weight of the prior dispersion of 1, as a variance: the same as 16 game pairs between equal players.
const DISPERSION_WEIGHT: f64 = 8.0;

/// Maximum number of Newton steps; the likelihood is concave, so that a dozen suffice from any start.
const STEPS_MAX: usize = 200;

/// The results of one player against another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pairing {
    /// Index of the first player.
    pub a: usize,
    /// Index of the second player.
    pub b: usize,
    /// Results of player `a`.
    pub tally: Tally,
}

/// A strength with a 95 % confidence interval, in Elo.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rating {
    /// Most likely strength.
    pub elo: f64,
    /// Lower bound of the interval.
    pub low: f64,
    /// Upper bound of the interval.
    pub high: f64,
}

impl Rating {
    /// Returns how much stronger than the opponent a player with these results is, under a weak prior.
    #[must_use]
    pub fn over_opponent(tally: Tally) -> Self {
        rate(2, &[(1, 0.0)], &[Pairing { a: 0, b: 1, tally }], Prior::WEAK)[0]
    }

    /// Returns the strengths of all players relative to the first, which is at 0, from all games under a weak prior.
    ///
    /// # Panics
    /// There are no players, or a pairing names a player that does not exist, or a player against itself.
    #[must_use]
    pub fn over_first(players: usize, pairings: &[Pairing]) -> Vec<Self> {
        rate(players, &[(0, 0.0)], pairings, Prior::WEAK)
    }
}

/// The prior distribution of ratings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Prior {
    /// Standard deviation, in Elo, of the difference between two players that have met. Without a prior, a player
    /// that won every game would have an infinite rating; a few games outweigh a prior this wide.
    ///
    /// The prior applies to differences, not to strengths: if every player had a prior around the anchor, hundreds of
    /// versions of one run would together pull the whole scale towards it.
    pub(crate) deviation_elo: f64,
}

impl Prior {
    /// A deviation of 1,500 Elo, the distance from random to perfect play in the games of this project.
    pub(crate) const WEAK: Self = Self { deviation_elo: 1500.0 };
}

/// Computes maximum-likelihood ratings for `players` players from all games under `prior`. The ratings of the players
/// in `fixed`, in Elo, are known.
///
/// Intervals come from the curvature at the maximum (the inverse of the observed information) and apply to the
/// difference to the fixed players. The information of the games is divided by the dispersion (quasi-likelihood;
/// McCullagh and Nelder 1989, section 9.2): the variance of game pairs with sides exchanged, relative to independent
/// games without draws.
///
/// # Panics
/// No rating is known, or a pairing names a player that does not exist, or a player against itself.
pub(crate) fn rate(players: usize, fixed: &[(usize, f64)], pairings: &[Pairing], prior: Prior) -> Vec<Rating> {
    let fit = Fit::new(players, fixed, pairings, prior);
    (0..players).map(|player| fit.rating(&[(player, 1.0)])).collect()
}

/// Computes the strength of the first player relative to the second, as [`rate`] computes ratings.
///
/// # Panics
/// The same panics as [`rate`].
pub(crate) fn difference(
    [player, other]: [usize; 2],
    players: usize,
    fixed: &[(usize, f64)],
    pairings: &[Pairing],
    prior: Prior,
) -> Rating {
    Fit::new(players, fixed, pairings, prior).rating(&[(player, 1.0), (other, -1.0)])
}

/// The maximum of the likelihood, with the curvature at this point.
struct Fit<'a> {
    fixed: &'a [(usize, f64)],
    strengths: Vec<f64>,
    /// The Cholesky decomposition of the information.
    lower: Symmetric,
}

impl<'a> Fit<'a> {
    fn new(players: usize, fixed: &'a [(usize, f64)], pairings: &'a [Pairing], prior: Prior) -> Self {
        for pairing in pairings {
            assert!(
                pairing.a < players && pairing.b < players && pairing.a != pairing.b,
                "a pairing is of two players"
            );
        }
        let precision = (prior.deviation_elo / ELO_PER_UNIT).powi(-2);
        let model = Model { players, fixed, pairings, links: links(players, fixed, pairings), precision };
        let strengths = model.maximise();
        let lower = model.information(&strengths, model.dispersion(&strengths)).cholesky();
        Self { fixed, strengths, lower }
    }

    /// Returns a weighted sum of strengths. The variance comes from the unknown strengths alone.
    fn rating(&self, weights: &[(usize, f64)]) -> Rating {
        let elo: f64 = weights.iter().map(|&(player, weight)| weight * self.strengths[player] * ELO_PER_UNIT).sum();
        let mut unknown = vec![0.0; self.strengths.len()];
        for &(player, weight) in weights {
            let is_known = self.fixed.iter().any(|&(fixed, _)| fixed == player);
            unknown[player] = if is_known { 0.0 } else { weight };
        }
        let variance: f64 = self.lower.forward(&unknown).iter().map(|value| value * value).sum();
        let half = NORMAL_95 * variance.sqrt() * ELO_PER_UNIT;
        Rating { elo, low: elo - half, high: elo + half }
    }
}

/// Returns the expected score, 0 to 1, of a player with rating `elo` against an opponent with rating `opponent_elo`.
pub fn expected_score(elo: f64, opponent_elo: f64) -> f64 {
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
    /// Players of known strength, in Elo.
    fixed: &'a [(usize, f64)],
    pairings: &'a [Pairing],
    /// Pairs of players to which the prior applies.
    links: Vec<(usize, usize)>,
    /// Precision 1 / σ² of the prior, in natural units.
    precision: f64,
}

/// Returns each pair of players that have met, once. If games connect a group of players to no fixed player, the first
/// player of the group is paired with the first fixed player.
fn links(players: usize, fixed: &[(usize, f64)], pairings: &[Pairing]) -> Vec<(usize, usize)> {
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
    let anchor = fixed[0].0;
    for &(player, _) in fixed {
        let (from, to) = (group[player], group[anchor]);
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
    /// Maximises the likelihood by Newton's method with halved steps.
    fn maximise(&self) -> Vec<f64> {
        let mut strengths = vec![0.0; self.players];
        for &(player, elo) in self.fixed {
            strengths[player] = elo / ELO_PER_UNIT;
        }
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
        for &(player, _) in self.fixed {
            gradient[player] = 0.0;
        }
        gradient
    }

    /// Returns the variance of game pairs around the expectation, relative to the variance of independent games
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
    /// `dispersion`. Rows of fixed players equal rows of the identity.
    fn information(&self, strengths: &[f64], dispersion: f64) -> Symmetric {
        let met = self.pairings.iter().map(|pairing| (pairing.a, pairing.b));
        let mut matrix = Symmetric::zero(self.players, self.links.iter().copied().chain(met));
        let mut couple = |a: usize, b: usize, weight: f64| {
            *matrix.at_mut(a, a) += weight;
            *matrix.at_mut(b, b) += weight;
            *matrix.at_mut(a.max(b), a.min(b)) -= weight;
        };
        for &(a, b) in &self.links {
            couple(a, b, self.precision);
        }
        for pairing in self.pairings {
            let expected = sigmoid(strengths[pairing.a] - strengths[pairing.b]);
            couple(pairing.a, pairing.b, pairing.games() * expected * (1.0 - expected) / dispersion);
        }
        for &(player, _) in self.fixed {
            matrix.isolate(player);
        }
        matrix
    }
}

impl Pairing {
    fn games(&self) -> f64 {
        self.tally.games() as f64
    }
}

/// A symmetric positive definite matrix, stored as the envelope of the lower triangle: each row from the first
/// non-zero entry to the diagonal. The Cholesky decomposition has the same envelope (George and Liu 1981, chapter 4).
///
/// A version meets few other players. With players in playing order, rows are therefore short, and a run of thousands
/// of versions is rated in a moment.
struct Symmetric {
    rows: Vec<Row>,
}

/// The entries of a row from column `first` to the diagonal.
struct Row {
    first: usize,
    entries: Vec<f64>,
}

impl Symmetric {
    /// Returns the zero matrix with an envelope that contains the entries at `pairs`.
    fn zero(size: usize, pairs: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut first: Vec<usize> = (0..size).collect();
        for (a, b) in pairs {
            first[a.max(b)] = first[a.max(b)].min(a.min(b));
        }
        let row = |(index, first)| Row { first, entries: vec![0.0; index - first + 1] };
        Self { rows: first.into_iter().enumerate().map(row).collect() }
    }

    fn size(&self) -> usize {
        self.rows.len()
    }

    /// Returns an entry in the envelope.
    fn at(&self, row: usize, column: usize) -> f64 {
        self.rows[row].entries[column - self.rows[row].first]
    }

    /// Returns a mutable entry in the envelope.
    fn at_mut(&mut self, row: usize, column: usize) -> &mut f64 {
        let Row { first, entries } = &mut self.rows[row];
        &mut entries[column - *first]
    }

    /// Replaces row and column `index` by the row and column of the identity.
    fn isolate(&mut self, index: usize) {
        self.rows[index].entries.fill(0.0);
        for row in index..self.size() {
            if self.rows[row].first <= index {
                *self.at_mut(row, index) = if row == index { 1.0 } else { 0.0 };
            }
        }
    }

    /// Computes the lower triangle L of the Cholesky decomposition L · Lᵀ.
    fn cholesky(mut self) -> Self {
        for row in 0..self.size() {
            let first = self.rows[row].first;
            for column in first..=row {
                let from = first.max(self.rows[column].first);
                let value = self.at(row, column) - dot(self.row(row, from, column), self.row(column, from, column));
                *self.at_mut(row, column) =
                    if row == column { value.max(f64::MIN_POSITIVE).sqrt() } else { value / self.at(column, column) };
            }
        }
        self
    }

    /// Returns the entries of a row from one column up to another.
    fn row(&self, row: usize, from: usize, to: usize) -> &[f64] {
        let Row { first, entries } = &self.rows[row];
        &entries[from - first..to - first]
    }

    /// Solves A · x = b.
    fn solve(self, b: &[f64]) -> Vec<f64> {
        let lower = self.cholesky();
        lower.back(lower.forward(b))
    }

    /// Returns L⁻¹ · b; the squared length is bᵀ · A⁻¹ · b.
    fn forward(&self, b: &[f64]) -> Vec<f64> {
        let mut x = b.to_vec();
        for row in 0..self.size() {
            let first = self.rows[row].first;
            x[row] = (x[row] - dot(self.row(row, first, row), &x[first..row])) / self.at(row, row);
        }
        x
    }

    fn back(&self, mut x: Vec<f64>) -> Vec<f64> {
        for row in (0..self.size()).rev() {
            x[row] /= self.at(row, row);
            let (before, at) = x.split_at_mut(row);
            let Row { first, entries } = &self.rows[row];
            before[*first..].iter_mut().zip(entries).for_each(|(x, entry)| *x -= entry * at[0]);
        }
        x
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests;
