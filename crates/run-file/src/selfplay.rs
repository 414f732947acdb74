//! The section `[selfplay]` of the run file.

use selfplay::{
    GumbelMoves, Openings, Resignation, Resigned, SearchSettings, Settings, SubtreeReuse, SymmetryReuse, Temperature,
    TemperatureDecay,
};
use serde::{Deserialize, Serialize};
use service::ConfigError;
use service::config::{Section as _, above_to};

/// Maximum number of concurrent games in a thread. More search trees would not fit in the memory of any machine.
pub(crate) const GAMES_MAX: usize = 1 << 16;

service::section! {
    /// The section `[selfplay]`: settings of self-play episodes.
    #[serde(deny_unknown_fields)]
    pub struct SelfplaySection {
        /// Number of concurrent games in each thread. With an accelerator, `actor.accelerator_games` applies instead,
        /// except to Python environments.
        games: usize = Settings::default().games, in 1..=GAMES_MAX;
        /// Maximum number of leaves of one game in a batch. More leaves fill larger batches, but slightly weaken the
        /// search.
        leaves_per_game: usize = Settings::default().leaves_per_tree, in 1..;
        /// Simulations of a full search, whose policy is a training target.
        full_simulations: u32 = Settings::default().full_simulations, in 1..;
        /// Maximum simulations of a full search by an actor that would otherwise wait for the learner. With a value of
        /// at most `full_simulations`, the actor waits.
        full_simulations_max: u32 = Settings::default().full_simulations_max;
        /// Simulations of a fast search, which only chooses a move.
        fast_simulations: u32 = Settings::default().fast_simulations, in 1..;
        /// Probability that a search is full; 1 disables fast searches.
        full_search_probability: f32 = Settings::default().full_search_probability, in above_to(0.0, 1.0);
        /// Choice of the move after a full search under `gumbel`: the `best` action under the Gumbel noise, or an
        /// action sampled at the temperature from the improved `policy`.
        gumbel_moves: GumbelMoves = Settings::default().gumbel_moves;
        /// Temperature of the first ply. Full searches under `gumbel` ignore the temperature if `gumbel_moves` is
        /// `best`.
        temperature_early: f32 = Settings::default().temperature.early, in 0.0..=100.0;
        /// Temperature at the end of the decay; 0 plays the best action.
        temperature_late: f32 = Settings::default().temperature.late, in 0.0..=100.0;
        /// Half-life of the decay in plies (`half_life`), or the ply at which the temperature drops (`cut`).
        temperature_plies: f32 = 8.0, in above_to(0.0, 1e6);
        /// Decay of the temperature: `half_life` (exponential) or `cut` (a single drop).
        temperature_decay: DecayName = DecayName::HalfLife;
        /// Probability that an episode starts with random plies.
        random_opening_probability: f32 = 0.0, in 0.0..=1.0;
        /// Maximum number of random plies at the start of an episode.
        opening_plies_max: u16 = 0;
        /// Probability that an episode starts as a fork: with the first plies of one of the last 64 episodes of its
        /// slot, then one random ply.
        fork_probability: f32 = 0.0, in 0.0..=1.0;
        /// Treatment of hopeless games: `never` resign, play out with fast searches (`played_out`), or end the game as
        /// a loss (`decided`).
        resignation: ResignationName = ResignationName::Never;
        /// Resignation threshold: moves with a lower search value count towards resignation.
        resign_threshold: f32 = -0.95, in -1.0..=0.0;
        /// Number of consecutive moves of a player below the threshold after which the player resigns.
        resign_moves: u16 = 3, in 1..;
        /// Share of calibration games: games searched to the end despite a resignation, to measure how often a
        /// resignation is wrong.
        resign_calibration_share: f32 = 0.1, in 0.0..=1.0;
        /// True to keep the subtree below the played move for the next search; not with learned models.
        subtree_reuse: bool = true;
        /// True to use one evaluation for a position and all images under the symmetries of the game.
        symmetry_reuse: bool = true;
    }
}

/// Decay of the temperature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecayName {
    /// `half_life`: exponential decay.
    HalfLife,
    /// `cut`: a single drop at a fixed ply.
    Cut,
}

/// Treatment of hopeless games.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResignationName {
    /// No player resigns, and all games are played to the end with normal searches.
    Never,
    /// After a resignation, the rest of the game is played with fast searches.
    PlayedOut,
    /// After a resignation, the game ends at once and the opponent wins.
    Decided,
}

impl SelfplaySection {
    /// Checks the ranges of all keys and returns the settings, with the search settings `search`.
    ///
    /// # Errors
    /// [`ConfigError`] names the first key that is out of range.
    pub fn settings(&self, search: SearchSettings) -> Result<Settings, ConfigError> {
        self.check_ranges("selfplay")?;
        let below = |resigned| Resignation::Below {
            threshold: self.resign_threshold,
            consecutive: self.resign_moves,
            calibration_share: self.resign_calibration_share,
            resigned,
        };
        Ok(Settings {
            games: self.games,
            leaves_per_tree: self.leaves_per_game,
            search,
            full_simulations: self.full_simulations,
            full_simulations_max: self.full_simulations_max,
            fast_simulations: self.fast_simulations,
            full_search_probability: self.full_search_probability,
            gumbel_moves: self.gumbel_moves,
            temperature: Temperature {
                early: self.temperature_early,
                late: self.temperature_late,
                decay: match self.temperature_decay {
                    DecayName::HalfLife => TemperatureDecay::HalfLife { plies: self.temperature_plies },
                    // The conversion saturates at 65535 plies, longer than any game.
                    DecayName::Cut => TemperatureDecay::Cut { plies: self.temperature_plies as u16 },
                },
            },
            resignation: match self.resignation {
                ResignationName::Never => Resignation::Never,
                ResignationName::PlayedOut => below(Resigned::PlayedOut),
                ResignationName::Decided => below(Resigned::Decided),
            },
            openings: Openings {
                probability: self.random_opening_probability,
                random_plies_max: self.opening_plies_max,
                fork_probability: self.fork_probability,
            },
            subtree_reuse: if self.subtree_reuse { SubtreeReuse::Keep } else { SubtreeReuse::Discard },
            symmetry_reuse: if self.symmetry_reuse { SymmetryReuse::Share } else { SymmetryReuse::Apart },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_settings() {
        let settings = SelfplaySection::default().settings(SearchSettings::default()).unwrap();
        assert_eq!(settings, Settings::default());
    }

    #[test]
    fn a_value_out_of_range_is_named_with_its_key() {
        let error = |section: SelfplaySection| section.settings(SearchSettings::default()).unwrap_err().to_string();
        let games = |games| SelfplaySection { games, ..SelfplaySection::default() };
        assert_eq!(error(games(0)), "selfplay.games: is 0, must be from 1 to 65536");
        assert!(error(games(usize::MAX)).starts_with("selfplay.games: "));
        for temperature_early in [f32::NAN, f32::INFINITY, -1.0] {
            let section = SelfplaySection { temperature_early, ..SelfplaySection::default() };
            assert!(error(section).starts_with("selfplay.temperature_early: "));
        }
    }

    #[test]
    fn strings_in_a_section_select_the_enum_variants() {
        let text = r#"{"resignation": "decided", "temperature_decay": "cut", "temperature_plies": 30}"#;
        let section: SelfplaySection = serde_json::from_str(text).unwrap();
        let settings = section.settings(SearchSettings::default()).unwrap();
        assert_eq!(settings.temperature.decay, TemperatureDecay::Cut { plies: 30 });
        assert!(matches!(settings.resignation, Resignation::Below { resigned: Resigned::Decided, .. }));
    }
}
