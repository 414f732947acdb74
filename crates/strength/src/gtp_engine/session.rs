//! Defines [`Session`], a process of an engine with the game that the process plays.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use game::{Action, Game as _};
use games::AnyGame;
use protocols::gtp::{self, Controller, Fault};
use protocols::{Color, Move, Ply};
use service::inherited;

use super::{Identity, Interrupt, Settings};
use crate::matches::{Ongoing, Reply};
use crate::notation::Notation;

/// Minimum time limit for the first response of a process, which may load weights before it responds.
const START_TIME: Duration = Duration::from_secs(60);
/// Maximum number of characters that a report quotes from an engine.
const PHRASE_CHARACTERS_MAX: usize = 200;

/// The game and its settings, in the terms of the protocol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) notation: Notation,
    /// Komi: the points that White gets in Go.
    pub(super) komi: Option<f32>,
}

/// Settings and rules that all processes of an engine share.
#[derive(Clone, Copy)]
pub(super) struct Common<'a> {
    pub(super) settings: &'a Settings,
    pub(super) interrupt: &'a Interrupt,
    pub(super) rules: &'a Rules,
}

/// An engine process and a game; either may be absent.
#[derive(Debug, Default)]
pub(super) struct Session {
    process: Option<Controller>,
    seat: Option<Seat>,
}

/// The game that a session plays.
#[derive(Debug)]
struct Seat {
    /// Number of the game.
    number: usize,
    /// Number of actions that the process has received; `None` if the game is not set up in the process.
    known_plies: Option<usize>,
    /// True if a process has been restarted for this game.
    is_restarted: bool,
    /// True if the engine has lost the game by failing.
    has_failed: bool,
}

/// The response of a session to a position.
pub(super) enum Answer {
    Reply(Reply),
    /// The process failed again after the restart, or does not choose a move.
    Failed(gtp::Error),
    /// The match is stopped.
    Interrupted,
}

/// The step at which a command failed.
enum Failure {
    /// The process failed, or failed to start or to set up a game.
    Process(gtp::Error),
    /// The engine refuses a move of the game.
    Refusal(gtp::Error),
    /// The engine refuses to choose a move, or responds without a move.
    Choice(gtp::Error),
}

impl Session {
    /// Returns the number of the session's game.
    pub(super) fn game(&self) -> Option<usize> {
        self.seat.as_ref().map(|seat| seat.number)
    }

    /// Assigns a game.
    pub(super) fn seat(&mut self, number: usize) {
        self.seat = Some(Seat { number, known_plies: None, is_restarted: false, has_failed: false });
    }

    /// Ends the game of the session. Returns true if the engine has lost the game by failing.
    pub(super) fn leave(&mut self) -> bool {
        self.seat.take().is_some_and(|seat| seat.has_failed)
    }

    /// Starts the process, sets up a game, and returns the engine's name and version.
    pub(super) fn introduce(&mut self, common: Common<'_>) -> Result<Identity, gtp::Error> {
        let time_max = common.settings.response_time_max;
        let process = self.process(common)?;
        let name = process.send("name", time_max.max(START_TIME))?;
        // The specification demands both commands, but a program without a version also plays.
        let version = match process.send("version", time_max) {
            Err(error) if !matches!(error.fault, Fault::Refused { .. }) => return Err(error),
            answer => answer.unwrap_or_default(),
        };
        set_up(process, common.rules, time_max)?;
        Ok(Identity { name: phrase(&name), version: phrase(&version) })
    }

    /// Returns the response to the position of the session's game. A process that fails is restarted once per game.
    pub(super) fn answer(
        &mut self,
        common: Common<'_>,
        game: &AnyGame,
        ongoing: &Ongoing<'_, games::AnyPosition>,
    ) -> Answer {
        loop {
            let error = match self.try_answer(common, game, ongoing) {
                Ok(reply) => return Answer::Reply(reply),
                Err(Failure::Refusal(error)) => {
                    return Answer::Reply(Reply::Void { reason: phrase(&error.to_string()) });
                }
                Err(Failure::Process(error)) if matches!(error.fault, Fault::Interrupted) => {
                    return Answer::Interrupted;
                }
                Err(Failure::Choice(error)) => {
                    self.fail();
                    return Answer::Failed(error);
                }
                Err(Failure::Process(error)) => error,
            };
            self.process = None;
            let seat = self.seat.as_mut().expect("the session has a game");
            seat.known_plies = None;
            if std::mem::replace(&mut seat.is_restarted, true) {
                self.fail();
                return Answer::Failed(error);
            }
            tracing::warn!(%error, "restarting the engine");
        }
    }

