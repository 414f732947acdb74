//! The engine side of a connection: [`serve`].

use std::io::{self, Write};
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use crate::{
    Analysis, BoardGame, Clock, Color, Engine, Error, GameResult, Host, Input, Line, Move, Ply, Record, Search,
    Settings, Setup, Size, TimeControl, Victory,
};

use super::analyze::{Options, Style, info_line};
use super::command::Command;
use super::commands::{self, Action};
use super::failure::Failure;

/// Maximum length of an input line, in bytes: a list of handicap stones on a full board takes 2,000.
pub const LINE_BYTES_MAX: usize = 16 << 10;

/// Number of consecutive passes that end a game.
const PASSES_OF_END: usize = 2;

/// The purpose of a search with analysis lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Stops at the next line of input, like `lz-analyze`.
    Watch,
    /// Stops by itself and plays the move, like `lz-genmove_analyze`.
    Play,
}

/// Serves commands until `quit` or the end of the input.
///
/// # Errors
/// The output cannot be written, or the engine does not start the game in its own [`Identity`](crate::Identity).
pub fn serve(
    engine: &mut dyn Engine,
    input: &mut dyn Input,
    output: &mut dyn Write,
    host: &Host<'_>,
    settings: &Settings,
) -> io::Result<()> {
    let identity = engine.identity();
    let record = Record::new(Setup { komi: identity.komi, rules: identity.rules, ..Setup::empty(identity.size) });
    record.replay(engine, 0).map_err(io::Error::other)?;
    let control = TimeControl::Unlimited;
    let clocks = [Clock::new(control); 2];
    Session { engine, input, output, host, settings, record, control, clocks, is_gogui: false }.run()
}

/// A connection: the game, the clocks, and both ends of the connection.
pub(super) struct Session<'a> {
    pub(super) engine: &'a mut dyn Engine,
    input: &'a mut dyn Input,
    output: &'a mut dyn Write,
    pub(super) host: &'a Host<'a>,
    settings: &'a Settings,
    pub(super) record: Record,
    control: TimeControl,
    /// Time left for Black and White.
    pub(super) clocks: [Clock; 2],
    /// True after a command `gogui-rules_…`: GoGui names the cells of every game as in Go.
    is_gogui: bool,
}

