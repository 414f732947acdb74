//! The sections `[search]` and `[selfplay]` of a run file, for every process that needs them.
//!
//! Keys are plain numbers and words. [`SearchSection::settings`] and [`SelfplaySection::settings`] check the ranges and
//! return validated settings.

use std::fmt::Display;

use search::{Dirichlet, EarlyStop, SearchAlgorithm, Settings as SearchSettings, Solver, ValueRange, ValueSpan};
use serde::{Deserialize, Serialize};

/// Maximum number of concurrent games in a thread. More search trees would not fit in the memory of any machine.
const GAMES_MAX: usize = 1 << 16;

/// A key with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} {reason}")]
pub struct Invalid {
    /// The key with the section as a prefix, for example `search.c_init`.
    pub key: &'static str,
    /// The violated requirement and the value, for example `must be above 0, not -1`.
    pub reason: String,
}

/// The section `[search]`: settings of every tree search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchSection {
    /// Search algorithm: `puct` or `gumbel`.
    pub algorithm: AlgorithmName,
    /// `c_base` of pUCT, above 0: the visit count at which the exploration term starts to grow.
    pub c_base: f32,
    /// `c_init` of pUCT: the strength of exploration at low visit counts. The published 1.25 is for values in `[0, 1]`.
    /// For values in `[-1, 1]` as here, the same number explores half as much.
    pub c_init: f32,
    /// First-play reduction, from 0 to 2: an unvisited action has the value of the parent minus this factor times the
    /// square root of the visited prior mass.
    pub fpu_reduction: f32,
    /// Total Dirichlet concentration, divided equally among the legal actions.
    pub dirichlet_total: f32,
    /// Weight of the Dirichlet noise in the root priors of full searches, from 0 to 1.
    pub dirichlet_fraction: f32,
    /// True to back up proven wins, draws and losses.
    pub solver: bool,
    /// True to stop a `puct` search when no action can overtake the most visited action. This applies only to searches
    /// that play the best action: in play, evaluation and the arena, and fast searches of self-play at temperature 0.
    pub early_stop: bool,
    /// Gumbel: maximum number of root actions considered.
    pub gumbel_considered_actions_max: usize,
    /// Gumbel: `c_visit` of the value transformation σ.
    pub gumbel_c_visit: f32,
    /// Gumbel: `c_scale` of the value transformation σ.
    pub gumbel_c_scale: f32,
    /// Gumbel with a learned model: the span of values rescaled to `[0, 1]`, `tree` or `node`.
    pub gumbel_value_span: SpanName,
}

/// The span of values that Gumbel rescales to `[0, 1]` with a learned model: the text format of [`ValueSpan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpanName {
    /// `tree`: the action values of the whole tree.
    Tree,
    /// `node`: the completed action values of each node, as in mctx.
    Node,
}

/// The search algorithm: the text format of [`SearchAlgorithm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlgorithmName {
    /// `puct`: pUCT at every node.
    Puct,
    /// `gumbel`: sequential halving at the root, the improved policy below the root.
    Gumbel,
}

impl Default for SearchSection {
    fn default() -> Self {
        let SearchSettings { c_base, c_init, fpu_reduction, dirichlet, .. } = SearchSettings::default();
        Self {
            algorithm: AlgorithmName::Puct,
            c_base,
            c_init,
            fpu_reduction,
            dirichlet_total: dirichlet.total_concentration,
            dirichlet_fraction: dirichlet.fraction,
            solver: true,
            early_stop: true,
            gumbel_considered_actions_max: 16,
            gumbel_c_visit: 50.0,
            gumbel_c_scale: 1.0,
            gumbel_value_span: SpanName::Tree,
        }
    }
}

