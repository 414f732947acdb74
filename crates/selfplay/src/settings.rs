use search::Settings as SearchSettings;

/// The settings of episodes. Plain values; `config` checks the run file's keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Number of games that advance together.
    pub games: usize,
    /// Number of leaves that each of them may have in one batch. More fill larger batches and search a little worse.
    pub leaves_per_tree: usize,
    /// The settings of each tree's search.
    pub search: SearchSettings,
    /// The simulations of a full search, whose policy is a training target.
    pub full_simulations: u32,
    /// The most simulations of a full search of an actor that would otherwise wait for the learner; not above
    /// `full_simulations`: never more than those.
    pub full_simulations_max: u32,
    /// The simulations of a fast search, which only plays on (playout cap randomisation, KataGo).
    pub fast_simulations: u32,
    /// The probability that a search is full; 1 switches fast ones off.
    pub full_search_probability: f32,
    /// The temperature at which moves are drawn from the search; unused in full searches under Gumbel.
    pub temperature: Temperature,
    /// The condition that cuts a hopeless game short.
    pub resignation: Resignation,
    /// The random plies that make episodes differ from their start.
    pub openings: Openings,
    /// Determines whether the subtree below the move played is kept.
    pub subtree_reuse: SubtreeReuse,
    /// Determines whether one answer serves a position and its images under the symmetries of the game.
    pub symmetry_reuse: SymmetryReuse,
}

impl Default for Settings {
    /// For small boards: AlphaZero's proportions at a tenth of its budget, with KataGo's playout caps.
    fn default() -> Self {
        Self {
            games: 64,
            leaves_per_tree: 1,
            search: SearchSettings::default(),
            full_simulations: 96,
            full_simulations_max: 0,
            fast_simulations: 24,
            full_search_probability: 0.25,
            temperature: Temperature::default(),
            resignation: Resignation::Never,
            openings: Openings::default(),
            subtree_reuse: SubtreeReuse::Keep,
            symmetry_reuse: SymmetryReuse::Share,
        }
    }
}

/// The temperature of a move: it is drawn in proportion to the search policy to the power of `1 / temperature`.
///
/// Full searches under Gumbel have none: noise on the logits has drawn their move before temperature could.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Temperature {
    /// At the first ply.
    pub early: f32,
    /// At the end; 0 plays the best move.
    pub late: f32,
    /// The way from the early to the late temperature.
    pub decay: TemperatureDecay,
}

/// The way from the early to the late temperature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TemperatureDecay {
    /// At once, after so many plies (AlphaZero: 30).
    Cut {
        /// The first ply that is played at the late temperature.
        plies: u16,
    },
    /// Exponentially (KataGo: as many plies as the board is wide).
    HalfLife {
        /// Plies until half of the way is done.
        plies: f32,
    },
}

impl Default for Temperature {
    fn default() -> Self {
        Self { early: 1.0, late: 0.15, decay: TemperatureDecay::HalfLife { plies: 8.0 } }
    }
}

impl Temperature {
    /// The temperature of the move at `ply`.
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

/// The condition that cuts a hopeless game short. Games for one player are never cut short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Resignation {
    /// Every game is searched to its end.
    Never,
    /// A player resigns whose value was below a threshold for a few of their moves in a row.
    Below {
        /// The value to move that the search policy expects, above −1 and below 0.
        threshold: f32,
        /// Number of moves of that player in a row.
        consecutive: u16,
        /// The share of games that are played out with unchanged searches whatever happens. They show how often a
        /// resignation would have been wrong.
        calibration_share: f32,
        /// The treatment of a resigned game.
        resigned: Resigned,
    },
}

/// The treatment of a resigned game.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resigned {
    /// It is played out with fast searches, so that its result is that of the rules (after KataGo's soft resignation).
    PlayedOut,
    /// It ends at once and is decided for the opponent.
    Decided,
}

/// Random plies at the start of some episodes. They never end a game.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Openings {
    /// The probability that an episode begins with random plies.
    pub probability: f32,
    /// The most of them; how many is drawn uniformly from one upwards.
    pub random_plies_max: u16,
}

impl Default for Openings {
    fn default() -> Self {
        Self { probability: 0.0, random_plies_max: 0 }
    }
}

/// Determines whether the subtree below the move played becomes the next search's tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubtreeReuse {
    /// Its visits count towards the next budget. Answers of earlier weights are never kept.
    Keep,
    /// Every search starts from a fresh root.
    Discard,
}

/// Determines whether one answer serves a position and its images under the symmetries of the game.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymmetryReuse {
    /// The image with the smallest hash is evaluated for all of them.
    Share,
    /// Each is evaluated as it is.
    Apart,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_falls_at_its_ply() {
        let temperature = Temperature { early: 1.0, late: 0.0, decay: TemperatureDecay::Cut { plies: 30 } };
        assert_eq!((temperature.at(29), temperature.at(30)), (1.0, 0.0));
    }

    #[test]
    fn a_half_life_does_half_of_the_way() {
        let temperature = Temperature { early: 1.0, late: 0.2, decay: TemperatureDecay::HalfLife { plies: 10.0 } };
        assert_eq!(temperature.at(0), 1.0);
        assert!((temperature.at(10) - 0.6).abs() < 1e-6);
        assert!((temperature.at(20) - 0.4).abs() < 1e-6);
        assert!(temperature.at(1000) >= 0.2);
    }
}
