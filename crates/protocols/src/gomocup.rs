//! The [Gomocup protocol](https://plastovicka.github.io/protocl2en.htm) (Piskvork) for Gomoku: [`serve`].
//!
//! The mandatory commands are supported, and the optional commands `RESTART`, `TAKEBACK` and `ABOUT`. `RECTSTART` and
//! `SWAP2BOARD` are rejected with `ERROR`, everything else with `UNKNOWN`. A `MESSAGE` with the win rate precedes
//! each move.

use std::io::{self, Write};
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use crate::{
    BoardGame, Cell, Clock, Color, Engine, GomokuRule, Host, Input, Line, Move, Ply, Record, Rules, Search, Settings,
    Setup, Size, Stone, TimeControl, winrate,
};

/// Maximum length of an input line, in bytes.
pub const LINE_BYTES_MAX: usize = 4096;
/// Value of `INFO time_left` without a limit.
const UNLIMITED_MS: i64 = 2_147_483_647;
/// Bit of `INFO rule` for a game that continues after a five, which changes no other rule.
const CONTINUOUS: i64 = 2;
/// Number of ways to divide stones of no player between both players.
const DIVISIONS: u8 = 4;

/// The lines of a response, or the reason for an `ERROR`. A command without a response has no lines.
type Answer = Result<Vec<String>, String>;

/// Serves commands until `END` or the end of the input.
///
/// # Errors
/// The output cannot be written, or the engine plays another game.
pub fn serve(
    engine: &mut dyn Engine,
    input: &mut dyn Input,
    output: &mut dyn Write,
    host: &Host<'_>,
    settings: &Settings,
) -> io::Result<()> {
    let identity = engine.identity();
    if identity.game != BoardGame::Gomoku {
        return Err(io::Error::other(format!("the protocol of Gomocup is for Gomoku, not for {:?}", identity.game)));
    }
    let rules = identity.rules;
    let limits = Limits::default();
    Session { engine, input, output, host, settings, rules, record: None, limits, refused_rules: None }.run()
}

/// The time limits set by the manager.
#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    /// Time per move.
    turn: Option<Duration>,
    /// Time for the whole game.
    game: Option<Duration>,
    /// Time left in the game.
    left: Option<Duration>,
}

impl Limits {
    /// Returns the time for the next of `moves_left` own moves; `None` without a limit.
    fn budget(&self, moves_left: u32, lag: Duration) -> Option<Duration> {
        let share = |left: Duration| {
            let mut clock = Clock::new(TimeControl::Absolute { main: self.game.unwrap_or(left) });
            clock.set_left(left, 0);
            clock.budget(moves_left, lag)
        };
        let (turn, share) = (self.turn.map(|turn| turn.saturating_sub(lag)), self.left.and_then(share));
        turn.into_iter().chain(share).min()
    }
}

/// The state of a connection.
struct Session<'a> {
    engine: &'a mut dyn Engine,
    input: &'a mut dyn Input,
    output: &'a mut dyn Write,
    host: &'a Host<'a>,
    settings: &'a Settings,
    rules: Rules,
    /// The game under way, if there is one.
    record: Option<Record>,
    limits: Limits,
    /// The reason why the rules of the last `INFO rule` are not supported. `INFO` has no response, so the next
    /// command that requests a move fails with this reason.
    refused_rules: Option<String>,
}