impl SearchSection {
    /// Checks the ranges of all keys and returns the settings.
    ///
    /// # Errors
    /// [`Invalid`] names the first key that is out of range.
    pub fn settings(&self) -> Result<SearchSettings, Invalid> {
        check("search.c_base", self.c_base, "above 0", |x| x > 0.0)?;
        check("search.c_init", self.c_init, "at least 0", |x| x >= 0.0)?;
        check("search.fpu_reduction", self.fpu_reduction, "from 0 to 2", |x| (0.0..=2.0).contains(&x))?;
        check("search.dirichlet_total", self.dirichlet_total, "above 0", |x| x > 0.0)?;
        check("search.dirichlet_fraction", self.dirichlet_fraction, "from 0 to 1", is_share)?;
        check("search.gumbel_c_visit", self.gumbel_c_visit, "at least 0", |x| x >= 0.0)?;
        check("search.gumbel_c_scale", self.gumbel_c_scale, "above 0", |x| x > 0.0)?;
        at_least("search.gumbel_considered_actions_max", self.gumbel_considered_actions_max, 1)?;
        let algorithm = match self.algorithm {
            AlgorithmName::Puct => SearchAlgorithm::Puct,
            AlgorithmName::Gumbel => SearchAlgorithm::Gumbel {
                considered_actions_max: self.gumbel_considered_actions_max,
                c_visit: self.gumbel_c_visit,
                c_scale: self.gumbel_c_scale,
                span: match self.gumbel_value_span {
                    SpanName::Tree => ValueSpan::Tree,
                    SpanName::Node => ValueSpan::Node,
                },
            },
        };
        Ok(SearchSettings {
            algorithm,
            c_base: self.c_base,
            c_init: self.c_init,
            fpu_reduction: self.fpu_reduction,
            dirichlet: Dirichlet { total_concentration: self.dirichlet_total, fraction: self.dirichlet_fraction },
            solver: if self.solver { Solver::On } else { Solver::Off },
            early_stop: if self.early_stop { EarlyStop::Decided } else { EarlyStop::Never },
            values: ValueRange::Board,
        })
    }
}

/// The section `[selfplay]`: settings of self-play episodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SelfplaySection {
    /// Concurrent games in each thread.
    pub games: usize,
    /// Maximum leaves of one game in a batch.
    pub leaves_per_game: usize,
    /// Simulations of a full search.
    pub full_simulations: u32,
    /// Maximum simulations of a full search by an actor that would otherwise wait for the learner. With a value of at
    /// most `full_simulations`, the actor waits.
    pub full_simulations_max: u32,
    /// Simulations of a fast search.
    pub fast_simulations: u32,
    /// Probability that a search is full, above 0 and at most 1.
    pub full_search_probability: f32,
    /// Choice of the move after a full search under `gumbel`: the `best` action under the Gumbel noise, or an action
    /// sampled at the temperature from the improved `policy` or from the `visits`.
    pub gumbel_moves: GumbelMoves,
    /// Temperature of the first ply. Full searches under `gumbel` ignore the temperature if `gumbel_moves` is `best`.
    pub temperature_early: f32,
    /// Temperature at the end of the decay.
    pub temperature_late: f32,
    /// Half-life of the temperature decay in plies (`half_life`), or the ply of the temperature drop (`cut`).
    pub temperature_plies: f32,
    /// Decay of the temperature: `half_life` or `cut`.
    pub temperature_decay: DecayName,
    /// Probability that an episode starts with random plies.
    pub random_opening_probability: f32,
    /// Maximum number of random plies at the start of an episode.
    pub opening_plies_max: u16,
    /// Probability that an episode starts as a fork: with the first plies of an earlier episode, then one random ply.
    pub fork_probability: f32,
    /// Choice of fork positions: `any` (uniform), or in proportion to the `surprise` of the search.
    pub fork_positions: ForkPositions,
    /// Treatment of hopeless games: `never` resign, play out with fast searches (`played_out`), or end the game as a
    /// loss (`decided`).
    pub resignation: ResignationName,
    /// Resignation threshold, from -1 to 0: moves with a lower search value count towards resignation.
    pub resign_threshold: f32,
    /// Number of consecutive moves below the threshold after which a player resigns.
    pub resign_moves: u16,
    /// Share of calibration games, from 0 to 1: games played to the end with unchanged searches despite a resignation.
    pub resign_calibration_share: f32,
    /// True to keep the subtree below the played move for the next search.
    pub subtree_reuse: bool,
    /// True to use one evaluation for a position and all images under the symmetries of the game.
    pub symmetry_reuse: bool,
}

