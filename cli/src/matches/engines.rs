//! The command-line options for engines that play over the Go Text Protocol (GTP): [`Options`].

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use games::AnyGame;
use protocols::gtp::split_words;
use service::Drain;
use strength::gtp_engine::{self, GtpEngine, Interrupt};

use super::contender::{Entry, EntryPlayer, NO_NAME, Player, is_name};

/// Maximum number of processes per engine.
const PROCESSES_MAX: usize = 256;
/// Maximum of `--engine-seconds-max`: one day.
const SECONDS_MAX: f64 = 86_400.0;

/// Options for players that are GTP engines.
#[derive(Debug, Clone, clap::Args)]
// Skips the derived group, whose name `Options` is also the name of the group for run options.
#[group(skip)]
pub(super) struct Options {
    /// GTP engine that plays as the player NAME; may be repeated.
    ///
    /// Engines play Go, Hex, Othello and Gomoku: --engine gnugo='gnugo --mode gtp --level 1'.
    #[arg(long = "engine", value_name = "NAME=COMMAND")]
    engines: Vec<Definition>,

    /// Number of processes per engine [default: the number of cores].
    ///
    /// Each process plays one game at a time.
    #[arg(long, value_name = "N", requires = "engines")]
    engine_processes: Option<usize>,

    /// Time limit for each move of an engine, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    engine_seconds_max: f64,
}

/// An engine on the command line: the name of the player and the command line of the program, as `NAME=COMMAND`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Definition {
    name: String,
    command: String,
    words: Vec<String>,
}

impl FromStr for Definition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |reason: String| format!("`{text}` is not an engine: {reason}");
        let (name, command) = text
            .split_once('=')
            .ok_or_else(|| wrong("expected a name and a command line, as in gnugo='gnugo --mode gtp'".to_owned()))?;
        if !is_name(name) {
            return Err(wrong(format!("`{name}` {NO_NAME}")));
        }
        let words = split_words(command).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { name: name.to_owned(), command: command.to_owned(), words })
    }
}

impl Options {
    /// Checks that the options are valid and match the players on the command line.
    pub(super) fn check(&self, players: &[Entry]) -> anyhow::Result<()> {
        if let Some(processes) = self.engine_processes {
            let is_possible = (1..=PROCESSES_MAX).contains(&processes);
            ensure!(is_possible, "--engine-processes: must be from 1 to {PROCESSES_MAX}, not {processes}");
        }
        let seconds = self.engine_seconds_max;
        let is_possible = seconds > 0.0 && seconds <= SECONDS_MAX;
        ensure!(is_possible, "--engine-seconds-max: must be above 0 and at most {SECONDS_MAX}, not {seconds}");
        for (index, Definition { name, .. }) in self.engines.iter().enumerate() {
            let is_repeated = self.engines[..index].iter().any(|other| other.name == *name);
            ensure!(!is_repeated, "--engine: {name} is defined twice");
            let uses: Vec<&Entry> = players.iter().filter(|entry| entry.player.run() == Some(name)).collect();
            ensure!(!uses.is_empty(), "--engine: {name} is not a player of the match");
            if let Some(entry) = uses.iter().find(|entry| entry.player != EntryPlayer::newest(name)) {
                bail!("{}: the engine {name} has neither weights versions nor simulations", entry.name);
            }
        }
        Ok(())
    }

    /// Returns true if `player` names an engine.
    pub(super) fn has(&self, player: &EntryPlayer) -> bool {
        self.engines.iter().any(|engine| player.run() == Some(&engine.name))
    }

    /// Starts the engine `name`. A drain stops the engine.
    pub(super) fn start(&self, name: &str, game: &AnyGame, drain: &Drain) -> anyhow::Result<Player> {
        let found = self.engines.iter().find(|engine| engine.name == name);
        let Definition { name, command, words } = found.with_context(|| format!("find engine {name}"))?.clone();
        let settings = gtp_engine::Settings {
            name,
            words,
            processes: self.engine_processes.unwrap_or_else(service::machine::cores),
            response_time_max: Duration::from_secs_f64(self.engine_seconds_max),
        };
        let drain = drain.clone();
        let interrupt: Interrupt = Arc::new(move || drain.started());
        Ok(Player::Engine { engine: GtpEngine::start(game, settings, interrupt)?, command })
    }
}
