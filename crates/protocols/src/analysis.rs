//! The result of the search of a position as protocols report it: [`Analysis`].

use crate::{Color, Move};

/// The factor of the standard error below which a win rate lies with a probability of 2.5 %.
const NORMAL_QUANTILE: f64 = 1.96;

/// The result of the search of a position. All values are those of the player to move.
#[derive(Debug, Clone, PartialEq)]
pub struct Analysis {
    /// The player to move.
    pub to_move: Color,
    /// The move to play; [`Move::Resign`] gives the game up.
    pub choice: Move,
    /// The number of simulations.
    pub visits: u32,
    /// The value of the position, −1 to 1.
    pub value: f32,
    /// The network's own value of the position, −1 to 1.
    pub network_value: f32,
    /// The expected lead in points, where the network predicts it.
    pub score_lead: Option<f32>,
    /// All moves that were allowed, the best first, also those without a visit.
    pub candidates: Vec<Candidate>,
    /// The network's priors of all legal moves, which sum to one, whatever moves were allowed.
    pub priors: Vec<(Move, f32)>,
    /// The expected owner of each cell, 1 for the player to move and −1 for the opponent, row-major from the top left,
    /// where the network predicts it.
    pub ownership: Option<Vec<f32>>,
    /// A hash of the position.
    pub hash: u64,
    /// A hash that is equal for the images of a position under the symmetries of the board.
    pub symmetric_hash: u64,
}

/// A move that was allowed and the result of its search.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The move.
    pub played: Move,
    /// Its visits.
    pub visits: u32,
    /// Its value to the player to move, −1 to 1.
    pub value: f32,
    /// The network's prior among the moves that were allowed.
    pub prior: f32,
    /// The expected lead in points, where the network predicts it.
    pub score_lead: Option<f32>,
    /// The best play of both sides, beginning with this move.
    pub variation: Vec<VariationPly>,
}

/// A ply of a variation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VariationPly {
    /// The move.
    pub played: Move,
    /// The visits of the position behind it.
    pub visits: u32,
}

impl Candidate {
    /// Returns a lower bound of the win rate, 0 to 1, at 1.96 standard errors of a Bernoulli variable: no values from
    /// 0 to 1 with this mean have a larger variance. It is 0 without a visit.
    #[must_use]
    pub fn winrate_lower_bound(&self) -> f64 {
        if self.visits == 0 {
            return 0.0;
        }
        let mean = winrate(self.value);
        (mean - NORMAL_QUANTILE * (mean * (1.0 - mean) / f64::from(self.visits)).sqrt()).max(0.0)
    }
}

/// Returns the win rate of a value: −1 to 1 becomes 0 to 1, a draw counts half.
#[must_use]
pub fn winrate(value: f32) -> f64 {
    f64::from(value.clamp(-1.0, 1.0)).midpoint(1.0)
}

impl Analysis {
    /// Returns the candidates that a report lists: those with visits, or more to have `at_least`, and `at_most`.
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
        let candidate = |visits, value| Candidate {
            played: Move::Pass,
            visits,
            value,
            prior: 0.5,
            score_lead: None,
            variation: Vec::new(),
        };
        assert_eq!(candidate(0, 0.9).winrate_lower_bound(), 0.0);
        assert_eq!(candidate(1, -0.9).winrate_lower_bound(), 0.0);
        let bounds = [10, 100, 10_000].map(|visits| candidate(visits, 0.2).winrate_lower_bound());
        assert!(bounds[0] < bounds[1] && bounds[1] < bounds[2] && bounds[2] < 0.6, "{bounds:?}");
        assert!((bounds[2] - 0.6).abs() < 0.01, "{bounds:?}");
    }
}