/// Choice of the move after a full search under Gumbel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GumbelMoves {
    /// The best action under the Gumbel noise.
    Best,
    /// An action sampled from the improved policy at the temperature.
    Policy,
    /// An action sampled from the visit shares at the temperature.
    Visits,
}

/// Choice of the positions at which episodes fork from an earlier episode.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkPositions {
    /// All positions with equal probability (Go-Exploit).
    #[default]
    Any,
    /// Positions in proportion to the divergence of the search policy from the prior.
    Surprise,
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

impl Default for SelfplaySection {
    /// Returns defaults for small boards: the proportions of AlphaZero at a tenth of the simulation budget, with the
    /// playout cap randomisation of KataGo.
    fn default() -> Self {
        Self {
            games: 64,
            leaves_per_game: 1,
            full_simulations: 96,
            full_simulations_max: 0,
            fast_simulations: 24,
            full_search_probability: 0.25,
            gumbel_moves: GumbelMoves::Best,
            temperature_early: 1.0,
            temperature_late: 0.15,
            temperature_plies: 8.0,
            temperature_decay: DecayName::HalfLife,
            random_opening_probability: 0.0,
            opening_plies_max: 0,
            fork_probability: 0.0,
            fork_positions: ForkPositions::Any,
            resignation: ResignationName::Never,
            resign_threshold: -0.95,
            resign_moves: 3,
            resign_calibration_share: 0.1,
            subtree_reuse: true,
            symmetry_reuse: true,
        }
    }
}

impl Default for Settings {
    /// Returns the default settings of a run file, except that no search stops early.
    fn default() -> Self {
        SelfplaySection::default().settings(SearchSettings::default()).expect("the defaults are in their ranges")
    }
}

impl SelfplaySection {
    /// Checks the ranges of all keys and returns the settings, with the search settings `search`.
    ///
    /// # Errors
    /// [`Invalid`] names the first key that is out of range.
    pub fn settings(&self, search: SearchSettings) -> Result<Settings, Invalid> {
        at_least("selfplay.games", self.games, 1)?;
        ensure(self.games <= GAMES_MAX, "selfplay.games", format_args!("at most {GAMES_MAX}"), self.games)?;
        at_least("selfplay.leaves_per_game", self.leaves_per_game, 1)?;
        at_least("selfplay.full_simulations", self.full_simulations as usize, 1)?;
        at_least("selfplay.fast_simulations", self.fast_simulations as usize, 1)?;
        check("selfplay.full_search_probability", self.full_search_probability, "above 0 and at most 1", |x| {
            is_share(x) && x > 0.0
        })?;
        check("selfplay.temperature_early", self.temperature_early, "at least 0", |x| x >= 0.0)?;
        check("selfplay.temperature_late", self.temperature_late, "at least 0", |x| x >= 0.0)?;
        check("selfplay.temperature_plies", self.temperature_plies, "above 0", |x| x > 0.0)?;
        check("selfplay.random_opening_probability", self.random_opening_probability, "from 0 to 1", is_share)?;
        check("selfplay.fork_probability", self.fork_probability, "from 0 to 1", is_share)?;
        check("selfplay.resign_threshold", self.resign_threshold, "from -1 to 0", |x| (-1.0..=0.0).contains(&x))?;
        at_least("selfplay.resign_moves", usize::from(self.resign_moves), 1)?;
        check("selfplay.resign_calibration_share", self.resign_calibration_share, "from 0 to 1", is_share)?;
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
                fork_positions: self.fork_positions,
            },
            subtree_reuse: if self.subtree_reuse { SubtreeReuse::Keep } else { SubtreeReuse::Discard },
            symmetry_reuse: if self.symmetry_reuse { SymmetryReuse::Share } else { SymmetryReuse::Apart },
        })
    }
}