    fn fail(&mut self) {
        self.seat.iter_mut().for_each(|seat| seat.has_failed = true);
    }

    /// Sends the moves up to the position, and lets the process choose a move.
    fn try_answer(
        &mut self,
        common: Common<'_>,
        game: &AnyGame,
        ongoing: &Ongoing<'_, games::AnyPosition>,
    ) -> Result<Reply, Failure> {
        let Common { settings, rules, .. } = common;
        let (notation, time_max) = (rules.notation, settings.response_time_max);
        let is_new = self.process.is_none();
        let known_plies = self.seat.as_ref().and_then(|seat| seat.known_plies);
        let process = self.process(common).map_err(Failure::Process)?;
        if is_new {
            process.send("name", time_max.max(START_TIME)).map_err(Failure::Process)?;
        }
        let known_plies = match known_plies {
            Some(plies) => plies,
            None => set_up(process, rules, time_max).map(|()| 0).map_err(Failure::Process)?,
        };
        let plies = ongoing.actions.len();
        for (at, &action) in ongoing.actions.iter().enumerate().skip(known_plies) {
            let ply = ply(notation, at, action);
            process.play(notation.game(), notation.size(), ply, time_max).map_err(Failure::of_move)?;
        }
        let color = Color::from(game.to_move(ongoing.position));
        let chosen = process.genmove(notation.game(), notation.size(), color, time_max).map_err(Failure::of_choice)?;
        if let Some(seat) = &mut self.seat {
            // The engine has played its own move.
            seat.known_plies = Some(plies + 1);
        }
        Ok(reply(rules, game, ongoing.position, color, chosen))
    }

    /// Returns the process, and starts it if there is none.
    fn process(&mut self, common: Common<'_>) -> Result<&mut Controller, gtp::Error> {
        let process = match self.process.take() {
            Some(process) => process,
            None => start(common.settings, common.interrupt)?,
        };
        Ok(self.process.insert(process))
    }
}

impl Failure {
    fn of_move(error: gtp::Error) -> Self {
        match error.fault {
            Fault::Refused { .. } => Self::Refusal(error),
            _ => Self::Process(error),
        }
    }

    fn of_choice(error: gtp::Error) -> Self {
        match error.fault {
            Fault::Refused { .. } | Fault::Move { .. } => Self::Choice(error),
            _ => Self::Process(error),
        }
    }
}

fn start(settings: &Settings, interrupt: &Interrupt) -> Result<Controller, gtp::Error> {
    let (program, arguments) = settings.words.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
    let mut command = Command::new(program);
    // Some engines print pages of search output on standard error, which would hide the progress of the match.
    inherited::restrict(&mut command, &[]).args(arguments).stderr(Stdio::null());
    let mut process = Controller::start(&settings.name, &mut command)?;
    let interrupt = Arc::clone(interrupt);
    process.interrupt_when(move || interrupt());
    Ok(process)
}

/// Sets up the start of a game.
fn set_up(process: &mut Controller, rules: &Rules, time_max: Duration) -> Result<(), gtp::Error> {
    let Rules { notation, komi } = rules;
    process.send(&format!("boardsize {}", notation.size().width()), time_max)?;
    if let Some(komi) = komi {
        process.send(&format!("komi {komi}"), time_max)?;
    }
    process.send("clear_board", time_max).map(drop)
}

/// Returns the move of the action at this ply. The players alternate in all games, even after passes.
fn ply(notation: Notation, at: usize, action: Action) -> Ply {
    let color = if at.is_multiple_of(2) { Color::Black } else { Color::White };
    Ply { color, played: notation.to_move(color, action) }
}

/// Converts an engine's move to a reply, by the rules of this program.
fn reply(rules: &Rules, game: &AnyGame, position: &games::AnyPosition, color: Color, chosen: Move) -> Reply {
    if chosen == Move::Resign {
        return Reply::Resign;
    }
    let notation = rules.notation;
    match notation.to_action(color, chosen).filter(|&action| game.is_legal(position, action)) {
        Some(action) => Reply::Play(action),
        None => {
            let name = notation.game().move_name(notation.size(), chosen);
            Reply::Forfeit { reason: format!("{name} is illegal by the rules of {}", game.spec().name) }
        }
    }
}

/// Shortens a text to one line of limited length.
pub(super) fn phrase(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(PHRASE_CHARACTERS_MAX).collect()
}
