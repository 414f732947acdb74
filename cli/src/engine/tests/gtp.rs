//! Sessions of GTP: every command of `docs/engines.md`, with its faults.

use protocols::doubles::Script;
use protocols::{Settings, gtp};

use super::*;

const SETTINGS: Settings = Settings { visits: 30, time: None, lag: Duration::from_millis(10) };

fn file(path: &str) -> io::Result<Vec<u8>> {
    match path {
        "go.sgf" => Ok(b"(;GM[1]SZ[5]KM[0.5];B[aa];W[bb];B[cc])".to_vec()),
        "large.sgf" => Ok(b"(;GM[1]SZ[19];B[aa])".to_vec()),
        "illegal.sgf" => Ok(b"(;GM[1]SZ[5];B[aa];W[aa])".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// The responses of a session.
fn responses(game: &str, commands: &str) -> Vec<String> {
    let mut engine = engine(game);
    let mut input = Script::new(commands, 5);
    let text =
        session(&|path, _| file(path), |output, host| gtp::serve(&mut engine, &mut input, output, host, &SETTINGS));
    assert!(text.ends_with("\n\n"), "{text}");
    text.split_terminator("\n\n").map(str::to_owned).collect()
}

/// Checks the response of each command; `*` at the end of an expected one stands for any text.
fn check(game: &str, exchanges: &[(&str, &str)]) {
    let commands: Vec<&str> = exchanges.iter().map(|(command, _)| *command).collect();
    let responses = responses(game, &commands.join("\n"));
    assert_eq!(responses.len(), exchanges.len(), "{responses:?}");
    for (index, ((command, expected), response)) in exchanges.iter().zip(&responses).enumerate() {
        let is_expected = match expected.strip_suffix('*') {
            Some(beginning) => response.len() > beginning.len() && response.starts_with(beginning),
            None => response == expected,
        };
        assert!(is_expected, "{command} (command {index}): {response:?} instead of {expected:?}");
    }
}

#[test]
fn every_command_of_go_is_answered() {
    check(
        "go-5",
        &[
            ("1 protocol_version", "=1 2"),
            ("name", "= zerofleet test"),
            ("version", "= 7"),
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
            ("genmove w", "= *"),
            ("reg_genmove b", "= *"),
            ("undo", "="),
            ("undo", "="),
            ("undo", "? cannot undo"),
            ("fixed_handicap 2", "? invalid number of stones"),
            ("place_free_handicap 2", "? invalid number of stones"),
            ("set_free_handicap B2 D4", "="),
            ("set_free_handicap B2 D4", "? board not empty"),
            ("genmove w", "= *"),
            (
                "kata-get-rules",
                "= {\"ko\":\"POSITIONAL\",\"scoring\":\"AREA\",\"tax\":\"NONE\",\"suicide\":false,\"hasButton\":false,\
                 \"whiteHandicapBonus\":\"0\"}",
            ),
            ("kata-set-rules japanese", "? unsupported rules"),
            ("kata-set-rules chinese", "="),
            ("clear_board", "="),
            ("time_settings 0 0.1 1", "="),
            ("genmove b", "= *"),
            ("time_left w 0.1 1", "="),
            ("genmove w", "= *"),
            ("time_settings 0 -1 1", "? syntax error"),
            ("kgs-time_settings absolute 0.5", "="),
            ("kgs-time_settings canadian 0 0.1 1", "="),
            ("kgs-time_settings byoyomi 0 0.1 1", "="),
            ("genmove b", "= *"),
            ("kgs-time_settings none", "="),
            ("loadsgf go.sgf", "="),
            ("showboard", "=\n   A B C D E\n 5 X . . . .\n 4 . O . . .\n 3 . . X . .\n 2 . . . . .\n 1 . . . . ."),
            ("loadsgf large.sgf", "? cannot load file: its moves or its board are not possible"),
            ("loadsgf illegal.sgf", "? cannot load file: its moves or its board are not possible"),
            ("loadsgf none.sgf", "? cannot load file: entity not found"),
            ("clear_cache", "="),
            ("lz-genmove_analyze w 100", "=\ninfo move *"),
            ("kata-genmove_analyze b avoid b A1,B1 1 ownership true", "=\ninfo move *"),
            ("genmove_analyze w", "=\ninfo move *"),
            ("lz-genmove_analyze b nonsense", "? syntax error"),
            ("clear_board", "="),
            ("play b pass", "="),
            ("play w pass", "="),
            ("genmove b", "= *"),
            ("2 quit", "=2"),
        ],
    );
}

#[test]
fn hex_othello_and_gomoku_are_played_by_their_own_moves() {
    check(
        "hex-4",
        &[
            ("boardsize 4 4", "="),
            ("komi 1", "? unknown command"),
            ("play b b3", "="),
            ("play b a1", "? illegal move"),
            ("play white swap-pieces", "="),
            ("play black swap-pieces", "? illegal move"),
            ("showboard", "=\n   a b c d\n 1 . . . .\n  2 . . O .\n   3 . . . .\n    4 . . . ."),
            ("genmove black", "= *"),
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
            ("genmove w", "? the game is over"),
            ("lz-analyze", "? the game is over"),
        ],
    );
    check(
        "othello-6",
        &[
            (
                "showboard",
                "=\n   a b c d e f\n 1 . . . . . .\n 2 . . . . . .\n 3 . . O X . .\n 4 . . X O . .\n 5 . . . . . .\n 6 . . . . . .",
            ),
            ("play b pass", "? illegal move"),
            ("play b a1", "? illegal move"),
            ("genmove b", "= *"),
            ("genmove w", "= *"),
            ("undo", "="),
            ("final_score", "? cannot score"),
            ("boardsize 8", "? unacceptable size"),
        ],
    );
    check(
        "gomoku-9",
        &[
            ("play b J9", "="),
            ("play w J9", "? illegal move"),
            ("play w I9", "? syntax error"),
            ("genmove w", "= *"),
            ("fixed_handicap 2", "? unknown command"),
            ("final_score", "? cannot score"),
        ],
    );
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
fn a_move_that_is_restricted_is_an_allowed_one_and_is_played() {
    let responses = responses("go-5", "lz-genmove_analyze b allow b A1,E5 1\nshowboard\nquit");
    let last = responses[0].lines().last().unwrap();
    assert!(["play A1", "play E5"].contains(&last), "{responses:?}");
    assert_eq!(responses[1].matches('X').count(), 1, "{responses:?}");
}
