//! Defines [`GtpEngine`], which lets a program play in matches over the Go Text Protocol.
//!
//! An engine consists of several processes with the same command line. Each process plays one complete game at a time,
//! and receives each move once. A process that exits, hangs or breaks the protocol is restarted once per game, and
//! receives all moves again. The rules of this program apply: an engine that plays an illegal move loses the game, and
//! an engine that refuses a legal move makes the game void. Start with [`GtpEngine::start`].

mod error;
mod session;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use game::Game as _;
use games::{AnyGame, AnyPosition};

pub use self::error::Error;
use self::session::{Answer, Common, Rules, Session};
use crate::matches::{Failure, Ongoing, Participant, Reply};
use crate::notation::Notation;

/// Number of consecutive games that an engine may lose by failing before the match stops.
const FAILURES_MAX: u32 = 3;

/// The command line of an engine, and limits on the processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Name in errors and reports.
    pub name: String,
    /// The program and arguments.
    pub words: Vec<String>,
    /// Number of processes, and so the maximum number of concurrent games; at least 1.
    pub processes: usize,
    /// Maximum time for a response. The limit for the first response of a process is at least a minute.
    pub response_time_max: Duration,
}

/// A function that returns true once the match is stopped. The processes are then killed at once.
pub type Interrupt = Arc<dyn Fn() -> bool + Send + Sync>;

/// The name and the version that an engine reports; empty if it reports none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Name of the engine.
    pub name: String,
    /// Version of the engine.
    pub version: String,
}

/// A program that plays over the Go Text Protocol. Dropping the engine kills the processes.
pub struct GtpEngine {
    settings: Settings,
    rules: Rules,
    identity: Identity,
    interrupt: Interrupt,
    sessions: Vec<Session>,
    /// Number of games in a row, up to the latest game, that the engine lost by failing.
    failures: u32,
}

impl GtpEngine {
    /// Starts the first process, asks for the engine's name and version, and sets up a game.
    ///
    /// # Errors
    /// The protocol has no name for the game, or the process cannot be started or refuses the game.
    pub fn start(game: &AnyGame, settings: Settings, interrupt: Interrupt) -> Result<Self, Error> {
        let game_name = || game.spec().name.clone();
        let notation = Notation::of(game).ok_or_else(|| Error::Game { game: game_name() })?;
        let komi = match game {
            AnyGame::Go(go) => Some(go.komi().points()),
            _ => None,
        };
        let rules = Rules { notation, komi };
        let mut sessions: Vec<Session> = (0..settings.processes.max(1)).map(|_| Session::default()).collect();
        let common = Common { settings: &settings, interrupt: &interrupt, rules: &rules };
        let identity = sessions[0].introduce(common);
        let name = settings.name.clone();
        let identity = identity.map_err(|source| Error::Start { name, game: game_name(), source: source.into() })?;
        Ok(Self { settings, rules, identity, interrupt, sessions, failures: 0 })
    }

    /// Returns the name and the version that the engine reports.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the command line and the limits.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Assigns an idle process to each game without a process.
    fn seat(&mut self, games: &[Ongoing<'_, AnyPosition>]) {
        for Ongoing { number, .. } in games {
            if self.sessions.iter().all(|session| session.game() != Some(*number)) {
                let idle = self.sessions.iter_mut().find(|session| session.game().is_none());
                idle.expect("each game has a process").seat(*number);
            }
        }
    }

    /// Returns the response of each game's process. All processes compute concurrently.
    fn answers(&mut self, game: &AnyGame, games: &[Ongoing<'_, AnyPosition>]) -> Result<Vec<(usize, Answer)>, Error> {
        let Self { settings, rules, interrupt, sessions, .. } = self;
        let common = Common { settings, interrupt, rules };
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for session in sessions {
                let Some(index) = games.iter().position(|ongoing| Some(ongoing.number) == session.game()) else {
                    continue;
                };
                let answer = move || (index, session.answer(common, game, &games[index]));
                let spawned = thread::Builder::new().name("engine-game".into()).spawn_scoped(scope, answer);
                threads.push(spawned.map_err(|source| Error::Thread { name: settings.name.clone(), source })?);
            }
            Ok(threads.into_iter().map(|thread| thread.join().expect("the thread of a game does not panic")).collect())
        })
    }
}

impl Participant<AnyGame> for GtpEngine {
    fn concurrent_games_max(&self) -> usize {
        self.sessions.len()
    }

    fn reply(&mut self, game: &AnyGame, games: &[Ongoing<'_, AnyPosition>]) -> Result<Vec<Reply>, Failure> {
        self.seat(games);
        let mut replies: Vec<Option<Reply>> = games.iter().map(|_| None).collect();
        for (index, answer) in self.answers(game, games)? {
            replies[index] = Some(match answer {
                Answer::Reply(reply) => reply,
                Answer::Interrupted => return Err(Failure::Interrupted),
                Answer::Failed(source) => {
                    self.failures += 1;
                    if self.failures >= FAILURES_MAX {
                        let name = self.settings.name.clone();
                        return Err(Error::Failing { name, games: self.failures, source: source.into() }.into());
                    }
                    Reply::Forfeit { reason: session::phrase(&source.to_string()) }
                }
            });
        }
        Ok(replies.into_iter().map(|reply| reply.expect("each game has a response")).collect())
    }

    fn end_game(&mut self, number: usize) {
        if let Some(session) = self.sessions.iter_mut().find(|session| session.game() == Some(number))
            && !session.leave()
        {
            self.failures = 0;
        }
    }
}
