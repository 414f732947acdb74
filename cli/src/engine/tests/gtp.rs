//! Tests of GTP sessions with every command in `docs/engines.md`, including error responses.

use std::io::{BufRead as _, Write as _};
use std::thread;

use protocols::doubles::Script;
use protocols::{Background, Settings, gtp};

use super::*;

const SETTINGS: Settings = Settings { visits: 30, time: None, lag: Duration::from_millis(10) };

fn file(path: &str) -> io::Result<Vec<u8>> {
    match path {
        "go.sgf" => Ok(b"(;GM[1]SZ[5]KM[0.5];B[aa];W[bb];B[cc])".to_vec()),
        "large.sgf" => Ok(b"(;GM[1]SZ[19];B[aa])".to_vec()),
        "illegal.sgf" => Ok(b"(;GM[1]SZ[5];B[aa];W[aa])".to_vec()),
        "stones.sgf" => Ok(b"(;GM[1]SZ[5]AB[bb][dd];B[bd];W[db])".to_vec()),
        "handicap.sgf" => Ok(b"(;GM[1]SZ[5]HA[2]AB[bb][dd];W[bd];B[db])".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Returns the responses to the commands of a GTP session.
fn responses(game: &str, commands: &str) -> Vec<String> {
    let mut engine = engine(game);
    let mut input = Script::new(commands, 5);
    let text =
        session(&|path, _| file(path), |output, host| gtp::serve(&mut engine, &mut input, output, host, &SETTINGS));
    assert!(text.ends_with("\n\n"), "{text}");
    text.split_terminator("\n\n").map(str::to_owned).collect()
}

/// Checks the response to each command. In an expected response, a final `*` matches any text, and a final `<move>`
/// matches any move: a cell, `pass`, `resign`, or the swap move in Hex.
fn check(game: &str, exchanges: &[(&str, &str)]) {
    let engine = engine(game);
    let is_move = |name: &str| {
        let (game, size) = (engine.identity().game, engine.size());
        game.parse_move(size, name).is_some_and(|played| game.move_name(size, played) == name)
    };
    let commands: Vec<&str> = exchanges.iter().map(|(command, _)| *command).collect();
    let responses = responses(game, &commands.join("\n"));
    assert_eq!(responses.len(), exchanges.len(), "{responses:?}");
    for (index, ((command, expected), response)) in exchanges.iter().zip(&responses).enumerate() {
        let is_expected = match (expected.strip_suffix('*'), expected.strip_suffix("<move>")) {
            (Some(beginning), _) => response.len() > beginning.len() && response.starts_with(beginning),
            (None, Some(beginning)) => response.strip_prefix(beginning).is_some_and(is_move),
            (None, None) => response == expected,
        };
        assert!(is_expected, "{command} (command {index}): {response:?} instead of {expected:?}");
    }
}

/// GTP commands in Go on 5x5, each with the expected response. Every command succeeds once, here or in [`GO_ON_7`].
const GO_ON_5: &[(&str, &str)] = &[
    ("1 protocol_version", "=1 2"),
    ("name", "= zerofleet test"),
    ("version", "= 7.17"),
    ("known_command kata-analyze", "= true"),
    ("list_commands", "= analyze\nboardsize\n*"),
    ("nonsense", "? unknown command"),
    ("final_score", "= W+24"),
    ("boardsize 5", "="),
    ("boardsize 9", "? unacceptable size"),
    ("rectangular_boardsize 5 5", "="),
    ("rectangular_boardsize 5 6", "? unacceptable size"),
    ("komi 0.5", "="),
    ("komi 0.3", "? unacceptable komi"),
    ("komi x", "? syntax error"),
    ("clear_board", "="),
    ("play b C3", "="),
    ("play w C3", "? illegal move"),
    ("play w Z1", "? syntax error"),
    ("final_score", "= B+24.5"),
    ("play b D3", "="),
    ("play w pass", "="),
    ("showboard", "=\n   A B C D E\n 5 . . . . .\n 4 . . . . .\n 3 . . X X .\n 2 . . . . .\n 1 . . . . ."),
    ("final_status_list alive", "= C3 D3"),
    ("final_status_list dead", "="),
    ("final_status_list seki", "="),
    ("undo", "="),
    ("undo", "="),
    ("genmove w", "= <move>"),
    ("reg_genmove b", "= <move>"),
    ("undo", "="),
    ("undo", "="),
    ("undo", "? cannot undo"),
    ("fixed_handicap 2", "? invalid number of stones"),
    ("place_free_handicap 2", "? invalid number of stones"),
    ("set_free_handicap B2 D4", "="),
    ("set_free_handicap B2 D4", "? board not empty"),
    ("genmove w", "= <move>"),
    (
        "kata-get-rules",
        "= {\"ko\":\"POSITIONAL\",\"scoring\":\"AREA\",\"tax\":\"NONE\",\"suicide\":false,\"hasButton\":false,\
         \"whiteHandicapBonus\":\"0\"}",
    ),
    ("kata-set-rules japanese", "? unsupported rules"),
    ("kata-set-rules chinese", "="),
    ("clear_board", "="),
    ("time_settings 0 0.1 1", "="),
    ("genmove b", "= <move>"),
    ("time_left w 0.1 1", "="),
    ("genmove w", "= <move>"),
    ("time_settings 0 -1 1", "? syntax error"),
    ("kgs-time_settings absolute 0.5", "="),
    ("kgs-time_settings canadian 0 0.1 1", "="),
    ("kgs-time_settings byoyomi 0 0.1 1", "="),
    ("genmove b", "= <move>"),
    ("kgs-time_settings none", "="),
    ("loadsgf go.sgf", "="),
    ("showboard", "=\n   A B C D E\n 5 X . . . .\n 4 . O . . .\n 3 . . X . .\n 2 . . . . .\n 1 . . . . ."),
    (
        "loadsgf large.sgf",
        "? cannot load file: the moves or the board are impossible: the network plays on boards of 5 x 5 cells",
    ),
    ("loadsgf illegal.sgf", "? cannot load file: the moves or the board are impossible: illegal move"),
    ("loadsgf none.sgf", "? cannot load file: entity not found"),
    ("clear_cache", "="),
    ("lz-genmove_analyze w 100", "=\ninfo move *"),
    ("kata-genmove_analyze b avoid b A1,B1 1 ownership true", "=\ninfo move *"),
    ("genmove_analyze w", "=\ninfo move *"),
    ("lz-genmove_analyze b nonsense", "? syntax error"),
    ("lz-analyze b 1", "=\ninfo move *"),
    ("kata-analyze 1", "=\ninfo move *"),
    ("analyze interval 1 pvVisits true", "=\ninfo move *"),
    ("clear_board", "="),
    ("play b pass", "="),
    ("play w pass", "="),
    ("genmove b", "= <move>"),
    ("2 quit", "=2"),
];

/// Commands of GoGui, and GTP commands with fixed handicaps, for which a board of 5x5 is too small.
const GO_ON_7: &[(&str, &str)] = &[
    ("gogui-analyze_commands", "= string/*"),
    ("gogui-rules_game_id", "= Go"),
    ("gogui-rules_board_size", "= 7"),
    ("gogui-rules_side_to_move", "= black"),
    ("gogui-rules_legal_moves", "= A7 B7 C7 *"),
    ("gogui-rules_board", "= . . . . . . .\n*"),
    ("gogui-rules_final_result", "= The game is not over"),
    ("gogui-play_sequence b D4 w pass b E4", "="),
    ("final_status_list alive", "= D4 E4"),
    ("clear_board", "="),
    ("gogui-setup b A7 w A6 w B7", "? a chain of stones has no liberty"),
    ("gogui-setup b A7 b C7 w A6 w B6", "="),
    ("gogui-setup_player w", "="),
    ("gogui-rules_side_to_move", "= white"),
    ("play w B7", "="),
    ("gogui-rules_board", "= . O X . . . .\nO O . . . . .\n*"),
    ("clear_board", "="),
    ("fixed_handicap 2", "= C3 E5"),
    ("final_status_list alive", "= E5\nC3"),
    ("fixed_handicap 2", "? board not empty"),
    ("genmove w", "= <move>"),
    ("clear_board", "="),
    ("place_free_handicap 3", "= C3 E5 C5"),
    ("final_status_list alive", "= C5\nE5\nC3"),
    ("genmove w", "= <move>"),
    ("quit", "="),
];

#[test]
fn every_command_of_go_is_answered() {
    check("go-5", GO_ON_5);
    check("go-7", GO_ON_7);
    let succeeds = |name: &str| {
        let is_id = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
        let is_of_name = |command: &str| command.split(' ').find(|word| !is_id(word)) == Some(name);
        let mut exchanges = GO_ON_5.iter().chain(GO_ON_7);
        exchanges.any(|(command, expected)| is_of_name(command) && expected.starts_with('='))
    };
    let list = responses("go-5", "list_commands").remove(0);
    for name in list.trim_start_matches("= ").lines() {
        assert!(succeeds(name), "{name} is listed, and no command here succeeds with it");
    }
}

#[test]
fn hex_othello_and_gomoku_are_played_by_their_own_moves() {
    check(
        "hex-4",
        &[
            ("boardsize 4 4", "="),
            ("komi 1", "="),
            ("play b b3", "="),
            ("play w b3", "? illegal move"),
            ("play white swap-pieces", "="),
            ("play black swap-pieces", "? illegal move"),
            ("showboard", "=\n   a b c d\n 1 . . . .\n  2 . . O .\n   3 . . . .\n    4 . . . ."),
            ("genmove black", "= <move>"),
            ("final_score", "? cannot score"),
            ("hexgui-analyze_commands", "= string/*"),
            ("play white resign", "="),
            ("clear_board", "="),
            ("play b a1", "="),
            ("play w b1", "="),
            ("play b a2", "="),
            ("play w b2", "="),
            ("play b a3", "="),
            ("play w b3", "="),
            ("play b a4", "="),
            ("final_score", "= B+"),
            ("genmove w", "= resign"),
            ("genmove w", "= resign"),
            ("genmove b", "= pass"),
            ("play b pass", "="),
            ("play b d4", "? illegal move"),
            ("lz-analyze", "? the game is over"),
            ("lz-genmove_analyze w", "=\nplay resign"),
            ("gogui-rules_final_result", "= Black wins"),
        ],
    );
    check(
        "othello-6",
        &[
            (
                "showboard",
                "=\n   a b c d e f\n 1 . . . . . .\n 2 . . . . . .\n 3 . . O X . .\n 4 . . X O . .\n 5 . . . . . .\n 6 . . . . . .",
            ),
            ("komi 5", "="),
            ("play b pass", "? illegal move"),
            ("play b a1", "? illegal move"),
            ("play w c2", "? illegal move"),
            ("genmove b", "= <move>"),
            ("genmove w", "= <move>"),
            ("undo", "="),
            ("final_score", "? cannot score"),
            ("boardsize 8", "? unacceptable size"),
            ("clear_board", "="),
            ("gogui-rules_game_id", "= Othello"),
            ("gogui-rules_board", "= . . . . . .\n. . . . . .\n. . O X . .\n. . X O . .\n. . . . . .\n. . . . . ."),
            ("gogui-rules_legal_moves", "= C5 B4 E3 D2"),
            ("play B C5", "="),
            ("gogui-rules_side_to_move", "= white"),
        ],
    );
    check(
        "gomoku-9",
        &[
            ("known_command komi", "= true"),
            ("komi 0", "="),
            ("play b J9", "="),
            ("play w J9", "? illegal move"),
            ("play w I9", "? syntax error"),
            ("genmove w", "= <move>"),
            ("fixed_handicap 2", "? unknown command"),
            ("final_score", "? cannot score"),
        ],
    );
}

/// Edax, for one, lets a player move again where the opponent must pass.
#[test]
fn a_pass_that_othello_requires_may_be_sent_or_left_out() {
    let before = "gogui-play_sequence b c2 w b2 b b3 w d2 b a1 w a3 b a2 w b5 b a4";
    let check = |rest: &[(&str, &str)]| check("othello-6", &[&[(before, "=")][..], rest].concat());
    check(&[("gogui-rules_side_to_move", "= white"), ("gogui-rules_legal_moves", "= pass")]);
    check(&[("genmove w", "= pass"), ("play b d1", "=")]);
    check(&[("play b d1", "="), ("undo", "="), ("play w pass", "="), ("gogui-rules_side_to_move", "= black")]);
    check(&[("play b a6", "? illegal move"), ("genmove b", "= <move>"), ("genmove w", "= <move>")]);
    check(&[("clear_board", "="), ("genmove w", "? the other player is to move")]);
    check(&[("clear_board", "="), ("gogui-setup b d3 b c4 w c3 w d4", "="), ("play b c2", "=")]);
    check(&[("clear_board", "="), ("gogui-setup b a1", "? this position is not reachable from an empty board")]);
}

#[test]
fn an_analysis_is_streamed_until_the_next_line_and_its_visits_grow() {
    for command in ["lz-analyze b 1", "kata-analyze 1", "analyze interval 1 pvVisits true"] {
        let responses = responses("go-5", &format!("play w C3\n3 {command}\nname\nquit"));
        let lines: Vec<&str> = responses[1].lines().collect();
        assert!(lines[0] == "=3" && lines.len() >= 3, "{command}: {lines:?}");
        let visits = |line: &str| -> u32 {
            let words: Vec<&str> = line.split(' ').collect();
            let is_visits = |pair: &&[&str]| pair[0] == "visits";
            words.windows(2).filter(is_visits).map(|pair| pair[1].parse::<u32>().unwrap()).sum()
        };
        let counts: Vec<u32> = lines[1..].iter().map(|line| visits(line)).collect();
        assert!(counts.is_sorted() && counts[0] > 0 && counts[0] < counts[counts.len() - 1], "{command}: {counts:?}");
        for line in &lines[1..] {
            let first: Vec<&str> = line.split(" info ").next().unwrap().split(' ').collect();
            assert_eq!(first[..2], ["info", "move"], "{line}");
            let pv = first.iter().position(|word| *word == "pv").unwrap();
            assert_eq!(first[pv + 1], first[2], "the variation begins with the move: {line}");
            assert!(!first.contains(&"C3") && !line.contains("ownership"), "{line}");
        }
        assert_eq!(responses[2..], ["= zerofleet test", "="]);
    }
}

#[test]
fn a_file_with_black_stones_begins_with_the_player_of_its_first_move() {
    for (file, color, stone) in [("stones.sgf", 'b', " 1 X . . . ."), ("handicap.sgf", 'w', " 1 O . . . .")] {
        // The restriction applies only to the player to move, whom the command does not name.
        let commands = format!("loadsgf {file} 1\nlz-genmove_analyze allow {color} A1 1\nshowboard\nquit");
        let responses = responses("go-5", &commands);
        let last_row = responses[2].lines().next_back();
        assert_eq!((responses[0].as_str(), last_row), ("=", Some(stone)), "{file}: {responses:?}");
    }
}

#[test]
fn a_move_that_is_restricted_is_an_allowed_one_and_is_played() {
    let responses = responses("go-5", "lz-genmove_analyze b allow b A1,E5 1\nshowboard\nquit");
    let last = responses[0].lines().last().unwrap();
    assert!(["play A1", "play E5"].contains(&last), "{responses:?}");
    assert_eq!(responses[1].matches('X').count(), 1, "{responses:?}");
}

#[test]
fn hexgui_sets_up_stones_and_swapped_stones_by_play() {
    check(
        "hex-4",
        &[
            ("boardsize 4 4", "="),
            ("clear_board", "="),
            // After the swap of c2, HexGui sends the stones on the board, and nothing after an exchange of the sides.
            ("play white b3", "="),
            ("showboard", "=\n   a b c d\n 1 . . . .\n  2 . . . .\n   3 . O . .\n    4 . . . ."),
            ("play white swap-pieces", "? illegal move"),
            ("genmove black", "= <move>"),
            ("clear_board", "="),
            ("play black a1", "="),
            ("play black b1", "="),
            ("play black a1", "? illegal move"),
            ("play white d2", "="),
            ("play black a3", "="),
            ("showboard", "=\n   a b c d\n 1 X X . .\n  2 . . . O\n   3 X . . .\n    4 . . . ."),
            ("genmove black", "= <move>"),
            ("genmove white", "= <move>"),
            ("clear_board", "="),
            ("play black b3", "="),
            ("play white swap-sides", "="),
            ("play white swap-sides", "? syntax error"),
            ("play white swap-pieces", "? illegal move"),
            ("genmove white", "= <move>"),
            ("showboard", "=\n   a b c d\n*"),
        ],
    );
    let sides = responses("hex-4", "play b b3\nplay w swap-sides\ngogui-rules_side_to_move\nquit");
    assert_eq!(sides[2], "= white");
    let swap = "boardsize 4\nplay b b3\ngogui-rules_legal_moves\nplay w pass\ngogui-rules_board\nquit";
    let responses = responses("hex-4", swap);
    assert!(responses[2].ends_with(" D1 pass"), "{responses:?}");
    assert_eq!(responses[4], "= . . . .\n. . O .\n. . . .\n. . . .");
}

/// What the ringmaster of gomill 0.8.3 sends: a session that checks the player, then a session for each game, in which
/// the commands of the user (`startup_gtp_commands`) precede the board size.
#[test]
fn a_ringmaster_checks_a_player_and_then_plays_to_the_score() {
    let sizes = [("go-5", "boardsize 5"), ("hex-4", "boardsize 4"), ("othello-6", "boardsize 6")];
    for (name, size) in sizes.into_iter().chain([("gomoku-7", "boardsize 7")]) {
        let version = ("protocol_version", "= 2");
        let game = [("time_settings 0 0.1 1", "="), (size, "="), ("clear_board", "="), ("komi 7.5", "=")];
        check(name, &[&[version][..], &game, &[("quit", "=")]].concat());
        let names = [
            version,
            ("name", "= zerofleet test"),
            ("version", "= 7.17"),
            ("known_command gomill-describe_engine", "= false"),
        ];
        let first = [("genmove b", "= <move>"), ("known_command gomill-explain_last_move", "= false")];
        check(name, &[&names[..], &game, &first].concat());
        let last = [
            ("play w pass", "="),
            ("genmove b", "= <move>"),
            ("known_command final_score", "= true"),
            ("final_score", "= *"),
            ("known_command gomill-cpu_time", "= false"),
            ("quit", "="),
        ];
        if name == "go-5" {
            check(name, &[&names[..], &game, &first, &last].concat());
        }
    }
}

/// A session in a thread, with commands without ids.
struct Program {
    input: io::PipeWriter,
    output: io::BufReader<io::PipeReader>,
    thread: thread::JoinHandle<()>,
}

impl Program {
    fn start(name: &'static str) -> Self {
        let (commands, input) = io::pipe().unwrap();
        let (output, mut responses) = io::pipe().unwrap();
        let thread = thread::spawn(move || {
            let mut input = Background::start(commands, gtp::LINE_BYTES_MAX).unwrap();
            let clock = clock();
            let host = Host { clock: &clock, read_file: &|path, _| file(path) };
            gtp::serve(&mut engine(name), &mut input, &mut responses, &host, &SETTINGS).unwrap();
        });
        Self { input, output: io::BufReader::new(output), thread }
    }

    /// Returns the text of the response, which must be a success.
    fn send(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").unwrap();
        let mut text = String::new();
        while !text.ends_with("\n\n") {
            assert!(self.output.read_line(&mut text).unwrap() > 0, "{command}: the session ended");
        }
        text.strip_prefix('=').unwrap_or_else(|| panic!("{command}: {text}")).trim().to_owned()
    }
}

/// The referee has no rules. It sends what GoGui's `twogtp` sends: the board twice, komi once, moves in capital letters
/// until a program resigns or both pass, and a request for the score.
#[test]
fn a_referee_without_rules_leads_every_game_to_its_end_and_to_one_score() {
    for (name, size) in [("gomoku-7", 7), ("hex-4", 4), ("othello-6", 6), ("go-5", 5)] {
        let mut programs = [Program::start(name), Program::start(name)];
        for program in &mut programs {
            for command in ["protocol_version", "name", "version", "list_commands"] {
                program.send(command);
            }
            let size = format!("boardsize {size}");
            for command in [size.as_str(), "clear_board", "komi 6.5", &size, "clear_board", "time_settings 0 1 0"] {
                program.send(command);
            }
        }
        let (mut turn, mut passes, mut resigned) = (0, 0, None);
        while passes < 2 && resigned.is_none() {
            let (mover, color) = (turn % 2, ["b", "w"][turn % 2]);
            let played = programs[mover].send(&format!("genmove {color}"));
            if played == "resign" {
                resigned = Some(mover);
            } else {
                let ply = format!("{color} {played}").to_uppercase();
                programs[1 - mover].send(&format!("play {ply}"));
            }
            passes = if played == "pass" { passes + 1 } else { 0 };
            turn += 1;
            assert!(turn < 200, "{name}: the game does not end");
        }
        let scores = programs.each_mut().map(|program| program.send("final_score"));
        assert_eq!(scores[0], scores[1], "{name}");
        let winner = ["B", "W"].into_iter().position(|letter| scores[0].starts_with(letter));
        assert!(resigned.is_none_or(|loser| winner == Some(1 - loser)), "{name}: {scores:?}, {resigned:?} resigned");
        for mut program in programs {
            program.send("quit");
            program.thread.join().unwrap();
        }
    }
}