fn is_share(x: f32) -> bool {
    (0.0..=1.0).contains(&x)
}

fn check(key: &'static str, value: f32, range: &str, is_good: impl Fn(f32) -> bool) -> Result<(), Invalid> {
    ensure(value.is_finite() && is_good(value), key, range, value)
}

fn at_least(key: &'static str, value: usize, least: usize) -> Result<(), Invalid> {
    ensure(value >= least, key, format_args!("at least {least}"), value)
}

fn ensure(is_good: bool, key: &'static str, range: impl Display, value: impl Display) -> Result<(), Invalid> {
    if is_good {
        return Ok(());
    }
    Err(Invalid { key, reason: format!("must be {range}, not {value}") })
}

/// Settings of self-play episodes, with ranges already checked by [`SelfplaySection::settings`].
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Number of concurrent games.
    pub games: usize,
    /// Maximum leaves of each game in a batch. More leaves fill larger batches but slightly weaken the search.
    pub leaves_per_tree: usize,
    /// Settings of each tree search.
    pub search: SearchSettings,
    /// Simulations of a full search. A full search provides a policy as training target.
    pub full_simulations: u32,
    /// Maximum simulations of a full search by an actor that would otherwise wait for the learner. Values up to
    /// `full_simulations` have no effect.
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
        /// Share of calibration games, which are played to the end with unchanged searches despite a resignation, to
        /// measure the rate of wrong resignations.
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
    /// Choice of fork positions.
    pub fork_positions: ForkPositions,
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
    fn the_defaults_are_those_of_the_settings_and_stop_early() {
        let search = SearchSection::default().settings().unwrap();
        assert_eq!(search, SearchSettings { early_stop: EarlyStop::Decided, ..SearchSettings::default() });
        let settings = SelfplaySection::default().settings(search.clone()).unwrap();
        assert_eq!(settings, Settings { search, ..Settings::default() });
    }

    #[test]
    fn a_value_out_of_range_is_named_with_its_key() {
        let section = SearchSection { dirichlet_fraction: 1.5, ..SearchSection::default() };
        assert_eq!(
            section.settings().unwrap_err().to_string(),
            "search.dirichlet_fraction must be from 0 to 1, not 1.5"
        );
        let section = SelfplaySection { games: 0, ..SelfplaySection::default() };
        let error = section.settings(SearchSettings::default()).unwrap_err();
        assert_eq!(error.to_string(), "selfplay.games must be at least 1, not 0");
        let section = SelfplaySection { games: usize::MAX, ..SelfplaySection::default() };
        assert_eq!(section.settings(SearchSettings::default()).unwrap_err().key, "selfplay.games");
        let section = SelfplaySection { temperature_early: f32::NAN, ..SelfplaySection::default() };
        assert_eq!(section.settings(SearchSettings::default()).unwrap_err().key, "selfplay.temperature_early");
    }

    #[test]
    fn strings_in_a_section_select_the_enum_variants() {
        let section: SelfplaySection =
            toml::from_str("resignation = \"decided\"\ntemperature_decay = \"cut\"\ntemperature_plies = 30").unwrap();
        let settings = section.settings(SearchSettings::default()).unwrap();
        assert_eq!(settings.temperature.decay, TemperatureDecay::Cut { plies: 30 });
        assert!(matches!(settings.resignation, Resignation::Below { resigned: Resigned::Decided, .. }));
        let section: SearchSection = toml::from_str("algorithm = \"gumbel\"").unwrap();
        assert_eq!(section.settings().unwrap().algorithm, SearchAlgorithm::GUMBEL);
    }

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
