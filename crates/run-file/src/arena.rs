//! Defines the arena's sections of the run file, as written and as checked settings.

use std::time::Duration;

use bridge::EnvironmentSection;
use game::{Game as _, Scoring};
use games::GameKind;
use inference::{DevicePreference, PrecisionPreference};
use network_cpu::KernelPreference;
use selfplay::SearchSettings;
use serde::{Deserialize, Serialize};
use service::config::{RunSection, Section as _, above_to};
use service::{ConfigError, SecuritySection};
use strength::ledger::ALPHABETA_DEPTH_MAX;
use strength::matches;
use strength::sprt::{self, Sprt};

use crate::WeightsSource;
use crate::search::SearchSection;

/// Error rate of a gate's sequential test: the probability of a false acceptance, and also of a false rejection.
const GATE_ERROR_RATE: f64 = 0.05;
/// Minimum of `episodes`: a single episode has no confidence interval.
const EPISODES_MIN: usize = 2;
/// Maximum of `episodes`: all episodes of a version run concurrently.
const EPISODES_MAX: usize = 65_536;

/// The run file sections for the arena.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Game, seed and directory of the run.
    pub run: RunSection,
    /// Environment in Python, if `run.game` is a Python environment.
    pub environment: EnvironmentSection,
    /// Search algorithm and parameters.
    pub search: SearchSection,
    /// Strength measurement and the gate.
    pub arena: ArenaSection,
    /// Certificates and tokens.
    pub security: SecuritySection,
}

service::section! {
    /// The section `[arena]`.
    #[serde(deny_unknown_fields)]
    pub struct ArenaSection {
        /// Address of the learner, such as `http://127.0.0.1:7002`: the arena fetches and measures every weights
        /// version. With the path of a manifest instead (`runs/NAME/weights/v000012.json`), the arena measures that
        /// version and exits.
        weights: String = "http://127.0.0.1:7002".into();
        /// Simulations per move of a weights version, in matches and on solved positions.
        simulations: u32 = 64, in 1..;
        /// Maximum number of solved positions to measure per version, spread evenly over the positions bundled with the
        /// game; 0 measures all. For a game with an oracle but no bundled positions, up to 300 positions are drawn with
        /// the run's seed; in tic-tac-toe, every line of play is measured instead.
        // The standard error of a measured share stays below 3 percentage points; the measurement takes a second.
        positions: usize = 300, page "games.md#oracles";
        /// True to draw the solved positions with the run's seed and the game's oracle, even if the game has bundled
        /// positions: in Connect Four, from 12 stones on.
        // Bundled positions are the same in all runs of a game, so that runs can be compared.
        draw_positions: bool = false;
        /// Number of rated games per weights version.
        games_per_version: u64 = 48;
        /// Number of openings per match; each opening is played twice, with the sides swapped.
        // 8 openings are 16 concurrent games, which fill the batches of a CPU well.
        openings_per_match: usize = 8, in 1..;
        /// Number of evaluation episodes per weights version. Only for games scored by rewards, which have episodes
        /// instead of rated games.
        // With 32 episodes, the half-width of the mean's confidence interval is about a third of the returns'
        // standard deviation.
        episodes: usize = 32, in EPISODES_MIN..=EPISODES_MAX;
        /// Maximum number of random plies in the opening of a rated game.
        opening_plies_max: u16 = 4;
        /// Simulations per move for each opponent that searches with random playouts: `[50, 200, 1000]` configures
        /// three opponents. The order has no effect.
        playouts: Vec<u32> = vec![50, 200, 1000], in 1..;
        /// Depth in plies for each opponent that searches with alpha-beta and the game's heuristic value. The order has
        /// no effect.
        // Most games have no heuristic value. The presets of games with a heuristic value set the depths.
        alphabeta: Vec<u8> = Vec::new(), in 1..=ALPHABETA_DEPTH_MAX;
        /// Number of earlier weights versions to keep as opponents, spread over the run.
        past_versions: usize = 4, page "matches.md#versions-that-a-run-keeps";
        /// Number of best rated weights versions to keep as opponents, in addition to `past_versions`.
        // The best version remains available after the learner has replaced it.
        best_versions: usize = 1;
        /// Rule by which a weights version is released to actors and inference servers that fetch weights from the
        /// arena: `sprt`. With `none`, every version passes, and the arena serves no weights.
        // Off: in a learning run most versions are stronger, and the games of a test take time.
        gate: GateKind = GateKind::None, page "matches.md#a-version-that-is-weaker-than-an-earlier-one";
        /// With `gate = "sprt"`: Elo difference to the accepted version under hypothesis H0, at least 0.1 below
        /// `gate_elo1`. A version is held back if the test accepts H0.
        // A test with bounds 50 points apart takes some hundred games; an equally strong version passes half of the
        // time.
        gate_elo0: f64 = -25.0;
        /// With `gate = "sprt"`: Elo difference to the accepted version under hypothesis H1. A version passes if the
        /// test accepts H1.
        gate_elo1: f64 = 25.0;
        /// With `gate = "sprt"`: maximum number of games, after which an undecided version is held back.
        gate_games_max: u64 = 1000, in 1..;
        /// Minimum time between the starts of two consecutive measurements of versions, in seconds.
        version_interval_seconds: f64 = 30.0, in 0.0..=1e9;
        /// Average share of one CPU core that measurements may use.
        // Training has priority over measurement.
        cpu_share: f64 = 0.1, in above_to(0.0, 1.0);
        /// Device for evaluation: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`. `auto` times the run's network on the CPU
        /// and the first accelerator, and selects the faster device. An explicitly named device that cannot be used is
        /// an error.
        // A GPU would be shared with self-play, and the arena may use only a small share of a core.
        device: DevicePreference = DevicePreference::Cpu, page "devices.md";
        /// Precision of evaluation: `auto` (the fastest), `f32`, `bf16` or `f16`, as in `actor.precision`.
        precision: PrecisionPreference = PrecisionPreference::Auto;
        /// Evaluator on a CPU: `auto`, `libtorch`, or a variant of the CPU kernel as in `actor.kernel`.
        kernel: KernelPreference = KernelPreference::Auto;
    }
}

