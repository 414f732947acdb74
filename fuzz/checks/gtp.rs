//! Input of GTP and of Gomocup's protocol, to an engine for tests.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use protocols::doubles::FirstCell;
use protocols::{BoardGame, Host, Lines, Settings, gomocup, gtp};

/// Checks that any bytes get responses. In GTP each command has one whole response, as a naive reader counts commands;
/// in Gomocup's protocol each line of output is a response.
///
/// The first byte chooses the game, or Gomocup's protocol.
pub(crate) fn check(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    let game = BoardGame::ALL.get(usize::from(kind % 5)).copied();
    // Doubles at every reading, so that no time granted by a command lasts long.
    let now = Cell::new(1_u64);
    let clock = || {
        now.set((now.get() * 2).min(1 << 40));
        Duration::from_millis(now.get())
    };
    let record = |path: &str, _| match path {
        "a.sgf" => Ok(b"(;GM[1]SZ[5];B[aa];W[bb])".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let host = Host { clock: &clock, read_file: &record };
    let settings = Settings { visits: 2, time: None, lag: Duration::from_millis(1) };
    let mut output = Vec::new();
    let mut engine = FirstCell::new(game.unwrap_or(BoardGame::Gomoku));
    match game {
        Some(_) => {
            let mut input = Lines::new(bytes, gtp::LINE_BYTES_MAX);
            gtp::serve(&mut engine, &mut input, &mut output, &host, &settings).expect("a vector takes all output");
            check_responses(&output, commands(bytes));
        }
        None => {
            let mut input = Lines::new(bytes, gomocup::LINE_BYTES_MAX);
            gomocup::serve(&mut engine, &mut input, &mut output, &host, &settings).expect("a vector takes all output");
            check_lines(&output);
        }
    }
}

fn check_responses(output: &[u8], commands: usize) {
    let text = std::str::from_utf8(output).expect("output is UTF-8");
    assert!(text.is_empty() || text.ends_with("\n\n"), "{text:?}");
    let responses: Vec<&str> = text.split_terminator("\n\n").collect();
    assert_eq!(responses.len(), commands, "{text:?}");
    assert!(responses.iter().all(|response| response.starts_with(['=', '?'])), "{text:?}");
}

/// Returns the number of commands up to `quit`: lines with something other than control characters before a `#`.
fn commands(bytes: &[u8]) -> usize {
    let mut count = 0;
    for line in bytes.split(|&byte| byte == b'\n') {
        let is_long = line.len() > gtp::LINE_BYTES_MAX;
        let line = line.split(|&byte| byte == b'#').next().unwrap_or_default();
        let visible: Vec<u8> = line.iter().copied().filter(|byte| *byte == b'\t' || !byte.is_ascii_control()).collect();
        let mut words = visible.split(|byte| b"\t ".contains(byte)).filter(|word| !word.is_empty());
        let Some(first) = words.next().or(is_long.then_some(&b"long"[..])) else { continue };
        count += 1;
        let name = if first.iter().all(u8::is_ascii_digit) { words.next().unwrap_or_default() } else { first };
        if name == b"quit" && !is_long {
            break;
        }
    }
    count
}

fn check_lines(output: &[u8]) {
    let text = std::str::from_utf8(output).expect("output is UTF-8");
    for line in text.lines() {
        let is_move = line.split_once(',').is_some_and(|(x, y)| x.parse::<u8>().is_ok() && y.parse::<u8>().is_ok());
        let is_known = ["OK", "ERROR ", "UNKNOWN ", "MESSAGE ", "name="].iter().any(|start| line.starts_with(start));
        assert!(is_move || is_known, "{line:?}");
    }
}

/// Returns sessions with every command.
#[allow(dead_code, reason = "used by the test of the corpus alone")]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let sessions = [
        "\0list_commands\n1 boardsize 9\nkomi 6.5\nplay b D4\ngenmove w\nundo\nshowboard\nfinal_score\nquit\nname\n",
        "\0time_settings 60 10 5\ntime_left w 10 3\ngenmove w\nkgs-time_settings byoyomi 10 5 3\nlz-genmove_analyze b 1\n",
        "\0fixed_handicap 3\nclear_board\nplace_free_handicap 9\nclear_board\nset_free_handicap A1 B2\nfinal_status_list alive\n",
        "\0kata-analyze b interval 1 avoid b A1,B2 3 ownership true\n\nkata-get-rules\nkata-set-rules japanese\nloadsgf a.sgf 2\n",
        "\0reg_genmove b # comment\r\n\t2\tprotocol_version\x01\nknown_command play\ntime_settings 0 1 0\nplay w pass\nplay b pass\n",
        "\x01boardsize 8\nplay b d3\ngenmove w\nrectangular_boardsize 4 3\nclear_cache\n",
        "\x03boardsize 5\nplay b a1\nplay w swap-pieces\ngenmove b\nhexgui-analyze_commands\nplay w resign\n",
        "\x04START 15\nINFO timeout_turn 1000\nINFO time_left 5000\nBEGIN\nTURN 7,7\nTAKEBACK 1,0\nABOUT\nRESTART\nEND\n",
        "\x04START 5\nINFO rule 1\nBOARD\n0,0,2\n1,1,1\n2,2,2\nDONE\nRECTSTART 3,4\nSWAP2BOARD\nDONE\nPLAY 1,1\n",
        "\x03boardsize 5\nplay b a1\ngogui-rules_legal_moves\nplay w pass\ngogui-rules_board\ngogui-rules_board_size\nplay b J9\n",
        "\x02boardsize 1\nplay b a1\nplay w pass\nplay b pass\ngenmove w\nlz-genmove_analyze w\ngogui-rules_final_result\n",
        "\x03play b a1\nplay w swap-sides\nplay w swap-sides\ngenmove w\nkomi 5\nversion\ngogui-rules_side_to_move\n",
        "\x04START 9\nINFO rule 2\nBOARD\n0,0,3\n1,0,1\n2,0,1\nDONE\nINFO rule 15\nBEGIN\n",
    ];
    sessions.iter().map(|session| session.as_bytes().to_vec()).collect()
}
