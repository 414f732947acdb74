//! The commands and the responses: [`find`].

use std::num::NonZeroU32;
use std::time::Duration;

use crate::{
    BoardGame, Cell, Color, GameResult, GoRules, Move, Record, Rules, Setup, Size, Status, Stone, TimeControl, Victory,
    sgf,
};

use super::analyze::{Style, number};
use super::failure::Failure;
use super::handicap;
use super::session::{Purpose, Session};

/// Maximum time in a time control, in seconds: the value that KataGo requires.
const SECONDS_MAX: f64 = 2_147_483_647.0;

/// Version of Leela Zero after `0.` that has the same analysis commands. Lizzie expects it after the first dot of
/// `version`, and stops reading at anything else.
const LEELA_ZERO_VERSION: u32 = 17;

/// The execution of a command.
#[derive(Clone, Copy)]
pub(super) enum Action {
    /// Returns the text of a response to a command without arguments.
    Ask(fn(&mut Session<'_>) -> Answer),
    /// Returns the text of a response.
    Answer(fn(&mut Session<'_>, &[&str]) -> Answer),
    /// Changes the session; the response has no text.
    Change(fn(&mut Session<'_>, &[&str]) -> Result<(), Failure>),
    /// Searches and writes analysis lines.
    Stream(Style, Purpose),
    /// Ends the session.
    Quit,
}

/// The text of a response, or the failure.
type Answer = Result<String, Failure>;

/// The games with a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Games {
    All,
    Only(BoardGame),
}

use Action::{Answer as A, Ask, Change, Stream};
use Games::{All, Only};
const GO: Games = Only(BoardGame::Go);

/// All commands, by name.
const COMMANDS: &[(&str, Games, Action)] = &[
    ("analyze", All, Stream(Style::KataGo, Purpose::Watch)),
    ("boardsize", All, Change(boardsize)),
    ("clear_board", All, Change(clear_board)),
    ("clear_cache", All, Change(clear_cache)),
    ("final_score", All, Ask(final_score)),
    ("final_status_list", GO, A(final_status_list)),
    ("fixed_handicap", GO, A(fixed_handicap)),
    ("genmove", All, A(genmove)),
    ("genmove_analyze", All, Stream(Style::KataGo, Purpose::Play)),
    ("gogui-analyze_commands", All, Ask(analyze_commands)),
    ("gogui-play_sequence", All, Change(play_sequence)),
    ("gogui-rules_board", All, Ask(rules_board)),
    ("gogui-rules_board_size", All, Ask(rules_board_size)),
    ("gogui-rules_final_result", All, Ask(rules_final_result)),
    ("gogui-rules_game_id", All, Ask(|session| Ok(format!("{:?}", session.game())))),
    ("gogui-rules_legal_moves", All, Ask(rules_legal_moves)),
    ("gogui-rules_side_to_move", All, Ask(|session| Ok(format!("{:?}", session.engine.to_move()).to_lowercase()))),
    ("gogui-setup", All, Change(setup_stones)),
    ("gogui-setup_player", All, Change(setup_player)),
    ("hexgui-analyze_commands", Only(BoardGame::Hex), Ask(analyze_commands)),
    ("kata-analyze", All, Stream(Style::KataGo, Purpose::Watch)),
    ("kata-genmove_analyze", All, Stream(Style::KataGo, Purpose::Play)),
    ("kata-get-rules", GO, Ask(get_rules)),
    ("kata-set-rules", GO, Change(set_rules)),
    ("kgs-time_settings", All, Change(kgs_time_settings)),
    ("known_command", All, A(known_command)),
    ("komi", All, Change(komi)),
    ("list_commands", All, Ask(list_commands)),
    ("loadsgf", All, A(loadsgf)),
    ("lz-analyze", All, Stream(Style::LeelaZero, Purpose::Watch)),
    ("lz-genmove_analyze", All, Stream(Style::LeelaZero, Purpose::Play)),
    ("name", All, Ask(|session| Ok(session.engine.identity().name.clone()))),
    ("place_free_handicap", GO, A(place_free_handicap)),
    ("play", All, Change(play)),
    ("protocol_version", All, Ask(|_| Ok("2".into()))),
    ("quit", All, Action::Quit),
    ("rectangular_boardsize", All, Change(boardsize)),
    ("reg_genmove", All, A(reg_genmove)),
    ("set_free_handicap", GO, Change(set_free_handicap)),
    ("showboard", All, Ask(|session| Ok(format!("\n{}", session.engine.render())))),
    ("time_left", All, Change(time_left)),
    ("time_settings", All, Change(time_settings)),
    ("undo", All, Change(undo)),
    ("version", All, Ask(version)),
];

/// Returns the action of a command in this game; `None` if the command is unknown.
pub(super) fn find(name: &str, game: BoardGame) -> Option<Action> {
    known(game).find(|(known, _)| *known == name).map(|(_, action)| action)
}

/// Returns true if the command makes the engine play a move, after which it may ponder.
pub(super) fn is_move(name: &str) -> bool {
    name == "genmove" || name.ends_with("genmove_analyze")
}

/// Returns the names and actions of the commands in a game.
fn known(game: BoardGame) -> impl Iterator<Item = (&'static str, Action)> {
    let is_known = move |games: Games| games == All || games == Only(game);
    COMMANDS.iter().filter(move |(_, games, _)| is_known(*games)).map(|(name, _, action)| (*name, *action))
}

/// Returns the arguments if there are exactly N.
fn exactly<'a, const N: usize>(arguments: &[&'a str]) -> Result<[&'a str; N], Failure> {
    arguments.try_into().map_err(|_| Failure::SYNTAX)
}

fn color(text: &str) -> Result<Color, Failure> {
    Color::parse(text).ok_or(Failure::SYNTAX)
}

fn seconds(text: &str) -> Result<Duration, Failure> {
    let seconds: f64 = number(text)?;
    let is_valid = (0.0..=SECONDS_MAX).contains(&seconds);
    Duration::try_from_secs_f64(seconds).ok().filter(|_| is_valid).ok_or(Failure::SYNTAX)
}

fn known_command(session: &mut Session<'_>, arguments: &[&str]) -> Answer {
    let [name] = exactly(arguments)?;
    Ok(find(name, session.game()).is_some().to_string())
}

fn list_commands(session: &mut Session<'_>) -> Answer {
    Ok(known(session.game()).map(|(name, _)| name).collect::<Vec<_>>().join("\n"))
}

/// Returns the version of the engine, and that of Leela Zero after the only dot.
fn version(session: &mut Session<'_>) -> Answer {
    Ok(format!("{}.{LEELA_ZERO_VERSION}", session.engine.identity().version.replace('.', "-")))
}

fn boardsize(session: &mut Session<'_>, arguments: &[&str]) -> Result<(), Failure> {
    let (width, height) = match *arguments {
        [side] => (side, side),
        [width, height] => (width, height),
        _ => return Err(Failure::SYNTAX),
    };
    let size = Size::new(number(width)?, number(height)?).ok_or(Failure::SIZE)?;
    session.start(Record::new(Setup { size, ..without_stones(session) }), |_| Failure::SIZE)
}

fn clear_board(session: &mut Session<'_>, arguments: &[&str]) -> Result<(), Failure> {
    let [] = exactly(arguments)?;
    session.start(Record::new(without_stones(session)), |_| Failure::SIZE)
}

/// Returns the setup of the game without stones.
fn without_stones(session: &Session<'_>) -> Setup {
    Setup { stones: Vec::new(), to_move: None, ..session.record.setup.clone() }
}

fn clear_cache(session: &mut Session<'_>, arguments: &[&str]) -> Result<(), Failure> {
    let [] = exactly(arguments)?;
    session.engine.clear_cache();
    Ok(())
}

/// Sets the komi of Go. Other games have none, but user interfaces send one before every game.
fn komi(session: &mut Session<'_>, arguments: &[&str]) -> Result<(), Failure> {
    let [komi] = exactly(arguments)?;
    let komi = Some(number::<f32>(komi)?).filter(|komi| komi.is_finite()).ok_or(Failure::SYNTAX)?;
    if session.game() != BoardGame::Go {
        return Ok(());
    }
    change(session, |setup| setup.komi = komi, Failure::KOMI)
}

/// Changes the setup of the game under way.
fn change(session: &mut Session<'_>, change: impl FnOnce(&mut Setup), refused: Failure) -> Result<(), Failure> {
    let mut record = session.record.clone();
    change(&mut record.setup);
    session.replace(record, refused)
}

fn get_rules(session: &mut Session<'_>) -> Answer {
    let Rules::Go(rules) = session.record.setup.rules else { return Err(Failure::RULES) };
    Ok(rules.json())
}

fn set_rules(session: &mut Session<'_>, arguments: &[&str]) -> Result<(), Failure> {
    let rules = GoRules::parse(&arguments.join(" ")).ok_or(Failure::SYNTAX)?;
    change(session, |setup| setup.rules = Rules::Go(rules), Failure::RULES)
}

fn play(session: &mut Session<'_>, arguments: &[&str]) -> Result<(), Failure> {
    let [side, name] = exactly(arguments)?;
    let color = color(side)?;
    match session.parse_move(name) {
        // HexGui reports a resignation of the opponent; nothing is played then.
        Some(Move::Resign) if session.game() == BoardGame::Hex => Ok(()),
        Some(Move::Resign) => Err(Failure::SYNTAX),
        Some(played) => session.play(color, played),
        // The other form of the swap: the stone stays and the players exchange the colors, so that White moves next,
        // after a pass of the opponent.
        None if name.eq_ignore_ascii_case("swap-sides") && session.engine.legal_moves().contains(&Move::Swap) => {
            session.play(color.opponent(), Move::Pass)
        }
        None => Err(Failure::SYNTAX),
    }
}

/// Plays all moves in order; if one is refused, none of them.
fn play_sequence(session: &mut Session<'_>, arguments: &[&str]) -> Result<(), Failure> {
    let before = session.record.clone();
    let played = arguments.chunks(2).try_for_each(|pair| play(session, pair));
    if played.is_err() {
        session.replace(before, Failure::UNDO)?;
    }
    played
}

fn genmove(session: &mut Session<'_>, arguments: &[&str]) -> Answer {
    let [side] = exactly(arguments)?;
    let color = color(side)?;
    session.genmove(color)
}

fn reg_genmove(session: &mut Session<'_>, arguments: &[&str]) -> Answer {
    let [side] = exactly(arguments)?;
    let (color, clocks) = (color(side)?, session.clocks);
    let choice = session.choose(color)?;
    // Nothing was played.
    session.clocks = clocks;
    Ok(session.move_name(choice))
}

fn undo(session: &mut Session<'_>, arguments: &[&str]) -> Result<(), Failure> {
    let [] = exactly(arguments)?;
    session.record.undo(session.engine).map_err(|error| Failure::of(error, Failure::UNDO))
}

fn time_settings(session: &mut Session<'_>, arguments: &[&str]) -> Result<(), Failure> {
    let [main, period, moves] = exactly(arguments)?;
    let control = TimeControl::from_time_settings(seconds(main)?, seconds(period)?, number(moves)?);
    session.set_time(control);
    Ok(())
}

fn kgs_time_settings(session: &mut Session<'_>, arguments: &[&str]) -> Result<(), Failure> {
    let control = match *arguments {
        ["none"] => TimeControl::Unlimited,
        ["absolute", main] => TimeControl::Absolute { main: seconds(main)? },
        ["canadian", main, period, moves] => {
            let moves = number::<NonZeroU32>(moves)?.get();
            TimeControl::Canadian { main: seconds(main)?, period: seconds(period)?, moves }
        }
        ["byoyomi", main, period, periods] => {
            let periods = number::<NonZeroU32>(periods)?.get();
            TimeControl::ByoYomi { main: seconds(main)?, period: seconds(period)?, periods }
        }
        _ => return Err(Failure::SYNTAX),
    };
    session.set_time(control);
    Ok(())
}

fn time_left(session: &mut Session<'_>, arguments: &[&str]) -> Result<(), Failure> {
    let [side, left, count] = exactly(arguments)?;
    let color = color(side)?;
    session.clocks[color.index()].set_left(seconds(left)?, number(count)?);
    Ok(())
}

fn final_score(session: &mut Session<'_>) -> Answer {
    let result = session.engine.result().map_err(|error| Failure::of(error, Failure::SCORE))?;
    Ok(result.to_string())
}

fn final_status_list(session: &mut Session<'_>, arguments: &[&str]) -> Answer {
    let [status] = exactly(arguments)?;
    let status = match status {
        "alive" => Status::Alive,
        "seki" => Status::Seki,
        "dead" => Status::Dead,
        _ => return Err(Failure::SYNTAX),
    };
    let strings = session.engine.status(status).map_err(|error| Failure::of(error, Failure::SCORE))?;
    Ok(strings.iter().map(|string| vertices(session, string)).collect::<Vec<_>>().join("\n"))
}

fn vertices(session: &Session<'_>, cells: &[Cell]) -> String {
    let names = cells.iter().map(|cell| session.notation().cell_name(session.size(), *cell));
    names.collect::<Vec<_>>().join(" ")
}

fn fixed_handicap(session: &mut Session<'_>, arguments: &[&str]) -> Answer {
    let [count] = exactly(arguments)?;
    let cells = handicap::fixed(session.size(), number(count)?).ok_or(Failure::STONE_COUNT)?;
    place_handicap(session, &cells)
}

/// Places handicap stones on the fixed places; the engine may place fewer than requested.
fn place_free_handicap(session: &mut Session<'_>, arguments: &[&str]) -> Answer {
    let [count] = exactly(arguments)?;
    let size = session.size();
    let count = Some(number::<usize>(count)?).filter(|count| (2..size.len()).contains(count));
    let count = count.ok_or(Failure::STONE_COUNT)?.min(handicap::fixed_max(size));
    let cells = handicap::fixed(size, count).ok_or(Failure::STONE_COUNT)?;
    place_handicap(session, &cells)
}

fn set_free_handicap(session: &mut Session<'_>, arguments: &[&str]) -> Result<(), Failure> {
    let (game, size) = (session.game(), session.size());
    let cells: Option<Vec<Cell>> = arguments.iter().map(|name| game.parse_cell(size, name)).collect();
    let cells = cells.filter(|cells| (2..size.len()).contains(&cells.len())).ok_or(Failure::VERTEX_LIST)?;
    let is_repeated = |(index, cell): (usize, &Cell)| cells[..index].contains(cell);
    if cells.iter().enumerate().any(is_repeated) {
        return Err(Failure::VERTEX_LIST);
    }
    place_handicap(session, &cells).map(drop)
}

fn place_handicap(session: &mut Session<'_>, cells: &[Cell]) -> Answer {
    let Record { setup, plies } = &session.record;
    if !setup.stones.is_empty() || !plies.is_empty() {
        return Err(Failure::BOARD_NOT_EMPTY);
    }
    let stones = cells.iter().map(|&cell| Stone { color: Color::Black, cell }).collect();
    let set = |setup: &mut Setup| (setup.stones, setup.to_move) = (stones, Some(Color::White));
    change(session, set, Failure::STONE_COUNT)?;
    Ok(vertices(session, cells))
}

/// Places stones of both colors on an empty board.
fn setup_stones(session: &mut Session<'_>, arguments: &[&str]) -> Result<(), Failure> {
    let (notation, size) = (session.notation(), session.size());
    let stone = |pair: &[&str]| -> Result<Stone, Failure> {
        let [side, name] = exactly(pair)?;
        Ok(Stone { color: color(side)?, cell: notation.parse_cell(size, name).ok_or(Failure::SYNTAX)? })
    };
    let stones = arguments.chunks(2).map(stone).collect::<Result<Vec<_>, Failure>>()?;
    if !session.record.setup.stones.is_empty() {
        return Err(Failure::BOARD_NOT_EMPTY);
    }
    let setup = Setup { stones, ..session.record.setup.clone() };
    set_up(session, setup)
}

/// Sets the first player.
fn setup_player(session: &mut Session<'_>, arguments: &[&str]) -> Result<(), Failure> {
    let [side] = exactly(arguments)?;
    let setup = Setup { to_move: Some(color(side)?), ..session.record.setup.clone() };
    set_up(session, setup)
}

/// Replaces the setup of a game without moves. A refusal has the reason of the engine.
fn set_up(session: &mut Session<'_>, setup: Setup) -> Result<(), Failure> {
    if !session.record.plies.is_empty() {
        return Err(Failure::BOARD_NOT_EMPTY);
    }
    session.start(Record::new(setup), |error| error.clone().into())
}

/// Returns the notes about the file.
fn loadsgf(session: &mut Session<'_>, arguments: &[&str]) -> Answer {
    let (path, plies) = match *arguments {
        [path] => (path, usize::MAX),
        [path, number_of_move] => (path, number::<usize>(number_of_move)?.saturating_sub(1)),
        _ => return Err(Failure::SYNTAX),
    };
    let failure = |reason: String| Failure::File { reason };
    let bytes = (session.host.read_file)(path, sgf::BYTES_MAX as u64).map_err(|error| failure(error.to_string()))?;
    let file = sgf::read(&bytes).map_err(|error| failure(error.to_string()))?;
    if file.game != session.game() {
        return Err(failure(format!("the file is a record of {:?}", file.game)));
    }
    if let Some(rest) = file.rest.filter(|_| plies > file.record.plies.len()) {
        return Err(failure(rest.to_string()));
    }
    let current = &session.record.setup;
    let (komi, rules) = (file.komi.unwrap_or(current.komi), current.rules);
    let mut record = Record { setup: Setup { komi, rules, ..file.record.setup }, plies: file.record.plies };
    record.plies.truncate(plies);
    // A resignation changes no position.
    let end = record.plies.iter().position(|ply| ply.played == Move::Resign).unwrap_or(record.plies.len());
    record.plies.truncate(end);
    session.start(record, |error| failure(format!("the moves or the board are impossible: {error}")))?;
    Ok(file.notes.join("\n"))
}

/// Returns the rows of the board from the top: `X` for Black, `O` for White, and `.`.
fn rules_board(session: &mut Session<'_>) -> Answer {
    let text = session.engine.render();
    let skipped = text.lines().count().saturating_sub(session.size().height());
    let is_cell = |c: &char| ['X', 'O', '.'].contains(c);
    let row = |line: &str| line.chars().filter(is_cell).map(String::from).collect::<Vec<_>>().join(" ");
    Ok(text.lines().skip(skipped).map(row).collect::<Vec<_>>().join("\n"))
}

fn rules_board_size(session: &mut Session<'_>) -> Answer {
    let size = session.size();
    Ok(if size.is_square() { size.width().to_string() } else { format!("{} {}", size.width(), size.height()) })
}

/// Returns a sentence for the user.
fn rules_final_result(session: &mut Session<'_>) -> Answer {
    let is_over = session.engine.legal_moves().is_empty();
    Ok(match session.engine.result().ok().filter(|_| is_over) {
        None => "The game is not over".into(),
        Some(GameResult::Win { color, by: Victory::Points(points) }) => format!("{color:?} wins by {points} points"),
        Some(GameResult::Win { color, .. }) => format!("{color:?} wins"),
        Some(GameResult::Draw | GameResult::Void) => "The game is a draw".into(),
    })
}

fn rules_legal_moves(session: &mut Session<'_>) -> Answer {
    Ok(session.engine.legal_moves().iter().map(|played| session.move_name(*played)).collect::<Vec<_>>().join(" "))
}

/// Lists the menu entries for GoGui and HexGui, as `type/label/command`.
fn analyze_commands(_: &mut Session<'_>) -> Answer {
    Ok("string/Show Board/showboard\nstring/Final Score/final_score\nstring/Best Move/reg_genmove %m".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_sorted_and_differ() {
        assert!(COMMANDS.is_sorted_by(|(a, ..), (b, ..)| a < b));
    }
}