impl Session<'_> {
    fn run(&mut self) -> io::Result<()> {
        loop {
            let line = match self.input.next() {
                Line::Text(line) => line,
                Line::TooLong => {
                    self.respond(None, Err(Failure::LINE_TOO_LONG))?;
                    continue;
                }
                Line::End => return Ok(()),
            };
            let Some(command) = Command::parse(&line) else { continue };
            self.is_gogui |= command.name.starts_with("gogui-rules_");
            let id = command.id.as_deref();
            let arguments: Vec<&str> = command.arguments.iter().map(String::as_str).collect();
            match commands::find(&command.name, self.game()) {
                None => self.respond(id, Err(Failure::UNKNOWN_COMMAND))?,
                Some(Action::Quit) => return self.respond(id, Ok(String::new())),
                Some(Action::Ask(answer)) => {
                    let answer = if arguments.is_empty() { answer(self) } else { Err(Failure::SYNTAX) };
                    self.respond(id, answer)?;
                }
                Some(Action::Answer(answer)) => {
                    let answer = answer(self, &arguments);
                    self.respond(id, answer)?;
                }
                Some(Action::Change(change)) => {
                    let changed = change(self, &arguments);
                    self.respond(id, changed.map(|()| String::new()))?;
                }
                Some(Action::Stream(style, purpose)) => self.stream(id, &arguments, style, purpose)?,
            }
            if commands::is_move(&command.name) {
                self.ponder();
            }
        }
    }

    pub(super) fn game(&self) -> BoardGame {
        self.engine.identity().game
    }

    pub(super) fn size(&self) -> Size {
        self.record.setup.size
    }

    /// Returns the game with the notation of this session.
    pub(super) fn notation(&self) -> BoardGame {
        if self.is_gogui { BoardGame::Go } else { self.game() }
    }

    /// Parses a move. GoGui, which has no name for the swap of Hex, writes it as a pass.
    pub(super) fn parse_move(&self, name: &str) -> Option<Move> {
        let played = self.notation().parse_move(self.size(), name)?;
        let is_swap = self.is_gogui && played == Move::Pass && self.engine.legal_moves().contains(&Move::Swap);
        Some(if is_swap { Move::Swap } else { played })
    }

    /// Returns the name of a move, for [`parse_move`](Self::parse_move).
    pub(super) fn move_name(&self, played: Move) -> String {
        self.notation().move_name(self.size(), played)
    }

    fn respond(&mut self, id: Option<&str>, answer: Result<String, Failure>) -> io::Result<()> {
        let (mark, text) = match answer {
            Ok(text) => ('=', text),
            Err(failure) => ('?', failure.to_string()),
        };
        let (id, body) = (id.unwrap_or(""), body(&text));
        let space = if body.is_empty() || body.starts_with('\n') { "" } else { " " };
        write!(self.output, "{mark}{id}{space}{body}\n\n")?;
        self.output.flush()
    }

    /// Replaces the game; `refused` returns the failure for a refusal by the engine. Both players get the full time.
    pub(super) fn start(&mut self, record: Record, refused: impl FnOnce(&Error) -> Failure) -> Result<(), Failure> {
        let failure = |error: Error| {
            let refused = refused(&error);
            Failure::of(error, refused)
        };
        self.record.replace(self.engine, record).map_err(failure)?;
        self.set_time(self.control);
        Ok(())
    }

    /// Replaces the game while the clocks continue.
    pub(super) fn replace(&mut self, record: Record, refused: Failure) -> Result<(), Failure> {
        self.record.replace(self.engine, record).map_err(|error| Failure::of(error, refused))
    }

    /// Plays a move and appends it to the game.
    pub(super) fn play(&mut self, color: Color, played: Move) -> Result<(), Failure> {
        let ply = Ply { color, played };
        self.record.play(self.engine, ply).map_err(|error| Failure::of(error, Failure::ILLEGAL_MOVE))
    }

    pub(super) fn set_time(&mut self, control: TimeControl) {
        self.control = control;
        self.clocks = [Clock::new(control); 2];
    }

    /// Returns the time for a move of `color`: a share of the clock, or the time in the settings; `None` is unlimited.
    fn budget(&self, color: Color) -> Option<Duration> {
        let moves_left = self.game().moves_left(self.size(), self.record.plies.len());
        self.clocks[color.index()].budget(moves_left, self.settings.lag).or(self.settings.time)
    }

    /// Returns the response to a request for a move after the end of the game; `None` before the end. Referees without
    /// rules ask both players until each resigns or passes. The loser of a game without points resigns.
    fn move_after_end(&mut self, color: Color) -> Option<Move> {
        let is_lost = self.engine.result() == Ok(GameResult::Win { color: color.opponent(), by: Victory::Unspecified });
        let played = if is_lost { Move::Resign } else { Move::Pass };
        self.engine.legal_moves().is_empty().then_some(played)
    }

    /// Searches a move for `color` within the time limit, and subtracts the elapsed time. Does not play the move.
    pub(super) fn choose(&mut self, color: Color) -> Result<Move, Failure> {
        let (started, time) = ((self.host.clock)(), self.budget(color));
        let visits = time.is_none().then_some(self.settings.visits);
        let search = Search { color, visits, restrictions: &[] };
        let host = self.host;
        let mut end_in_time = host.deadline(started, time);
        let searched = self.engine.search(&search, &mut |_| if end_in_time() { Break(()) } else { Continue(()) });
        let analysis = match searched {
            Ok(analysis) => analysis,
            Err(error) => return self.move_after_end(color).ok_or(Failure::Engine(error)),
        };
        self.clocks[color.index()].spend((host.clock)().saturating_sub(started));
        Ok(analysis.choice)
    }

    /// Chooses a move for `color`, plays it unless it resigns, and returns the name.
    pub(super) fn genmove(&mut self, color: Color) -> Result<String, Failure> {
        let choice = self.choose(color)?;
        if choice != Move::Resign {
            self.play(color, choice)?;
        }
        Ok(self.move_name(choice))
    }

    /// Searches and writes analysis lines. A failure before the first line is a failed response; a later failure
    /// closes the response.
    fn stream(&mut self, id: Option<&str>, arguments: &[&str], style: Style, purpose: Purpose) -> io::Result<()> {
        let (game, size) = (self.notation(), self.size());
        let options = match Options::parse(arguments, game, size, self.engine.to_move()) {
            Ok(options) => options,
            Err(failure) => return self.respond(id, Err(failure)),
        };
        let (started, color) = ((self.host.clock)(), options.color);
        let time = if purpose == Purpose::Play { self.budget(color) } else { None };
        let visits = (purpose == Purpose::Play && time.is_none()).then_some(self.settings.visits);
        let search = Search { color, visits, restrictions: &options.restrictions };
        let line = |analysis: &Analysis| info_line(analysis, style, &options, game, size);
        let mut lines = StreamedResponse { output: &mut *self.output, id, is_open: false, failure: None };
        let (host, input) = (self.host, &mut *self.input);
        let mut end_in_time = host.deadline(started, time);
        let mut report_at = options.interval.map(|interval| started + interval);
        let searched = self.engine.search(&search, &mut |analysis| {
            let now = (host.clock)();
            if report_at.is_some_and(|at| now >= at) {
                report_at = options.interval.map(|interval| now + interval);
                lines.write(&line(analysis));
            }
            let is_over = match purpose {
                Purpose::Watch => input.waiting().is_some(),
                Purpose::Play => end_in_time(),
            };
            if is_over || lines.failure.is_some() { Break(()) } else { Continue(()) }
        });
        let analysis = match searched {
            Ok(analysis) => analysis,
            Err(_) if lines.is_open => return lines.end(),
            Err(_) if purpose == Purpose::Play && self.engine.legal_moves().is_empty() => {
                let played = self.genmove(color);
                return self.respond(id, played.map(|name| format!("\nplay {name}")));
            }
            Err(error) => return self.respond(id, Err(error.into())),
        };
        lines.write(&line(&analysis));
        if purpose == Purpose::Watch {
            // After a search that stopped by itself, the response stays open, as during an endless search.
            input.peek();
            return lines.end();
        }
        self.clocks[color.index()].spend((host.clock)().saturating_sub(started));
        let ply = Ply { color, played: analysis.choice };
        let played = if analysis.choice == Move::Resign { Ok(()) } else { self.record.play(&mut *self.engine, ply) };
        if played.is_ok() {
            lines.write(&format!("play {}", game.move_name(size, analysis.choice)));
        }
        lines.end()
    }

    /// Searches until the next line of input, if the engine ponders and the game is not over. Failures are ignored,
    /// since the next move has the same failure.
    fn ponder(&mut self) {
        let passes = self.record.plies.iter().rev().take_while(|ply| ply.played == Move::Pass).count();
        if !self.engine.ponders() || passes >= PASSES_OF_END || self.input.waiting().is_some() {
            return;
        }
        let search = Search { color: self.engine.to_move(), visits: None, restrictions: &[] };
        let input = &mut *self.input;
        let mut progress = |_: &Analysis| if input.waiting().is_some() { Break(()) } else { Continue(()) };
        let _ = self.engine.search(&search, &mut progress);
    }
}