impl Session<'_> {
    fn run(&mut self) -> io::Result<()> {
        loop {
            let line = match self.input.next() {
                Line::Text(line) => line,
                Line::TooLong => {
                    self.respond(Err("the line is too long".into()))?;
                    continue;
                }
                Line::End => return Ok(()),
            };
            let line = line.trim();
            let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let rest = rest.trim();
            let answer = match name.to_ascii_uppercase().as_str() {
                "" => Ok(Vec::new()),
                "END" => return Ok(()),
                "START" => self.start(rest),
                "RESTART" => self.restart(),
                "BEGIN" => self.think(),
                "TURN" => self.turn(rest),
                "BOARD" => self.board(),
                "INFO" => {
                    self.info(rest);
                    Ok(Vec::new())
                }
                "TAKEBACK" => self.take_back(rest),
                "ABOUT" => Ok(vec![self.about()]),
                "RECTSTART" => Err("boards are square".into()),
                "SWAP2BOARD" => {
                    let lines = self.lines_until_done();
                    lines.and(Err("the opening SWAP2 is not supported".into()))
                }
                _ => Ok(vec!["UNKNOWN command".into()]),
            };
            self.respond(answer)?;
        }
    }

    fn respond(&mut self, answer: Answer) -> io::Result<()> {
        match answer {
            Ok(lines) => {
                for line in lines {
                    writeln!(self.output, "{}", one_line(&line))?;
                }
            }
            Err(reason) => writeln!(self.output, "ERROR {}", one_line(&reason))?,
        }
        self.output.flush()
    }

    fn start(&mut self, size: &str) -> Answer {
        let size = size.parse().ok().and_then(Size::square).ok_or_else(|| format!("`{size}` is not a size"))?;
        self.begin_game(size)
    }

    fn restart(&mut self) -> Answer {
        let size = self.record.as_ref().ok_or("there is no game: START first")?.setup.size;
        self.begin_game(size)
    }

    fn begin_game(&mut self, size: Size) -> Answer {
        let record = Record::new(Setup { rules: self.rules, ..Setup::empty(size) });
        // After a refusal there is no game: the previous game is not continued.
        self.record = None;
        record.replay(self.engine, 0).map_err(|error| error.to_string())?;
        self.record = Some(record);
        self.limits.left = self.limits.game;
        Ok(vec!["OK".into()])
    }

    fn turn(&mut self, cell: &str) -> Answer {
        let color = self.engine.to_move();
        let record = self.record.as_mut().ok_or("there is no game: START first")?;
        let played = parse_cell(cell, record.setup.size)?;
        let ply = Ply { color, played: Move::Place(played) };
        record.play(self.engine, ply).map_err(|error| format!("{cell}: {error}"))?;
        self.think()
    }

    /// Searches a move for the player to move, plays it and returns it. After `END` from the manager, the move is no
    /// longer needed.
    fn think(&mut self) -> Answer {
        if let Some(reason) = &self.refused_rules {
            return Err(reason.clone());
        }
        let color = self.engine.to_move();
        let record = self.record.as_mut().ok_or("there is no game: START first")?;
        let started = (self.host.clock)();
        let stones = record.setup.stones.len() + record.plies.len();
        let moves_left = BoardGame::Gomoku.moves_left(record.setup.size, stones);
        let time = self.limits.budget(moves_left, self.settings.lag).or(self.settings.time);
        let visits = time.is_none().then_some(self.settings.visits);
        let (host, input) = (self.host, &mut *self.input);
        let mut is_late = host.deadline(started, time);
        let searched = self.engine.search(&Search { color, visits, restrictions: &[] }, &mut |_| {
            if is_late() || is_end(input.waiting()) { Break(()) } else { Continue(()) }
        });
        let elapsed = (host.clock)().saturating_sub(started);
        self.limits.left = self.limits.left.map(|left| left.saturating_sub(elapsed));
        if is_end(input.waiting()) {
            return Ok(Vec::new());
        }
        let analysis = searched.map_err(|error| error.to_string())?;
        let choice = analysis.choice;
        let Move::Place(cell) = choice else { return Err("there is no move".into()) };
        record.play(self.engine, Ply { color, played: choice }).map_err(|error| error.to_string())?;
        let (visits, percent) = (analysis.visits, 100.0 * winrate(analysis.value));
        let message = format!("MESSAGE {visits} simulations, win rate {percent:.1} %");
        Ok(vec![message, format!("{},{}", cell.column, cell.row)])
    }

    fn board(&mut self) -> Answer {
        let lines = self.lines_until_done()?;
        let record = self.record.as_mut().ok_or("there is no game: START first")?;
        let start = Setup { rules: self.rules, ..Setup::empty(record.setup.size) };
        let mut replaced = Ok(());
        for division in 0..DIVISIONS {
            replaced = record.replace(self.engine, Record::new(setup_of_board(&lines, &start, division)?));
            // Stones of no player must not complete a five.
            if replaced.is_ok() && self.engine.result().is_err() {
                break;
            }
        }
        replaced.map_err(|error| error.to_string())?;
        self.think()
    }

    /// Reads the lines up to `DONE` or the end of the input; an error if there are more lines than cells on any board.
    fn lines_until_done(&mut self) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        let mut is_refused = false;
        loop {
            match self.input.next() {
                Line::End => break,
                Line::Text(line) if line.trim().eq_ignore_ascii_case("DONE") => break,
                Line::Text(line) if line.trim().is_empty() => {}
                Line::Text(line) if lines.len() < Size::SIDE_MAX * Size::SIDE_MAX => lines.push(line),
                Line::Text(_) | Line::TooLong => is_refused = true,
            }
        }
        if is_refused { Err("the board has too many or too long lines".into()) } else { Ok(lines) }
    }

    fn take_back(&mut self, cell: &str) -> Answer {
        let record = self.record.as_mut().ok_or("there is no game: START first")?;
        let taken = Move::Place(parse_cell(cell, record.setup.size)?);
        if record.plies.last().map(|ply| ply.played) != Some(taken) {
            return Err(format!("{cell} is not the last move"));
        }
        record.undo(self.engine).map_err(|error| error.to_string())?;
        Ok(vec!["OK".into()])
    }

    /// Reads an `INFO`. Unknown keys and values are ignored, as the protocol prescribes.
    fn info(&mut self, text: &str) {
        let Some((key, value)) = text.split_once(char::is_whitespace) else { return };
        let Ok(value) = value.trim().parse::<i64>() else { return };
        let duration = Duration::from_millis(u64::try_from(value).unwrap_or(0));
        let is_limited = value != UNLIMITED_MS;
        match key.to_ascii_lowercase().as_str() {
            "timeout_turn" => self.limits.turn = is_limited.then_some(duration),
            "timeout_match" => {
                self.limits.game = Some(duration).filter(|_| is_limited && value > 0);
                self.limits.left = self.limits.game;
            }
            "time_left" => self.limits.left = is_limited.then_some(duration),
            "rule" => self.set_rule(value),
            _ => {}
        }
    }

    fn set_rule(&mut self, rule: i64) {
        let rule = match rule & !CONTINUOUS {
            0 => GomokuRule::Freestyle,
            1 => GomokuRule::ExactlyFive,
            4 => GomokuRule::Renju,
            _ => {
                self.refused_rules = Some(format!("rule {rule} is not supported"));
                return;
            }
        };
        let (rules, size) = (Rules::Gomoku(rule), self.engine.identity().size);
        let replaced = match &mut self.record {
            Some(record) => {
                let new = Record { setup: Setup { rules, ..record.setup.clone() }, plies: record.plies.clone() };
                record.replace(self.engine, new)
            }
            None => Record::new(Setup { rules, ..Setup::empty(size) }).replay(self.engine, 0),
        };
        match replaced {
            Ok(()) => (self.rules, self.refused_rules) = (rules, None),
            // Games continue by the previous rules, and no move is given until another rule is named.
            Err(error) => self.refused_rules = Some(error.to_string()),
        }
    }

    fn about(&self) -> String {
        let identity = self.engine.identity();
        let quoted = |text: &str| text.replace('"', "'");
        format!("name=\"{}\", version=\"{}\"", quoted(&identity.name), quoted(&identity.version))
    }
}