/// The setting `arena.gate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateKind {
    /// Every version passes: actors fetch the latest weights from the learner.
    None,
    /// A version passes once a sequential probability ratio test finds the version stronger than the accepted version.
    Sprt,
}

/// The rule of the gate: a weights version passes if a sequential test of a match against the accepted version accepts
/// H1 within `games_max` games.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GateRule {
    /// Sequential test of the match against the accepted version.
    pub sprt: Sprt,
    /// Maximum number of games, including repeated games, after which an undecided version does not pass.
    pub games_max: u64,
}

/// The checked configuration, in domain types.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The game with the board size, in which versions are measured.
    pub game: GameKind,
    /// Settings of the Python environments for evaluation; `None` if the game runs in this process.
    pub environment: Option<bridge::Settings>,
    /// Run directory, and the seed for all random draws.
    pub run: RunSection,
    /// The source of weights.
    pub source: WeightsSource,
    /// Search settings of the measured weights versions.
    pub search: SearchSettings,
    /// The arena section with checked ranges. `positions` is `usize::MAX` if all positions are measured; `playouts` and
    /// `alphabeta` are ascending and without duplicates.
    pub arena: ArenaSection,
    /// Minimum time between the starts of two consecutive measurements of versions.
    pub version_interval: Duration,
    /// The rule by which versions pass; `None` if all pass.
    pub gate: Option<GateRule>,
}

impl Config {
    /// Checks every key and converts the configuration to settings.
    ///
    /// # Errors
    /// [`ConfigError`] names the first key that is out of range.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        self.run.check_ranges("run")?;
        self.arena.check_ranges("arena")?;
        let game = bridge::config::game(&self.run, &self.environment)?;
        let search = self.search.settings()?;
        let mut arena = self.arena.clone();
        let source = if arena.weights.ends_with(".json") {
            WeightsSource::File(arena.weights.clone().into())
        } else {
            WeightsSource::server("arena.weights", &arena.weights, &self.security)?
        };
        arena.playouts.sort_unstable();
        arena.playouts.dedup();
        arena.alphabeta.sort_unstable();
        arena.alphabeta.dedup();
        let interval = if matches!(source, WeightsSource::File(_)) { 0.0 } else { arena.version_interval_seconds };
        let version_interval = Duration::from_secs_f64(interval);
        if arena.draw_positions && !oracles::has_oracle(&game) {
            return Err(ConfigError::invalid("arena.draw_positions", format!("{} has no oracle", self.run.game)));
        }
        if arena.positions == 0 {
            arena.positions = usize::MAX;
        }
        let gate = gate(&arena)?;
        if gate.is_some() && game.rules().spec().scoring == Scoring::Rewards {
            let reason = format!("{} is scored by rewards and has no rated games", self.run.game);
            return Err(ConfigError::invalid("arena.gate", reason));
        }
        let environment = match game {
            GameKind::Recorded(_) => Some(self.environment.settings(&self.run, arena.episodes)?),
            _ => None,
        };
        Ok(Settings { game, environment, run: self.run.clone(), source, search, arena, version_interval, gate })
    }
}

impl Settings {
    /// Returns the settings for rated matches.
    #[must_use]
    pub fn matches(&self) -> matches::Settings {
        let ArenaSection { openings_per_match, opening_plies_max, .. } = self.arena;
        matches::Settings { openings: openings_per_match, opening_plies_max }
    }
}