/// Returns the text of a response, without control characters, blank lines and trailing white space, except for a
/// leading line feed.
fn body(text: &str) -> String {
    let clean = |line: &str| line.chars().filter(|c| !c.is_ascii_control() || *c == '\t').collect::<String>();
    let lines = text.lines().map(|line| clean(line.trim_end())).filter(|line| !line.is_empty());
    let first = if text.starts_with('\n') { "\n" } else { "" };
    format!("{first}{}", lines.collect::<Vec<_>>().join("\n"))
}

/// A response written line by line.
struct StreamedResponse<'a> {
    output: &'a mut dyn Write,
    id: Option<&'a str>,
    /// True once the first line of the response is written.
    is_open: bool,
    /// The first write failure.
    failure: Option<io::Error>,
}

impl StreamedResponse<'_> {
    /// Writes a line, unless it is empty; keeps a failure for [`end`](Self::end).
    fn write(&mut self, line: &str) {
        let write = |output: &mut dyn Write, is_open: bool| {
            if !is_open {
                writeln!(output, "={}", self.id.unwrap_or(""))?;
            }
            if !line.is_empty() {
                writeln!(output, "{line}")?;
            }
            output.flush()
        };
        if self.failure.is_none() {
            self.failure = write(self.output, self.is_open).err();
            self.is_open = true;
        }
    }

    fn end(mut self) -> io::Result<()> {
        self.write("");
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        writeln!(self.output)?;
        self.output.flush()
    }
}
