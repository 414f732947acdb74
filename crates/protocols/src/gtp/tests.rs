//! Tests of both sides of GTP: every command with a test engine, and a controller with such an engine and with
//! processes that violate the protocol.

use std::cell::Cell;
use std::io;
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::*;
use crate::doubles::{FirstCell, Script};
use crate::{Background, BoardGame, Color, Host, Input, Move, Ply, Settings, Size};

/// Time limit for engines that respond. No test waits this long.
const PATIENCE: Duration = Duration::from_secs(60);
const SETTINGS: Settings = Settings { visits: 50, time: None, lag: Duration::from_millis(10) };

fn file(path: &str) -> io::Result<Vec<u8>> {
    match path {
        "go.sgf" => Ok(b"(;GM[1]SZ[5]KM[0.5];B[aa];W[bb];B[cc])".to_vec()),
        "hex.sgf" => Ok(b"(;GM[11]SZ[5];B[a1])".to_vec()),
        "bad.sgf" => Ok(b"x".to_vec()),
        "illegal.sgf" => Ok(b"(;GM[1]SZ[5];B[aa];W[aa])".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Returns the responses of a session. Every reading advances the clock by a millisecond.
fn serve_all(engine: &mut FirstCell, input: &mut dyn Input) -> Vec<String> {
    let now = Cell::new(0);
    let clock = || {
        now.set(now.get() + 1);
        Duration::from_millis(now.get())
    };
    let host = Host { clock: &clock, read_file: &|path, _| file(path) };
    let mut output = Vec::new();
    serve(engine, input, &mut output, &host, &SETTINGS).unwrap();
    let text = String::from_utf8(output).unwrap();
    assert!(text.is_empty() || text.ends_with("\n\n"), "{text}");
    text.split_terminator("\n\n").map(str::to_owned).collect()
}

fn responses(engine: &mut FirstCell, text: &str) -> Vec<String> {
    serve_all(engine, &mut Script::new(text, 40))
}

/// Checks the response to each command of a session.
fn check(game: BoardGame, exchanges: &[(&str, &str)]) {
    let commands: Vec<&str> = exchanges.iter().map(|(command, _)| *command).collect();
    let responses = responses(&mut FirstCell::new(game), &commands.join("\n"));
    for (index, (command, expected)) in exchanges.iter().enumerate() {
        assert_eq!(responses.get(index).map(String::as_str), Some(*expected), "{command} (command {index})");
    }
    assert_eq!(responses.len(), exchanges.len());
}

const GO: &[(&str, &str)] = &[
    ("protocol_version", "= 2"),
    ("1 name", "=1 first-cell"),
    ("  23\tversion # a comment", "=23 1-0.17"),
    ("known_command genmove", "= true"),
    ("known_command hexgui-analyze_commands", "= false"),
    ("nonsense", "? unknown command"),
    ("7", "?7 unknown command"),
    ("boardsize 5", "="),
    ("2 boardsize 99", "?2 unacceptable size"),
    ("boardsize 20", "? unacceptable size"),
    ("boardsize x", "? syntax error"),
    ("clear_board", "="),
    ("komi 6.5", "="),
    ("komi nan", "? syntax error"),
    ("komi 500", "? unacceptable komi"),
    ("play b A5", "="),
    ("play white a5", "? illegal move"),
    ("play w Z9", "? syntax error"),
    ("play x A1", "? syntax error"),
    ("play w resign", "? syntax error"),
    ("play w PASS", "="),
    ("genmove b", "= B5"),
    ("reg_genmove w", "= C5"),
    ("reg_genmove w", "= C5"),
    ("undo", "="),
    ("undo", "="),
    ("undo", "="),
    ("undo", "? cannot undo"),
    ("showboard", "=\n.....\n.....\n.....\n.....\n....."),
    ("final_score", "= W+6.5"),
    ("play B a1", "="),
    ("final_status_list alive", "= A1"),
    ("final_status_list dead", "="),
    ("final_status_list seki", "="),
    ("time_settings 60 10 5", "="),
    ("time_settings -1 0 0", "? syntax error"),
    ("time_left b 30 0", "="),
    ("time_left b 1e400 0", "? syntax error"),
    ("kgs-time_settings none", "="),
    ("kgs-time_settings absolute 10", "="),
    ("kgs-time_settings canadian 10 5 3", "="),
    ("kgs-time_settings byoyomi 10 5 3", "="),
    ("kgs-time_settings canadian 10 5 0", "? syntax error"),
    ("kgs-time_settings none", "="),
    ("fixed_handicap 2", "? invalid number of stones"),
    ("boardsize 9", "="),
    ("fixed_handicap 3", "= C3 G7 C7"),
    ("fixed_handicap 2", "? board not empty"),
    ("genmove w", "= A9"),
    ("clear_board", "="),
    ("place_free_handicap 1", "? invalid number of stones"),
    ("place_free_handicap 20", "= C3 G7 C7 G3 C5 G5 E3 E7 E5"),
    ("clear_board", "="),
    ("set_free_handicap A1", "? bad vertex list"),
    ("set_free_handicap A1 A1", "? bad vertex list"),
    ("set_free_handicap A1 pass", "? bad vertex list"),
    ("set_free_handicap A1 B1", "="),
    (
        "kata-get-rules",
        "= {\"ko\":\"POSITIONAL\",\"scoring\":\"AREA\",\"tax\":\"NONE\",\"suicide\":true,\"hasButton\":false,\
         \"whiteHandicapBonus\":\"0\"}",
    ),
    ("kata-set-rules aga-button", "? unsupported rules"),
    ("kata-set-rules japanese", "="),
    (
        "kata-get-rules",
        "= {\"ko\":\"SIMPLE\",\"scoring\":\"TERRITORY\",\"tax\":\"SEKI\",\"suicide\":false,\"hasButton\":false,\
         \"whiteHandicapBonus\":\"0\"}",
    ),
    (
        "kata-set-rules {\"ko\":\"SIMPLE\", \"scoring\":\"AREA\", \"tax\":\"ALL\", \"suicide\":false, \
         \"hasButton\":false, \"whiteHandicapBonus\":\"N-1\", \"friendlyPassOk\":true}",
        "=",
    ),
    ("loadsgf go.sgf", "="),
    ("showboard", "=\nX....\n.O...\n..X..\n.....\n....."),
    ("loadsgf go.sgf 2", "="),
    ("final_score", "= B+0.5"),
    ("loadsgf none.sgf", "? cannot load file: entity not found"),
    ("loadsgf hex.sgf", "? cannot load file: the file is a record of Hex"),
    ("loadsgf bad.sgf", "? cannot load file: at byte 1: expected `(;`"),
    ("loadsgf illegal.sgf", "? cannot load file: the moves or the board are impossible: the cell is not empty"),
    ("final_score", "= B+0.5"),
    ("clear_cache", "="),
    ("rectangular_boardsize 5 3", "="),
    (
        "8 lz-genmove_analyze w interval 1000 maxmoves 3",
        "=8\ninfo move A3 visits 50 winrate 6250 prior 667 lcb 4908 order 0 pv A3\nplay A3",
    ),
    ("kata-genmove_analyze b avoid b B3,C3 1 ownership true minmoves 1", KATAGO_LINE),
    ("genmove_analyze w maxmoves 0", "=\nplay B3"),
    ("lz-genmove_analyze w nonsense 1", "? syntax error"),
    ("play b pass", "="),
    ("play w pass", "="),
    ("3 genmove b", "=3 pass"),
    ("lz-analyze", "? the game is over"),
    ("4 quit", "=4"),
];

const KATAGO_LINE: &str = "=\ninfo move D3 visits 50 edgeVisits 50 utility 0.250000 winrate 0.625000 \
    scoreMean 0.000000 scoreStdev 0.0 scoreLead 0.000000 scoreSelfplay 0.000000 prior 0.071429 lcb 0.490808 \
    utilityLcb -0.018384 weight 50 order 0 pv D3\nplay D3";

#[test]
fn every_command_of_go_has_its_response_and_every_fault_the_message_of_the_specification() {
    check(BoardGame::Go, GO);
}

#[test]
fn every_listed_command_is_known_and_refuses_surplus_arguments() {
    for game in BoardGame::ALL {
        let list = responses(&mut FirstCell::new(game), "list_commands").remove(0);
        for name in list.trim_start_matches("= ").lines().filter(|name| *name != "quit") {
            let known = responses(&mut FirstCell::new(game), &format!("known_command {name}"));
            assert_eq!(known, ["= true"], "{name}");
            let surplus = responses(&mut FirstCell::new(game), &format!("5 {name} x x x x x x"));
            assert!(surplus.len() == 1 && surplus[0].starts_with("?5 "), "{name}: {surplus:?}");
        }
    }
}

#[test]
fn hex_is_spoken_as_by_hexgui() {
    check(
        BoardGame::Hex,
        &[
            ("boardsize 5 5", "="),
            ("komi 1", "="),
            ("komi x", "? syntax error"),
            ("play b e5", "="),
            ("play white swap-sides", "="),
            ("play white swap-sides", "? syntax error"),
            ("undo", "="),
            ("play white swap-pieces", "="),
            ("play black swap-pieces", "? illegal move"),
            ("genmove black", "= a1"),
            ("showboard", "=\nX....\n.....\n.....\n.....\n....O"),
            ("final_score", "? cannot score"),
            ("play white resign", "="),
            ("known_command hexgui-analyze_commands", "= true"),
            ("boardsize 1", "="),
            ("play b a1", "="),
            ("final_score", "= B+"),
        ],
    );
}

#[test]
fn after_the_end_each_player_passes_or_resigns_however_often_it_is_asked() {
    check(
        BoardGame::Go,
        &[
            ("boardsize 2", "="),
            ("komi 0.5", "="),
            ("play b A1", "="),
            ("gogui-rules_final_result", "= The game is not over"),
            ("play w pass", "="),
            ("play b pass", "="),
            ("gogui-rules_legal_moves", "="),
            ("gogui-rules_final_result", "= Black wins by 0.5 points"),
            ("genmove w", "= pass"),
            ("genmove w", "= pass"),
            ("genmove_analyze b", "=\nplay pass"),
            ("lz-genmove_analyze w allow w A1 1", "=\nplay pass"),
            ("undo", "="),
            ("final_score", "= B+0.5"),
        ],
    );
    check(
        BoardGame::Gomoku,
        &[
            ("boardsize 1", "="),
            ("play b A1", "="),
            ("play w pass", "="),
            ("play b pass", "="),
            ("genmove w", "= resign"),
            ("reg_genmove w", "= resign"),
            ("7 lz-genmove_analyze w", "=7\nplay resign"),
            ("genmove b", "= pass"),
            ("play b pass", "="),
            ("genmove w", "= resign"),
            ("kata-analyze", "? the game is over"),
        ],
    );
}

#[test]
fn gogui_reads_every_game_in_the_notation_of_go() {
    check(
        BoardGame::Hex,
        &[
            ("boardsize 10 2", "="),
            ("play b j1", "="),
            ("undo", "="),
            ("gogui-rules_game_id", "= Hex"),
            ("gogui-rules_board_size", "= 10 2"),
            ("play b J2", "="),
            ("gogui-rules_side_to_move", "= white"),
            ("play w PASS", "="),
            ("gogui-rules_board", "= . . . . . . . . O .\n. . . . . . . . . ."),
            ("gogui-rules_legal_moves", "= A2 B2 C2 D2 E2 F2 G2 H2 K2 A1 B1 C1 D1 E1 F1 G1 H1 J1 K1 pass"),
            ("genmove b", "= A2"),
            ("boardsize 9", "="),
            ("gogui-rules_board_size", "= 9"),
        ],
    );
}

#[test]
fn stones_are_set_up_in_any_order_on_an_empty_board() {
    check(
        BoardGame::Go,
        &[
            ("boardsize 3", "="),
            ("gogui-setup w C3 b A3 W B2 B B3", "="),
            ("gogui-rules_board", "= X X O\n. O .\n. . ."),
            ("gogui-setup_player w", "="),
            ("gogui-rules_side_to_move", "= white"),
            ("gogui-setup_player b", "="),
            ("gogui-rules_side_to_move", "= black"),
            ("gogui-setup b A1", "? board not empty"),
            ("play b A1", "="),
            ("gogui-setup_player w", "? board not empty"),
            ("undo", "="),
            ("undo", "? cannot undo"),
            ("clear_board", "="),
            ("gogui-setup b A1 w A1", "? a stone lies outside the board, or on another one"),
            ("gogui-setup b A1 w", "? syntax error"),
            ("gogui-setup b pass", "? syntax error"),
            ("gogui-setup", "="),
            ("gogui-setup_player", "? syntax error"),
            ("final_status_list alive", "="),
        ],
    );
}

#[test]
fn a_sequence_is_played_to_its_end_or_not_at_all() {
    check(
        BoardGame::Go,
        &[
            ("boardsize 3", "="),
            ("gogui-setup w C3", "="),
            ("gogui-play_sequence b A1 w PASS B B1", "="),
            ("gogui-play_sequence w C1 b A1", "? illegal move"),
            ("gogui-play_sequence w C1 b", "? syntax error"),
            ("gogui-play_sequence w C1 b resign", "? syntax error"),
            ("gogui-rules_board", "= . . O\n. . .\nX X ."),
            ("gogui-rules_side_to_move", "= white"),
            ("undo", "="),
            ("gogui-rules_board", "= . . O\n. . .\nX . ."),
            ("gogui-play_sequence", "="),
        ],
    );
    let hex = [("boardsize 3", "="), ("gogui-play_sequence b a1 w swap-pieces b b2", "="), ("undo", "=")];
    check(BoardGame::Hex, &[&hex[..], &[("showboard", "=\nO..\n...\n...")]].concat());
}

#[test]
fn an_analysis_is_reported_until_the_next_line_even_an_empty_one() {
    for next in ["name", "\nname"] {
        let responses = responses(&mut FirstCell::new(BoardGame::Go), &format!("6 lz-analyze b 1\n{next}"));
        let lines: Vec<&str> = responses[0].lines().collect();
        assert_eq!(lines[0], "=6");
        assert!(lines.len() >= 4, "{lines:?}");
        let visits = |line: &str| line.split(' ').nth(4).unwrap().parse::<u32>().unwrap();
        let visits: Vec<u32> = lines[1..].iter().map(|line| visits(line)).collect();
        assert!(visits.is_sorted() && visits[0] < visits[2], "{visits:?}");
        assert_eq!(responses[1..], ["= first-cell"]);
    }
}

#[test]
fn an_analysis_without_an_interval_has_one_line_when_the_input_ends() {
    let responses = responses(&mut FirstCell::new(BoardGame::Go), "kata-analyze pvVisits true maxmoves 1");
    assert_eq!(responses.len(), 1);
    assert_eq!(responses[0].lines().count(), 2, "{responses:?}");
    assert!(responses[0].contains(" pv A9 pvVisits "), "{responses:?}");
}

#[test]
fn a_move_takes_its_share_of_the_time() {
    let text = "time_settings 3 0 0\nlz-genmove_analyze b\nlz-genmove_analyze b";
    let responses = responses(&mut FirstCell::new(BoardGame::Go), text);
    let visits = |response: &str| response.lines().nth(1).unwrap().split(' ').nth(4).unwrap().parse::<u32>().unwrap();
    // Two seconds among 30 moves, less the lag, are 57 readings of the clock: two per slice of eight simulations.
    let [first, second] = [visits(&responses[1]), visits(&responses[2])];
    assert!((220..=240).contains(&first) && second <= first, "{first}, {second}");
}

#[test]
fn a_move_has_the_time_of_the_settings_unless_the_controller_sets_one() {
    let visits = |text: &str| {
        let now = Cell::new(0);
        let clock = || {
            now.set(now.get() + 1);
            Duration::from_millis(now.get())
        };
        let host = Host { clock: &clock, read_file: &|path, _| file(path) };
        let (settings, mut output) = (Settings { time: Some(Duration::from_millis(30)), ..SETTINGS }, Vec::new());
        let mut input = Script::new(text, 40);
        serve(&mut FirstCell::new(BoardGame::Go), &mut input, &mut output, &host, &settings).unwrap();
        let text = String::from_utf8(output).unwrap();
        let info = text.lines().find(|line| line.starts_with("info")).unwrap().to_owned();
        info.split(' ').nth(4).unwrap().parse::<u32>().unwrap()
    };
    // A slice of eight simulations reads the clock twice.
    let [own, longer] = ["lz-genmove_analyze b", "time_settings 0 1 1\nlz-genmove_analyze b"].map(visits);
    assert!((100..=130).contains(&own) && longer > 10 * own, "{own}, {longer}");
}

#[test]
fn a_player_without_a_move_resigns_or_passes_and_ponders_only_if_it_is_set_to() {
    let text = "boardsize 1\nplay b A1\ngenmove w";
    let mut engine = FirstCell::new(BoardGame::Go);
    assert_eq!(responses(&mut engine, text)[2], "= pass");
    assert_eq!(engine.searches, 1);
    let mut engine = FirstCell::new(BoardGame::Go);
    (engine.resigns, engine.ponders) = (true, true);
    assert_eq!(responses(&mut engine, text)[2], "= resign");
    assert_eq!(engine.searches, 2);
}

#[test]
fn lines_of_any_length_and_bytes_are_answered() {
    let mut bytes = vec![b'x'; LINE_BYTES_MAX + 1];
    bytes.extend(b"\nname\n\xff\xfe\n#\n\x01\x02\n9 known_command \xc3\x28\nprotocol_version");
    let mut input = Background::start(io::Cursor::new(bytes), LINE_BYTES_MAX).unwrap();
    let responses = serve_all(&mut FirstCell::new(BoardGame::Go), &mut input);
    assert_eq!(responses, ["? line too long", "= first-cell", "? unknown command", "=9 false", "= 2"]);
}

/// Returns a controller for an engine in a thread.
fn controlled(game: BoardGame) -> (Controller, JoinHandle<()>) {
    let (engine_input, controller_output) = io::pipe().unwrap();
    let (controller_input, mut engine_output) = io::pipe().unwrap();
    let run = move || {
        let host = Host { clock: &|| Duration::ZERO, read_file: &|path, _| file(path) };
        let mut input = Background::start(engine_input, LINE_BYTES_MAX).unwrap();
        serve(&mut FirstCell::new(game), &mut input, &mut engine_output, &host, &SETTINGS).unwrap();
    };
    (Controller::over("an engine", controller_output, controller_input).unwrap(), thread::spawn(run))
}

#[test]
fn a_controller_plays_with_an_engine() {
    let (mut controller, engine) = controlled(BoardGame::Go);
    let size = Size::square(5).unwrap();
    assert_eq!(controller.send("boardsize 5", PATIENCE).unwrap(), "");
    let first = controller.genmove(BoardGame::Go, size, Color::Black, PATIENCE).unwrap();
    assert_eq!(first, Move::Place(crate::Cell { column: 0, row: 0 }));
    let error = controller.play(BoardGame::Go, size, Ply { color: Color::White, played: first }, PATIENCE).unwrap_err();
    assert_eq!(error.to_string(), "an engine at `play W A5`: the engine responded `illegal move`");
    controller.play(BoardGame::Go, size, Ply { color: Color::White, played: Move::Pass }, PATIENCE).unwrap();
    assert!(controller.send("list_commands", PATIENCE).unwrap().lines().count() > 20);
    for command in ["", " ", "name\nquit", &"x".repeat(5000)] {
        assert!(matches!(controller.send(command, PATIENCE).unwrap_err().fault, Fault::Command));
    }
    assert_eq!(controller.send("quit", PATIENCE).unwrap(), "");
    engine.join().unwrap();
}

/// Starts a shell script as an engine.
#[allow(clippy::disallowed_methods, reason = "the tests start the engines that the controller drives")]
fn shell(script: &str) -> Controller {
    Controller::start("a script", Command::new("sh").args(["-c", script])).unwrap()
}

#[test]
fn an_engine_that_hangs_dies_or_breaks_the_protocol_is_killed_and_named() {
    let fault = |script: &str, timeout: Duration| {
        let mut controller = shell(script);
        let error = controller.send("name", timeout).unwrap_err();
        assert!(error.to_string().starts_with("a script at `name`: "), "{error}");
        assert!(matches!(controller.send("name", timeout).unwrap_err().fault, Fault::Ended));
        error.fault
    };
    // The shell starts another process, which holds the pipe too.
    let hangs = fault("sleep 1000; true", Duration::from_millis(50));
    assert!(matches!(hangs, Fault::Timeout { .. }), "{hangs}");
    let dies = fault("read line; exit 3", PATIENCE);
    assert!(matches!(dies, Fault::Ended), "{dies}");
    let other = fault("read line; printf '=99 x\\n\\n'; sleep 1000", PATIENCE);
    assert!(matches!(other, Fault::Id { expected: 1, found: 99 }), "{other}");
    let floods = fault("read line; printf '=1 x\\n'; yes", PATIENCE);
    assert!(matches!(floods, Fault::TooLong { .. }), "{floods}");
}

#[test]
fn a_wait_is_interrupted_and_the_engine_killed() {
    let mut controller = shell("sleep 1000");
    controller.interrupt_when(|| true);
    let error = controller.send("genmove b", PATIENCE).unwrap_err();
    assert!(matches!(error.fault, Fault::Interrupted), "{error}");
    assert!(matches!(controller.send("name", PATIENCE).unwrap_err().fault, Fault::Ended));
}

#[test]
fn a_greeting_is_skipped_and_an_answer_without_a_move_is_an_error() {
    let mut controller =
        shell("echo hello; read line; printf '=1 resign\\n\\n'; read line; printf '=2 Z99\\n\\n'; read line");
    let genmove = |controller: &mut Controller| {
        controller.genmove(BoardGame::Go, Size::square(9).unwrap(), Color::White, PATIENCE)
    };
    assert_eq!(genmove(&mut controller).unwrap(), Move::Resign);
    let error = genmove(&mut controller).unwrap_err();
    assert_eq!(error.to_string(), "a script at `genmove W`: `Z99` is not a move");
}

#[test]
fn responses_need_no_ids_and_may_have_comments_blank_lines_and_any_case() {
    let mut controller = shell(
        r"printf 'hello\n\n'; read line; printf '= x\r\n\r\n\r\n# a comment\n\n'; read line; printf '= d4 # good\n\n';
        read line; printf '=PASS\n\n'; read line; printf '? no\n\n'; read line; printf '=9 x\n\n'; sleep 1000",
    );
    let size = Size::square(9).unwrap();
    assert_eq!(controller.send("name", PATIENCE).unwrap(), "x");
    let mut genmove = || controller.genmove(BoardGame::Go, size, Color::White, PATIENCE).unwrap();
    assert_eq!([genmove(), genmove()], [Move::Place(crate::Cell { column: 3, row: 5 }), Move::Pass]);
    assert!(matches!(controller.send("a", PATIENCE).unwrap_err().fault, Fault::Refused { message } if message == "no"));
    let other = controller.send("b", PATIENCE).unwrap_err().fault;
    assert!(matches!(other, Fault::Id { expected: 5, found: 9 }), "{other}");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the tests start the engines that the controller drives")]
fn a_program_that_does_not_exist_is_an_error() {
    let error = Controller::start("none", &mut Command::new("no-such-program-of-go")).unwrap_err();
    assert!(error.to_string().starts_with("none at `start`: "), "{error}");
}