fn is_end(line: Option<&Line>) -> bool {
    matches!(line, Some(Line::Text(line)) if line.trim().eq_ignore_ascii_case("END"))
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Parses `X,Y`, counted from 0 at the top left.
fn parse_cell(text: &str, size: Size) -> Result<Cell, String> {
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let cell = text.split_once(',').and_then(|(x, y)| size.cell(number(x)?, number(y)?));
    cell.ok_or_else(|| format!("`{text}` is not a cell of the board"))
}

/// Returns the start of a game from a board with lines `X,Y,FIELD` in any order, where FIELD is 1 for own stones, 2
/// for opposing stones, and 3 for stones of completed fives and forbidden stones. The last are divided between both
/// players. The engine is to move, as Black unless it has fewer stones.
fn setup_of_board(lines: &[String], start: &Setup, division: u8) -> Result<Setup, String> {
    let (mut own, mut opponent) = (Vec::new(), Vec::new());
    for line in lines {
        let (cell, field) = line.trim().rsplit_once(',').ok_or_else(|| format!("`{line}` is not X,Y,FIELD"))?;
        let cell = parse_cell(cell, start.size)?;
        // At most two neighbours in any direction belong to the same player.
        let is_own = (cell.column + 2 * cell.row + division) % DIVISIONS < 2;
        match field.trim() {
            "1" => own.push(cell),
            "2" => opponent.push(cell),
            "3" if is_own => own.push(cell),
            "3" => opponent.push(cell),
            field => return Err(format!("the field `{field}` is not supported")),
        }
    }
    let color = if own.len() < opponent.len() { Color::White } else { Color::Black };
    let own = own.into_iter().map(|cell| Stone { color, cell });
    let opponent = opponent.into_iter().map(|cell| Stone { color: color.opponent(), cell });
    Ok(Setup { stones: own.chain(opponent).collect(), to_move: Some(color), ..start.clone() })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell as Shared;

    use super::*;
    use crate::doubles::{FirstCell, Script};

    /// Returns the response lines of an engine, without messages; every reading advances the clock by a millisecond.
    fn answers(text: &str) -> Vec<String> {
        let now = Shared::new(0);
        let clock = || {
            now.set(now.get() + 1);
            Duration::from_millis(now.get())
        };
        let host = Host { clock: &clock, read_file: &|_, _| Err(io::ErrorKind::NotFound.into()) };
        let settings = Settings { visits: 50, time: None, lag: Duration::from_millis(10) };
        let (mut engine, mut output) = (FirstCell::new(BoardGame::Gomoku), Vec::new());
        serve(&mut engine, &mut Script::new(text, 100), &mut output, &host, &settings).unwrap();
        let text = String::from_utf8(output).unwrap();
        let is_answer = |line: &&str| *line != "MESSAGE 50 simulations, win rate 62.5 %";
        text.lines().filter(is_answer).map(str::to_owned).collect()
    }

    #[test]
    fn a_game_is_played_taken_back_and_continued() {
        let text = "START 15\r\nBEGIN\r\nTURN 7,7\r\nTAKEBACK 1,0\r\nTAKEBACK 7,7\r\nTURN 1,0\r\nRESTART\r\nbegin\r\n";
        assert_eq!(answers(text), ["OK", "0,0", "1,0", "OK", "OK", "2,0", "OK", "0,0"]);
    }

    #[test]
    fn a_board_in_any_order_is_set_up_for_either_side() {
        let first = "START 5\nBOARD\n1,0,2\n2,0,2\n0,0,1\n3,0,1\nDONE\nTURN 0,1\n";
        assert_eq!(answers(first), ["OK", "4,0", "1,1"]);
        let second = "START 5\nBOARD\n0,0,2\nDONE\nBOARD\nDONE\nEND\n";
        assert_eq!(answers(second), ["OK", "1,0", "0,0"]);
    }

    #[test]
    fn what_is_wrong_or_unsupported_is_an_error_and_the_session_goes_on() {
        let text = "BEGIN\nRESTART\nSTART 99\nSTART x\nSTART 19\nRECTSTART 10,20\nTURN 20,0\nTURN 3\nTURN 0,0\nTURN 0,0\n\
                    BOARD\n0,0\nDONE\nBOARD\n0,0,4\nDONE\nBOARD\n0,0,1\n0,0,2\nDONE\nTAKEBACK 5,5\n\
                    SWAP2BOARD\n1,1\nDONE\nPLAY 1,1\n\nABOUT\n";
        let expected = [
            "ERROR there is no game: START first",
            "ERROR there is no game: START first",
            "ERROR `99` is not a size",
            "ERROR `x` is not a size",
            "OK",
            "ERROR boards are square",
            "ERROR `20,0` is not a cell of the board",
            "ERROR `3` is not a cell of the board",
            "1,0",
            "ERROR 0,0: the cell is not empty",
            "ERROR `0` is not a cell of the board",
            "ERROR the field `4` is not supported",
            "ERROR a stone lies outside the board, or on another one",
            "ERROR 5,5 is not the last move",
            "ERROR the opening SWAP2 is not supported",
            "UNKNOWN command",
            "name=\"first-cell\", version=\"1.0\"",
        ];
        assert_eq!(answers(text), expected);
    }

    #[test]
    fn a_board_may_have_any_number_of_stones_and_stones_of_no_player() {
        let text = "START 5\nINFO rule 2\nBOARD\n0,0,3\n1,0,3\n2,0,3\n3,0,3\n4,0,3\n0,1,1\n1,1,1\nDONE\nTURN 4,4\n";
        assert_eq!(answers(text), ["OK", "2,1", "3,1"]);
        let start = Setup::empty(Size::square(9).unwrap());
        let lines: Vec<String> = start.size.cells().map(|cell| format!("{},{},3", cell.column, cell.row)).collect();
        for division in 0..DIVISIONS {
            let stones = setup_of_board(&lines, &start, division).unwrap().stones;
            let owner = |column, row| stones.iter().find(|stone| stone.cell == Cell { column, row }).unwrap().color;
            let differ = |cells: [(u8, u8); 3]| {
                let [one, two, three] = cells.map(|(column, row)| owner(column, row));
                one != two || two != three
            };
            for (a, b) in (0..7).flat_map(|a| (0..7).map(move |b| (a, b))) {
                assert!(differ([(a, b), (a + 1, b), (a + 2, b)]) && differ([(a, b), (a, b + 1), (a, b + 2)]));
                assert!(differ([(a, b), (a + 1, b + 1), (a + 2, b + 2)]));
                assert!(differ([(a, b + 2), (a + 1, b + 1), (a + 2, b)]));
            }
        }
    }

    #[test]
    fn an_unsupported_rule_is_reported_when_a_move_is_requested() {
        let text = "START 9\nINFO rule 8\nINFO unknown 3\nINFO folder x\nINFO\nBEGIN\nINFO rule 3\nBEGIN\n\
                    INFO rule -1\nTURN 5,5\nINFO rule 6\nBEGIN\n";
        let expected = ["OK", "ERROR rule 8 is not supported", "0,0", "ERROR rule -1 is not supported", "1,0"];
        assert_eq!(answers(text), expected);
    }

    #[test]
    fn a_move_gets_the_smaller_of_its_own_limit_and_its_share_of_the_game() {
        let ms = Duration::from_millis;
        let budget =
            |turn, left| Limits { turn, left, game: None }.budget(20, ms(100)).map(|budget| budget.as_millis());
        assert_eq!(budget(None, None), None);
        assert_eq!(budget(Some(ms(0)), None), Some(0));
        assert_eq!(budget(Some(ms(5000)), None), Some(4900));
        assert_eq!(budget(Some(ms(5000)), Some(ms(40_000))), Some(1400));
        assert_eq!(budget(Some(ms(1000)), Some(ms(400_000))), Some(900));
    }

    #[test]
    fn the_end_of_the_session_ends_a_search_without_a_move() {
        assert_eq!(answers("START 9\nINFO timeout_turn 100000\nBEGIN\nEND\nTURN 1,1\n"), ["OK"]);
    }
}
