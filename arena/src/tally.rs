//! Counts results of pairs of games: each opening is played twice, with sides exchanged.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// The results of openings from the point of view of one of two players.
///
/// `pairs[k]` counts the openings in whose two games the player scored `k` half points: 0 for two losses, 4 for two
/// wins. The two games of an opening are not independent (an opening that favours a side brings each player a win), so
/// variances are taken over pairs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tally {
    /// The number of openings by half points.
    pub pairs: [u64; 5],
}

impl Tally {
    /// Counts one opening.
    ///
    /// # Panics
    /// With more than four half points.
    pub fn count(&mut self, half_points: usize) {
        self.pairs[half_points] += 1;
    }

    /// Returns the number of openings played.
    #[must_use]
    pub fn openings(&self) -> u64 {
        self.pairs.iter().fold(0, |sum, &pairs| sum.saturating_add(pairs))
    }

    /// Returns the number of games played.
    #[must_use]
    pub fn games(&self) -> u64 {
        self.openings().saturating_mul(2)
    }

    /// Returns the points of the player: one for a win, half for a draw.
    #[must_use]
    pub fn points(&self) -> f64 {
        (0_u32..).zip(self.pairs).map(|(half_points, pairs)| 0.5 * f64::from(half_points) * pairs as f64).sum()
    }

    /// Returns the same results from the point of view of the other player.
    #[must_use]
    pub fn reversed(mut self) -> Self {
        self.pairs.reverse();
        self
    }

    /// Returns the sum over pairs of the squared deviation of the points from the expected 2 · `score`, with `score`
    /// from 0 to 1.
    #[must_use]
    pub fn squared_error(&self, score: f64) -> f64 {
        let error = |half_points: u32| 0.5 * f64::from(half_points) - 2.0 * score;
        (0..).zip(self.pairs).map(|(half_points, pairs)| pairs as f64 * error(half_points).powi(2)).sum()
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        for (pairs, more) in self.pairs.iter_mut().zip(other.pairs) {
            *pairs = pairs.saturating_add(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn points_are_those_of_both_games() {
        let tally = Tally { pairs: [1, 2, 3, 4, 5] };
        assert_eq!((tally.openings(), tally.games()), (15, 30));
        assert!((tally.points() - 20.0).abs() < 1e-12 && (tally.reversed().points() - 10.0).abs() < 1e-12);
    }

    #[test]
    fn pairs_that_are_shared_deviate_from_an_even_score_by_nothing() {
        assert_eq!(Tally { pairs: [0, 0, 9, 0, 0] }.squared_error(0.5), 0.0);
        assert_eq!(Tally { pairs: [4, 0, 0, 0, 4] }.squared_error(0.5), 8.0);
    }
}
