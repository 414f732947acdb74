//! Search results as reported by protocols: [`Analysis`].

use crate::{Color, Move};

/// Quantile of the normal distribution: 2.5 % lies more than this many standard errors below the mean.
const NORMAL_QUANTILE: f64 = 1.96;

/// The search result for a position. All values are for the player to move. There is neither a score nor an owner of
/// cells, which no network predicts.
#[derive(Debug, Clone, PartialEq)]
pub struct Analysis {
    /// The player to move.
    pub to_move: Color,
    /// The move to play; [`Move::Resign`] gives up the game.
    pub choice: Move,
    /// Number of simulations.
    pub visits: u32,
    /// Value of the position, −1 to 1.
    pub value: f32,
    /// Network value of the position without search, −1 to 1.
    pub network_value: f32,
    /// All allowed moves, best first, including moves without visits.
    pub candidates: Vec<Candidate>,
    /// Network priors of all legal moves, which sum to one, regardless of the allowed moves.
    pub priors: Vec<(Move, f32)>,
    /// Hash of the position.
    pub hash: u64,
    /// Hash that is equal for all images of the position under board symmetries.
    pub symmetric_hash: u64,
}

/// An allowed move with the search result.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The allowed move.
    pub played: Move,
    /// Visits of the move.
    pub visits: u32,
    /// Value for the player to move, −1 to 1.
    pub value: f32,
    /// Network prior among the allowed moves.
    pub prior: f32,
    /// Best play of both sides, starting with this move.
    pub variation: Vec<VariationPly>,
}

/// A ply of a variation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VariationPly {
    /// Move played in this ply.
    pub played: Move,
    /// Visits of the position after the move.
    pub visits: u32,
}

impl Candidate {
    /// Returns a lower bound on the win rate, 0 to 1, at 1.96 standard errors of a Bernoulli variable, which has the
    /// maximum variance of values from 0 to 1 with this mean. Returns 0 without visits.
    #[must_use]
    pub fn winrate_lower_bound(&self) -> f64 {
        if self.visits == 0 {
            return 0.0;
        }
        let mean = winrate(self.value);
        (mean - NORMAL_QUANTILE * (mean * (1.0 - mean) / f64::from(self.visits)).sqrt()).max(0.0)
    }
}

/// Returns the win rate of a value: −1 to 1 becomes 0 to 1, where a draw counts half.
#[must_use]
pub fn winrate(value: f32) -> f64 {
    f64::from(value.clamp(-1.0, 1.0)).midpoint(1.0)
}

impl Analysis {
    /// Returns the candidates that a report lists: those with visits, plus more up to `at_least`, and no more than
    /// `at_most`.
    pub(crate) fn reported(&self, at_least: usize, at_most: usize) -> impl Iterator<Item = (usize, &Candidate)> {
        let listed = self.candidates.iter().enumerate();
        listed.filter(move |(order, candidate)| candidate.visits > 0 || *order < at_least).take(at_most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_bound_approaches_the_win_rate_with_visits_and_stays_in_range() {
        let candidate =
            |visits, value| Candidate { played: Move::Pass, visits, value, prior: 0.5, variation: Vec::new() };
        assert_eq!(candidate(0, 0.9).winrate_lower_bound(), 0.0);
        assert_eq!(candidate(1, -0.9).winrate_lower_bound(), 0.0);
        let bounds = [10, 100, 10_000].map(|visits| candidate(visits, 0.2).winrate_lower_bound());
        assert!(bounds[0] < bounds[1] && bounds[1] < bounds[2] && bounds[2] < 0.6, "{bounds:?}");
        assert!((bounds[2] - 0.6).abs() < 0.01, "{bounds:?}");
    }
}
