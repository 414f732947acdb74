//! The players of a match: weights of runs, models, fixed opponents and engines, each with a clock that times moves.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use games::{AnyGame, AnyPosition};
use rand_chacha::ChaCha8Rng;
use strength::contestant::{Contestant, fixed_contestant};
use strength::gtp_engine::GtpEngine;
use strength::ledger;
use strength::matches::{Failure, Ongoing, Participant, Reply};
use weights::WeightsVersion;

use crate::{eval, trained};

/// A player on the command line: `RUN`, `RUN@VERSION`, `random`, `playouts-N` or `alphabeta-D`. The suffix
/// `:SIMULATIONS` sets the simulations per move of a run. The name of a [`Model`] or an engine may replace `RUN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Text on the command line, which names the player in reports.
    pub(super) name: String,
    /// The player that the text selects.
    pub(super) player: EntryPlayer,
}

/// The kind of player that an [`Entry`] describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EntryPlayer {
    /// Weights of a run, a model or an engine.
    Run {
        /// Name of the run, model or engine.
        run: String,
        /// Weights version; `None` for the latest.
        version: Option<WeightsVersion>,
        /// Simulations per move; `None` for the number that applies to all players.
        simulations: Option<u32>,
    },
    /// A player without a network.
    Fixed(ledger::Player),
}

impl EntryPlayer {
    /// Creates an entry for the latest weights of a run.
    pub(super) fn newest(run: &str) -> Self {
        Self::Run { run: run.to_owned(), version: None, simulations: None }
    }

    /// Returns the name of the run, model or engine; `None` for a player without a network.
    pub(super) fn run(&self) -> Option<&String> {
        match self {
            Self::Run { run, .. } => Some(run),
            Self::Fixed(_) => None,
        }
    }
}

impl FromStr for Entry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |expected: &str| format!("`{text}` is not a player: expected {expected}");
        let name = text.to_owned();
        let (rest, simulations) = match text.split_once(':') {
            None => (text, None),
            Some((rest, simulations)) => {
                let number = simulations.parse::<u32>();
                (rest, Some(number.map_err(|_| wrong("simulations after `:`, as in first:400"))?))
            }
        };
        if let Some(player) = fixed(rest)? {
            let entry = Self { name, player: EntryPlayer::Fixed(player) };
            return if simulations.is_none() { Ok(entry) } else { Err(wrong("simulations only after a run")) };
        }
        let (run, version) = match rest.split_once('@') {
            None => (rest, None),
            Some((run, version)) => {
                let version = trained::version(version).map_err(|_| wrong("a version after `@`, as in first@12"))?;
                (run, Some(version))
            }
        };
        Ok(Self { name, player: EntryPlayer::Run { run: run.to_owned(), version, simulations } })
    }
}

/// A model that plays under a name, as `NAME=PATH`; `NAME` alone is a bundled model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Model {
    /// Name of the player.
    pub(super) name: String,
    /// Path of the model, or the name of a bundled model.
    pub(super) path: PathBuf,
}

impl FromStr for Model {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, path) = text.split_once('=').unwrap_or((text, text));
        if !is_name(name) {
            return Err(format!("`{text}` is not a model: expected NAME or NAME=PATH, and `{name}` {NO_NAME}"));
        }
        Ok(Self { name: name.to_owned(), path: path.into() })
    }
}

/// Reason why a text cannot be the name of a model or an engine.
pub(super) const NO_NAME: &str = "is empty, contains `@` or `:`, or is the name of another player";

/// Returns true if a model or an engine may have this name.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.parse::<Entry>().is_ok_and(|entry| entry.player == EntryPlayer::newest(name))
}

/// Parses the name of a player without a network; `None` if `name` is the name of a run, model or engine.
///
/// # Errors
/// The name is that of a fixed opponent with an invalid number, such as `alphabeta-20`.
fn fixed(name: &str) -> Result<Option<ledger::Player>, String> {
    match name.parse() {
        Ok(ledger::Player::Version(_)) => Ok(None),
        Ok(player) => Ok(Some(player)),
        Err(error) => {
            let kind = name.trim_end_matches(|character: char| character.is_ascii_digit());
            if kind.len() < name.len() && ["playouts-", "alphabeta-"].contains(&kind) { Err(error) } else { Ok(None) }
        }
    }
}

/// A player of a match, with a clock.
pub(super) struct Contender {
    /// Name of the player in reports.
    pub(super) name: String,
    /// Network, fixed opponent or engine that chooses the moves.
    pub(super) player: Player,
    /// Clock of the time spent on moves.
    pub(super) clock: Clock,
}

