//! Settings of self-play episodes.

use search::Settings as SearchSettings;
use serde::{Deserialize, Serialize};

/// Settings of self-play episodes. Ranges are not checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Number of concurrent games.
    pub games: usize,
    /// Maximum number of leaves that each game adds to a batch. More leaves fill larger batches but slightly weaken the
    /// search.
    pub leaves_per_tree: usize,
    /// Settings of each tree search.
    pub search: SearchSettings,
    /// Simulations of a full search. A full search provides a policy as training target.
    pub full_simulations: u32,
    /// Maximum number of simulations in a full search while the actor would otherwise wait for the learner. Values up
    /// to `full_simulations` have no effect.
    pub full_simulations_max: u32,
    /// Simulations of a fast search. A fast search only chooses a move (playout cap randomisation, KataGo).
    pub fast_simulations: u32,
    /// Probability that a search is full; 1 disables fast searches.
    pub full_search_probability: f32,
    /// Choice of the move after a full search under Gumbel.
    pub gumbel_moves: GumbelMoves,
    /// Temperature for sampling moves from the search policy.
    pub temperature: Temperature,
    /// Condition under which a player resigns a hopeless game.
    pub resignation: Resignation,
    /// Random plies and forks at the start of episodes, to diversify the games.
    pub openings: Openings,
    /// Reuse of the subtree below the played move.
    pub subtree_reuse: SubtreeReuse,
    /// Reuse of one evaluation for a position and all images under the symmetries of the game.
    pub symmetry_reuse: SymmetryReuse,
}

impl Default for Settings {
    /// Returns settings for small boards: the proportions of AlphaZero at a tenth of the simulation budget, with the
    /// playout cap randomisation of KataGo. They are the defaults of a run file, except that no search stops early.
    fn default() -> Self {
        Self {
            games: 64,
            leaves_per_tree: 1,
            search: SearchSettings::default(),
            full_simulations: 96,
            full_simulations_max: 0,
            fast_simulations: 24,
            full_search_probability: 0.25,
            gumbel_moves: GumbelMoves::Best,
            temperature: Temperature { early: 1.0, late: 0.15, decay: TemperatureDecay::HalfLife { plies: 8.0 } },
            resignation: Resignation::Never,
            openings: Openings::default(),
            subtree_reuse: SubtreeReuse::Keep,
            symmetry_reuse: SymmetryReuse::Share,
        }
    }
}

/// Choice of the move after a full search under Gumbel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GumbelMoves {
    /// The best action under the Gumbel noise.
    Best,
    /// An action sampled from the improved policy at the temperature.
    Policy,
}

/// Temperature for sampling a move. Moves are sampled in proportion to the search policy raised to the power
/// `1 / temperature`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Temperature {
    /// Temperature at the first ply.
    pub early: f32,
    /// Temperature after the transition. At 0 the best move is played.
    pub late: f32,
    /// Transition from the early to the late temperature.
    pub decay: TemperatureDecay,
}

/// Transition from the early to the late temperature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TemperatureDecay {
    /// A drop after a fixed number of plies (AlphaZero: 30).
    Cut {
        /// First ply played at the late temperature, counted from 0.
        plies: u16,
    },
    /// Exponential decay (KataGo: the half-life in plies equals the board width).
    HalfLife {
        /// Half-life in plies: the distance to the late temperature halves every `plies` plies.
        plies: f32,
    },
}

impl Temperature {
    /// Returns the temperature of the move at `ply`, counted from 0.
    #[must_use]
    pub fn at(&self, ply: usize) -> f32 {
        match self.decay {
            TemperatureDecay::Cut { plies } if ply < usize::from(plies) => self.early,
            TemperatureDecay::Cut { .. } => self.late,
            TemperatureDecay::HalfLife { plies } => {
                self.late + (self.early - self.late) * 0.5_f32.powf(ply as f32 / plies)
            }
        }
    }
}

/// Condition under which a player resigns a hopeless game. Single-player games have no resignation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Resignation {
    /// No player resigns.
    Never,
    /// A player resigns after several consecutive moves of the same player with search values below a threshold.
    Below {
        /// Threshold for the expected value of the search policy for the player to move, from −1 to 0.
        threshold: f32,
        /// Number of consecutive moves of the player with values below the threshold.
        consecutive: u16,
        /// Fraction of games that are calibration games: they are played to the end with unchanged searches despite a
        /// resignation, to measure the rate of wrong resignations.
        calibration_share: f32,
        /// Treatment of a resigned game.
        resigned: Resigned,
    },
}

/// Treatment of a resigned game.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resigned {
    /// The game is played out with fast searches, so that the rules determine the result (similar to the soft
    /// resignation of KataGo).
    PlayedOut,
    /// The game ends at once and the opponent wins.
    Decided,
}

/// Opening plies of some episodes, played without a search. Opening plies never end a game.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Openings {
    /// Probability of random plies at the start of an episode that is not a fork.
    pub probability: f32,
    /// Maximum number of random plies. The number is drawn uniformly from 1 to this maximum.
    pub random_plies_max: u16,
    /// Probability that an episode starts as a fork of an earlier episode of the same slot, then one random ply.
    pub fork_probability: f32,
}

/// Reuse of the subtree below the played move in the next search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubtreeReuse {
    /// The subtree is kept, and the kept visits count towards the next budget. A subtree with evaluations by earlier
    /// weights is always dropped.
    Keep,
    /// Every search starts from a new root.
    Discard,
}

/// Reuse of one evaluation for a position and all images under the symmetries of the game.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymmetryReuse {
    /// Only the image with the smallest hash is evaluated, and all images use that evaluation.
    Share,
    /// Each position is evaluated separately.
    Apart,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_temperature_is_cut_at_its_ply() {
        let temperature = Temperature { early: 1.0, late: 0.0, decay: TemperatureDecay::Cut { plies: 30 } };
        assert_eq!((temperature.at(29), temperature.at(30)), (1.0, 0.0));
    }

    #[test]
    fn the_temperature_falls_half_of_the_way_in_each_half_life() {
        let temperature = Temperature { early: 1.0, late: 0.2, decay: TemperatureDecay::HalfLife { plies: 10.0 } };
        assert_eq!(temperature.at(0), 1.0);
        assert!((temperature.at(10) - 0.6).abs() < 1e-6);
        assert!((temperature.at(20) - 0.4).abs() < 1e-6);
        assert!(temperature.at(1000) >= 0.2);
    }
}