/// Returns the gate rule from `arena.gate`; `None` if every version passes.
fn gate(arena: &ArenaSection) -> Result<Option<GateRule>, ConfigError> {
    match arena.gate {
        GateKind::None => Ok(None),
        GateKind::Sprt => {
            let (elo0, elo1) = (arena.gate_elo0, arena.gate_elo1);
            let test = sprt::Settings { elo0, elo1, alpha: GATE_ERROR_RATE, beta: GATE_ERROR_RATE };
            let sprt = Sprt::new(test).map_err(|error| ConfigError::invalid("arena.gate_elo0", error))?;
            Ok(Some(GateRule { sprt, games_max: arena.gate_games_max }))
        }
    }
}

#[cfg(test)]
mod tests {
    //! Tests the configuration.

    use super::*;

    fn refusal(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        config.settings().unwrap_err().to_string()
    }

    fn arena(change: impl FnOnce(&mut ArenaSection)) -> String {
        refusal(|config| change(&mut config.arena))
    }

    #[test]
    fn the_defaults_are_settings() {
        let settings = Config::default().settings().unwrap();
        assert_eq!(settings.arena.simulations, 64);
        assert_eq!(settings.arena.playouts, [50, 200, 1000]);
    }

    #[test]
    fn a_manifest_takes_the_place_of_a_learner_and_no_version_follows() {
        let mut config = Config::default();
        assert_eq!(config.settings().unwrap().source, WeightsSource::Server("http://127.0.0.1:7002".into()));
        config.arena.weights = "runs/first/weights/v000012.json".into();
        let settings = config.settings().unwrap();
        assert_eq!(settings.source, WeightsSource::File("runs/first/weights/v000012.json".into()));
        assert!(settings.version_interval.is_zero());
    }

    #[test]
    fn zero_positions_mean_all() {
        let mut config = Config::default();
        config.arena.positions = 0;
        assert_eq!(config.settings().unwrap().arena.positions, usize::MAX);
    }

    #[test]
    fn opponents_are_as_many_as_there_are_budgets_or_depths_from_the_smallest_to_the_greatest() {
        let mut config = Config::default();
        config.arena.playouts = vec![200, 50, 200];
        config.arena.alphabeta = vec![3, 1, 3];
        let arena = config.settings().unwrap().arena;
        assert_eq!((arena.playouts, arena.alphabeta), (vec![50, 200], vec![1, 3]));
    }

    #[test]
    fn values_out_of_range_are_rejected_by_key() {
        assert!(
            refusal(|config| config.run.game = "checkers".into()).starts_with("run.game: `checkers` is not a game")
        );
        assert!(
            arena(|arena| arena.weights = "127.0.0.1:7002".into())
                .starts_with("arena.weights: `127.0.0.1:7002` is not")
        );
        assert_eq!(arena(|arena| arena.simulations = 0), "arena.simulations: is 0, must be at least 1");
        assert_eq!(arena(|arena| arena.openings_per_match = 0), "arena.openings_per_match: is 0, must be at least 1");
        assert_eq!(arena(|arena| arena.playouts = vec![50, 0]), "arena.playouts: is 0, must be at least 1");
        assert_eq!(arena(|arena| arena.alphabeta = vec![2, 15]), "arena.alphabeta: is 15, must be from 1 to 14");
        assert_eq!(arena(|arena| arena.alphabeta = vec![0]), "arena.alphabeta: is 0, must be from 1 to 14");
        assert!(arena(|arena| arena.episodes = 1).starts_with("arena.episodes: "));
        let hypotheses = arena(|arena| (arena.gate, arena.gate_elo0) = (GateKind::Sprt, 30.0));
        assert!(hypotheses.starts_with("arena.gate_elo0: the hypotheses 30 and 25"), "{hypotheses}");
        let drawn = refusal(|config| {
            config.run.game = "go-9".into();
            config.arena.draw_positions = true;
        });
        assert_eq!(drawn, "arena.draw_positions: go-9 has no oracle");
        let rewards = refusal(|config| {
            config.run.game = "catch".into();
            config.arena.gate = GateKind::Sprt;
        });
        assert_eq!(rewards, "arena.gate: catch is scored by rewards and has no rated games");
        for discount in [0.0, 1.5, f32::NAN] {
            let reason = refusal(|config| config.run.discount = discount);
            assert!(reason.starts_with("run.discount: is ") && reason.ends_with("must be above 0 and at most 1"));
        }
        for share in [0.0, -1.0, 1.5, f64::NAN] {
            let reason = format!("arena.cpu_share: is {share}, must be above 0 and at most 1");
            assert_eq!(arena(|arena| arena.cpu_share = share), reason);
        }
        assert!(arena(|arena| arena.version_interval_seconds = -1.0).starts_with("arena.version_interval_seconds: "));
    }
}