/// A player that is ready to choose moves.
pub(super) enum Player {
    /// A network with search settings.
    Network(eval::Player),
    /// A player without a network.
    Fixed(ledger::Player),
    /// A program that plays over the Go Text Protocol.
    Engine {
        /// Running processes of the engine.
        engine: GtpEngine,
        /// Command line that starts the engine.
        command: String,
    },
}

/// The total time that a player has spent on moves.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Clock {
    spent: Duration,
    moves: usize,
}

impl Contender {
    /// Creates a player whose clock is at zero.
    pub(super) fn new(name: &str, player: Player) -> Self {
        Self { name: name.to_owned(), player, clock: Clock::default() }
    }

    /// Returns the player as a participant, and times each move. Players without a network use `rng` for random
    /// choices.
    pub(super) fn participant(&mut self, rng: ChaCha8Rng) -> Timed<'_> {
        let Self { player, clock, .. } = self;
        let side = match player {
            Player::Network(player) => Side::Contestant(Box::new(player.contestant(player.simulations))),
            Player::Fixed(player) => {
                Side::Contestant(fixed_contestant(*player, rng).expect("a fixed player needs no weights"))
            }
            Player::Engine { engine, .. } => Side::Engine(engine),
        };
        Timed { side, clock }
    }
}

impl Clock {
    /// Returns the mean time per move in milliseconds.
    pub(super) fn move_ms(&self) -> f64 {
        1e3 * self.spent.as_secs_f64() / self.moves.max(1) as f64
    }
}

/// A participant that adds the time of every move to a clock.
pub(super) struct Timed<'a> {
    side: Side<'a>,
    clock: &'a mut Clock,
}

/// The source of a participant's moves: a contestant in this process, or an engine.
enum Side<'a> {
    Contestant(Box<dyn Contestant<AnyGame> + 'a>),
    Engine(&'a mut GtpEngine),
}

impl Side<'_> {
    fn participant(&mut self) -> &mut dyn Participant<AnyGame> {
        match self {
            Self::Contestant(contestant) => contestant,
            Self::Engine(engine) => *engine,
        }
    }
}

impl Participant<AnyGame> for Timed<'_> {
    fn concurrent_games_max(&self) -> usize {
        match &self.side {
            Side::Contestant(contestant) => contestant.concurrent_games_max(),
            Side::Engine(engine) => engine.concurrent_games_max(),
        }
    }

    fn reply(&mut self, game: &AnyGame, games: &[Ongoing<'_, AnyPosition>]) -> Result<Vec<Reply>, Failure> {
        let start = Instant::now();
        let replies = self.side.participant().reply(game, games);
        self.clock.spent += start.elapsed();
        self.clock.moves += games.len();
        replies
    }

    fn end_game(&mut self, number: usize) {
        self.side.participant().end_game(number);
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, EntryPlayer, Model, WeightsVersion, ledger};

    fn run(run: &str, version: Option<u64>, simulations: Option<u32>) -> EntryPlayer {
        EntryPlayer::Run { run: run.to_owned(), version: version.map(WeightsVersion), simulations }
    }

    #[test]
    fn a_model_is_a_bundled_name_or_a_name_with_a_path() {
        for (text, name, path) in [("hex-7", "hex-7", "hex-7"), ("old=models/hex=7", "old", "models/hex=7")] {
            assert_eq!(text.parse(), Ok(Model { name: name.to_owned(), path: path.into() }));
        }
        for text in ["", "=models/hex-7", "random=models/hex-7", "models@3", "a:9=models/hex-7"] {
            let error = text.parse::<Model>().unwrap_err();
            assert!(error.contains("expected NAME or NAME=PATH"), "{error}");
        }
    }

    #[test]
    fn a_player_is_a_run_with_version_and_budget_or_an_opponent_without_a_network() {
        for (text, player) in [
            ("first", run("first", None, None)),
            ("first@12", run("first", Some(12), None)),
            ("first@v12:400", run("first", Some(12), Some(400))),
            ("v3:0", run("v3", None, Some(0))),
            ("alphabeta-run", run("alphabeta-run", None, None)),
            ("random", EntryPlayer::Fixed(ledger::Player::Random)),
            ("playouts-50", EntryPlayer::Fixed(ledger::Player::Playouts { simulations: 50 })),
        ] {
            assert_eq!(text.parse(), Ok(Entry { name: text.to_owned(), player }));
        }
        for (text, reason) in [
            ("first@", "a version after `@`"),
            ("first@new", "a version after `@`"),
            ("first:many", "simulations after `:`"),
            ("random:50", "simulations only after a run"),
            ("alphabeta-20", "a depth from 1 to 14"),
            ("playouts-0", "expected `random`"),
        ] {
            let error = text.parse::<Entry>().unwrap_err();
            assert!(error.contains(reason) && error.contains(text), "{error}");
        }
    }
}
